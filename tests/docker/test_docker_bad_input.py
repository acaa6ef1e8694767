"""Everything that can be wrong with images, addresses and settings of containers: a sentence that says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from certificates import write_secret
from container_support import PLAN, BuildImage, containers
from support import Sparring, StartSparring, free_port, read_csv

from sparring.orchestrator.launchers.docker.engine import Engine
from sparring.protos import WORK_PROTOCOL_VERSION

pytestmark = pytest.mark.requires("docker")

BASE = ("run", *PLAN, "--launcher", "docker", "--output", "out")
NO_POLICY = [flag for flag in PLAN if flag not in ("--policy", "toy_policies:Wanderer")]


def test_an_image_that_is_not_there(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(*BASE, "--image", "toy=sparring-test/nowhere:1")
    assert done.returncode == 2
    assert "there is no image 'sparring-test/nowhere:1' for the benchmark 'toy'" in done.stderr
    assert "--image toy=NAME" in done.stderr
    assert not (tmp_path / "out").exists(), "no debris of a mistyped command"


def test_a_shipped_image_that_is_not_there_says_how_to_build_it(sparring: Sparring) -> None:
    done = sparring(
        "run", "--benchmark", "metaworld", "--task", "reach-v3", "--policy", "zero", "--launcher", "docker",
        "--image", "metaworld=sparring-test/nowhere:1",
    )  # fmt: skip
    assert done.returncode == 2
    assert "docker compose build worker-metaworld" in done.stderr


def test_an_image_whose_label_names_another_protocol(sparring: Sparring, build_image: BuildImage) -> None:
    image = build_image("labelled", "LABEL dev.sparring.protocol=99")
    done = sparring(*BASE, "--image", f"toy={image}")
    assert done.returncode == 2
    assert f"the image {image!r} speaks protocol version 99, this orchestrator {WORK_PROTOCOL_VERSION}" in done.stderr


def test_an_image_that_speaks_another_protocol(
    sparring: Sparring, engine: Engine, build_image: BuildImage, tmp_path: Path
) -> None:
    image = build_image(
        "foreign",
        "USER root",
        "RUN sed -i 's/^\\(WORK_PROTOCOL_VERSION\\) = .*/\\1 = 99/' /opt/sparring/sparring/protos/__init__.py",
        "USER sparring",
    )
    done = sparring(*BASE, "--image", f"toy={image}")
    assert done.returncode == 1
    assert f"the worker speaks protocol version 99, this orchestrator {WORK_PROTOCOL_VERSION}" in done.stderr
    assert image in done.stderr
    assert "sparring resume out" in done.stderr
    assert containers(engine, tmp_path) == []


def test_an_image_that_is_no_worker(
    sparring: Sparring, engine: Engine, build_image: BuildImage, tmp_path: Path
) -> None:
    no_program = build_image("empty", "ENTRYPOINT []")
    done = sparring(*BASE, "--image", f"toy={no_program}")
    assert done.returncode == 1
    assert f"the image {no_program!r} is not a Sparring worker" in done.stderr
    another = build_image("another", 'ENTRYPOINT ["sh", "-c", "exec sparrow"]')
    done = sparring(*BASE, "--image", f"toy={another}")
    assert done.returncode == 1
    assert f"the image {another!r} is not a Sparring worker" in done.stderr
    assert "sparrow: not found" in done.stderr
    a_shell = build_image("shell", 'ENTRYPOINT ["sh"]')
    done = sparring(*BASE, "--image", f"toy={a_shell}")
    assert done.returncode == 1
    assert "cannot open worker" in done.stderr
    assert f"The image is {a_shell!r}: is it a Sparring worker of this release?" in done.stderr
    assert containers(engine, tmp_path) == []


def test_a_policy_that_containers_cannot_reach_is_told_at_once(start_sparring: StartSparring, toy_image: str) -> None:
    server = start_sparring("serve", "--policy", "toy_policies:Wanderer", "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    address = json.loads(server.stdout.readline())["listening"][0]
    run = start_sparring(
        "run", *NO_POLICY, "--policy-server", address, "--launcher", "docker", "--image", f"toy={toy_image}"
    )
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 2
    assert f"the policy server at {address} cannot be reached from containers" in errors
    assert "--listen 0.0.0.0:" in errors


@pytest.mark.parametrize("listen", ["0.0.0.0", "unix"])
def test_a_policy_from_elsewhere(
    listen: str, start_sparring: StartSparring, toy_image: str, calm: Path, tmp_path: Path
) -> None:
    port = free_port()
    folder = tmp_path / "policy"
    folder.mkdir()
    where = f"0.0.0.0:{port}" if listen != "unix" else f"unix://{folder}/policy.sock"
    token = [] if listen == "unix" else [str(write_secret(tmp_path / "token", "open-sesame-open-sesame"))]
    serve = ("serve", "--policy", "toy_policies:Wanderer", "--listen", where)
    server = start_sparring(*serve, *(f"--token-file={file}" for file in token))
    assert server.stdout is not None
    server.stdout.readline()
    if listen == "unix":  # the user's own socket: who may use it is the user's to say
        tmp_path.chmod(0o755)
        (folder / "policy.sock").chmod(0o666)
    address = where if listen == "unix" else f"localhost:{port}"
    run = start_sparring(
        "run", *NO_POLICY, "--policy-server", address, "--launcher", "docker", "--image", f"toy={toy_image}",
        "--output", "out", *(f"--policy-token-file={file}" for file in token),
    )  # fmt: skip
    _, errors = run.communicate(timeout=100)
    assert run.returncode == 0, errors
    assert read_csv(tmp_path / "out") == read_csv(calm)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--worker-connection", "tcp", "--listen", "127.0.0.1:50099"], "cannot be reached from containers"),
        (["--worker-memory", "lots"], "--worker-memory: must be auto or an amount of at least 16m"),
        (["--image", "metaworld=x"], "--image names 'metaworld', which is not part of this run"),
        (["--launcher", "process", "--worker-memory", "1g"], "--worker-memory goes with --launcher docker"),
    ],
)
def test_settings_that_cannot_be(flags: list[str], sentence: str, sparring: Sparring, toy_image: str) -> None:
    image = [] if "process" in flags else ["--image", f"toy={toy_image}"]
    done = sparring(*BASE, *image, *flags)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_policy_server_with_tls_at_localhost_is_nobody_to_containers(sparring: Sparring, toy_image: str) -> None:
    run = ("run", "--benchmark", "toy", "--task", "short", "--launcher", "docker", "--image", f"toy={toy_image}")
    done = sparring(*run, "--policy-server", "tls://localhost:50051", "--output", "out")
    assert done.returncode == 2
    assert "give the name by which this machine is reached" in " ".join(done.stderr.split())
