"""The manifests in deploy/kubernetes: what Kubernetes' own schemas say, and whether they fit each other and us."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support import ROOT

from sparring.orchestrator.cli.main import cli
from sparring.protos.net.address import Address

FOLDER = ROOT / "deploy" / "kubernetes"
OLDEST = "1.31"
"""The first release that has all of it as a finished feature (podFailurePolicy)."""
VERSIONS = (OLDEST, kubernetes_validate.latest_version())


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
ALL = [document for path in FILES for document in documents(path)]
PODS = {
    document["metadata"]["name"]: document["spec"]["template"]
    for document in ALL
    if "template" in document.get("spec", {})
}
CONTAINERS = [
    pytest.param(container, id=f"{pod}-{container['name']}")
    for pod, template in PODS.items()
    for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"])
]


def of_kind(kind: str) -> Iterator[dict[str, Any]]:
    return (document for document in ALL if document["kind"] == kind)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_kubernetes_own_schemas_take_them(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_would_notice() -> None:
    wrong = documents(FOLDER / "worker-metaworld.yaml")[0]
    wrong["spec"]["completion"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, OLDEST, strict=True)


def test_all_of_them_are_applied_or_offered() -> None:
    text = (FOLDER / "kustomization.yaml").read_text()
    assert [path.name for path in FILES if path.name not in text] == []
    assert {document["metadata"]["namespace"] for document in ALL if document["kind"] != "Namespace"} == {"sparring"}


@pytest.mark.parametrize("container", CONTAINERS)
def test_its_command_is_one_of_ours_with_flags_that_there_are(container: dict[str, Any]) -> None:
    subcommand, *arguments = container["args"]
    command = cli.get_command(None, subcommand)  # type: ignore[arg-type]
    assert command is not None, subcommand
    command.make_parser(command.make_context(subcommand, list(arguments), resilient_parsing=True))
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert [flag for flag in map(_flag, arguments) if flag.startswith("--") and flag not in known] == []


def _flag(argument: str) -> str:
    return argument.partition("=")[0]


@pytest.mark.parametrize("container", CONTAINERS)
def test_files_that_it_names_are_mounted(container: dict[str, Any]) -> None:
    template = next(
        t for t in PODS.values() if container in [*t["spec"]["containers"], *t["spec"].get("initContainers", ())]
    )
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    for argument in container["args"]:
        if "=/run/secrets/" in argument:
            folder, _, name = argument.partition("=")[2].rpartition("/")
            assert name in [item["path"] for item in mounts[folder]["secret"]["items"]], argument
        if "=unix://" in argument:
            folder = argument.partition("=unix://")[2].rpartition("/")[0]
            assert "emptyDir" in mounts[folder], argument


@pytest.mark.parametrize("container", CONTAINERS)
def test_it_has_no_more_rights_than_it_needs(container: dict[str, Any]) -> None:
    security = container["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]], "it must be able to write somewhere"
    assert "env" not in container or not any("TOKEN" in variable["name"] for variable in container["env"])


@pytest.mark.parametrize("name", PODS)
def test_its_pod_is_nobody_and_is_watched(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001, "the user that the images have"
    assert all("livenessProbe" in container for container in spec["containers"])
    assert all(volume["secret"]["defaultMode"] == 0o440 for volume in spec["volumes"] if "secret" in volume)


def test_addresses_are_those_of_services_and_of_pods_behind_them() -> None:
    services = {service["metadata"]["name"]: service["spec"] for service in of_kind("Service")}
    dialled = [
        Address.parse(argument.partition("=")[2])
        for template in PODS.values()
        for container in template["spec"]["containers"]
        for argument in container["args"]
        if _flag(argument) in ("--orchestrator", "--policy-server")
    ]
    assert {address.host for address in dialled} == set(services)
    for address in dialled:
        assert address.is_encrypted
        service = services[address.host]
        assert [port["port"] for port in service["ports"]] == [address.port]
        behind = [
            name for name, pod in PODS.items() if service["selector"].items() <= pod["metadata"]["labels"].items()
        ]
        assert behind == [address.host]
        container = PODS[address.host]["spec"]["containers"][0]
        assert f"--listen=0.0.0.0:{address.port}" in container["args"]
        assert {"name": service["ports"][0]["targetPort"], "containerPort": address.port} in container["ports"]


def test_whoever_dials_is_let_through_and_nobody_else() -> None:
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in of_kind("NetworkPolicy")}
    assert policies["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, "first of all"
    labels = {name: pod["metadata"]["labels"] for name, pod in PODS.items()}
    workers = {name for name in labels if labels[name]["app.kubernetes.io/component"] == "worker"}
    wanted = {("policy-server", 50051): {"orchestrator", *workers}, ("orchestrator", 50052): workers}
    let_in = {}
    for name in ("to-the-policy", "to-the-run"):
        (rule,) = policies[name]["ingress"]
        whom = policies[name]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
        chosen = [source["podSelector"]["matchLabels"].items() for source in rule["from"]]
        let_in[whom, rule["ports"][0]["port"]] = {
            n for n in labels if any(want <= labels[n].items() for want in chosen)
        }
    assert let_in == wanted


@pytest.mark.parametrize("container", CONTAINERS)
def test_variables_that_it_is_given_mean_something(container: dict[str, Any]) -> None:
    code = "".join(
        path.read_text() for room in ("protos", "env_worker", "policy_server") for path in (ROOT / room).rglob("*.py")
    )
    named = [variable["name"] for variable in container.get("env", ())]
    named += re.findall(r"\$(\w+)", str(container.get("livenessProbe", "")))
    assert [name for name in named if f'"{name}"' not in code] == []


def test_images_are_those_that_are_built_here() -> None:
    built = {path.name.removesuffix(".Dockerfile") for path in (ROOT / "docker").glob("*.Dockerfile")}
    images = {parameter.values[0]["image"] for parameter in CONTAINERS}  # type: ignore[index]
    assert {re.fullmatch(r"sparring/([\w-]+):[\d.]+", image)[1] for image in images} == built  # type: ignore[index]
