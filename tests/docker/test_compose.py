"""`docker compose up`, as the README has it, on a real engine."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import write_secret
from container_support import attack_from
from support import ROOT, Sparring, free_port

from sparring.orchestrator.launchers.docker.engine import Engine

pytestmark = pytest.mark.requires("docker")

Compose = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def compose(images: dict[str, str], tmp_path: Path) -> Iterator[Compose]:
    """Runs `docker compose` with variables, as a project of the test's own that is gone after it."""
    project = f"sparring-test-{os.getpid()}"
    files: list[str] = []

    def run(*arguments: str, file: str = "compose.yaml", **variables: str) -> subprocess.CompletedProcess[str]:
        files.append(file)
        command = ["docker", "compose", "--project-name", project, "--file", str(ROOT / file), *arguments]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "SPARRING_OUTPUTS": str(tmp_path / "outputs"), **variables},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    yield run
    for file in set(files):
        run("--profile", "*", "down", "--volumes", "--timeout", "5", file=file)


def episodes(tmp_path: Path) -> list[dict[str, str]]:
    (folder,) = (tmp_path / "outputs").iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    with (folder / "episodes.csv").open() as file:
        return list(csv.DictReader(file))


UP = ("up", "--no-build", "--exit-code-from", "orchestrator")


def test_it_evaluates_the_expert_and_ends_with_the_runs_exit_code(compose: Compose, tmp_path: Path) -> None:
    done = compose(*UP, SPARRING_TASK="reach-v3,drawer-close-v3")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = episodes(tmp_path)
    assert [(row["task"], row["outcome"]) for row in rows] == [
        (task, "success") for task in ("drawer-close-v3", "reach-v3") for _ in range(2)
    ]
    made = (tmp_path / "outputs").stat()  # by Docker, for root
    assert (made.st_uid, made.st_gid, made.st_mode & 0o7022) == (10001, 10001, 0), "theirs, and nobody else may write"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can kill what is in a container past its engine")
def test_a_worker_and_a_policy_server_that_die_are_started_again(
    compose: Compose, engine: Engine, tmp_path: Path
) -> None:
    up = compose("up", "--no-build", "--detach", "--wait", SPARRING_TASK="reach-v3", SPARRING_EPISODES="100")
    assert up.returncode == 0, up.stderr
    project = {"filters": {"label": f"com.docker.compose.project=sparring-test-{os.getpid()}"}}
    running = {c.labels["com.docker.compose.service"]: c for c in engine.client.containers.list(**project)}
    assert "orchestrator" in running, "while it plays"
    for name in ("policy-server", "worker-metaworld"):
        # Past the engine, which starts nothing again that it was told to kill; all of it that listens or plays is gone.
        os.kill(running[name].attrs["State"]["Pid"], signal.SIGKILL)
    ended = running["orchestrator"].wait(timeout=300)
    assert ended["StatusCode"] == 0, running["orchestrator"].logs().decode()
    rows = episodes(tmp_path)
    assert [row["outcome"] for row in rows] == ["success"] * 100
    for name in ("policy-server", "worker-metaworld"):
        running[name].reload()
        assert running[name].attrs["RestartCount"] == 1, name


def test_a_hostile_worker_reaches_three_sockets_and_can_replace_none(
    compose: Compose, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "outputs").mkdir(mode=0o755)
    (tmp_path / "outputs").chmod(0o1777)  # as release 0.1 left it
    os.chown(tmp_path / "outputs", 4321, 4321)  # somebody's own folder
    (tmp_path / "token").write_text("hf_0123456789\n")
    (tmp_path / "token").chmod(0o644)
    up = compose("up", "--no-build", "--detach", "--wait", HF_TOKEN_FILE=str(tmp_path / "token"))
    assert up.returncode == 0, up.stderr
    project = {"filters": {"label": f"com.docker.compose.project=sparring-test-{os.getpid()}"}}
    running = {c.labels["com.docker.compose.service"]: c for c in engine.client.containers.list(**project)}
    policy, work = "/run/policy/policy.sock", "/run/work/work.sock"

    sockets = (policy, f"{policy}.frames", work)
    found = attack_from(running["worker-metaworld"], *sockets)
    assert [found.pop(f"connect {path}") for path in sockets] == ["done"] * 3
    assert (found.pop("interfaces"), found.pop("engine")) == (["lo"], False)
    assert set(found.pop("capabilities")) == {"0000000000000000"}
    assert {found.pop("root"), found.pop("others")} <= {"Operation not permitted", "Permission denied"}
    assert set(found.values()) == {"Read-only file system"}, found

    # The policy server has the hub's token, where nobody reads it by looking at the container; it does not have the
    # secret that workers join with. The orchestrator cannot replace the policy's socket either.
    server = running["policy-server"]
    assert "hf_0123456789" not in json.dumps(server.attrs)
    assert server.exec_run(["cat", "/run/secrets/hf_token"]).output == b"hf_0123456789\n"
    assert server.exec_run(["ls", "/run/work"]).exit_code != 0
    assert running["worker-metaworld"].exec_run(["ls", "/run/secrets"]).exit_code != 0
    assert attack_from(running["orchestrator"], policy)[f"unlink {policy}"] == "Read-only file system"

    outputs = (tmp_path / "outputs").stat()
    assert (outputs.st_uid, outputs.st_gid, outputs.st_mode & 0o7777) == (4321, 10001, 0o775), "still somebody's own"


@pytest.mark.requires("libero-assets")
def test_libero_with_its_assets_mounted(compose: Compose, tmp_path: Path, libero_assets: Path) -> None:
    done = compose(
        *UP,
        COMPOSE_PROFILES="libero",
        SPARRING_TASK="libero_goal/1",
        SPARRING_EPISODES="1",
        SPARRING_LIBERO_ASSETS=str(libero_assets),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(row["task"], row["outcome"]) for row in episodes(tmp_path)] == [("libero_goal/1", "success")]


def test_a_policy_beside_the_user_is_mounted_and_evaluated(compose: Compose, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "my_module.py").write_text(
        "import numpy as np\nfrom sparring import Policy, PolicySpec\n\n\nclass MyPolicy(Policy):\n"
        "    spec = PolicySpec([], action_dim=4, chunk_length=10)\n\n    def act(self, observations, states):\n"
        "        return [np.zeros((10, 4)) for _ in observations]\n"
    )
    mine = {"SPARRING_POLICIES": str(tmp_path / "mine"), "SPARRING_POLICY": "my_module:MyPolicy"}
    done = compose(*UP, SPARRING_TASK="reach-v3", SPARRING_EPISODES="1", SPARRING_ARGS="--max-steps 20", **mine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(row["outcome"], row["steps"]) for row in episodes(tmp_path)] == [("failure", "20")]


def test_a_policy_that_does_not_exist_ends_it_with_a_sentence(compose: Compose) -> None:
    done = compose(*UP, SPARRING_POLICY="no_such_module:Policy")
    assert done.returncode != 0
    assert "there is no module 'no_such_module' to take a policy from" in done.stdout + done.stderr


def test_a_profile_that_does_not_exist_ends_it_with_a_sentence(compose: Compose) -> None:
    done = compose(*UP, COMPOSE_PROFILES="libro", SPARRING_POLICY="zero")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "unknown benchmark 'libro'. Did you mean 'libero'?" in " ".join((done.stdout + done.stderr).split())


def test_nothing_runs_with_rights_it_does_not_need(compose: Compose) -> None:
    services = json.loads(compose("--profile", "*", "config", "--format", "json").stdout)["services"]
    workers = {"worker-metaworld", "worker-libero", "worker-pusht", "worker-aloha"}
    assert set(services) == {*workers, "orchestrator", "policy-server", "assets-libero", "volumes"}
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert service.get("privileged", False) is False, name
        networked = service.get("network_mode") != "none"
        assert networked == (name in ("policy-server", "assets-libero")), f"{name}: who downloads, and nobody else"
        assert int(service["mem_limit"]) > 0, name
        assert service["pids_limit"] > 0, name
        assert service["logging"]["options"] == {"max-size": "50m", "max-file": "2"}, name
        assert not service.get("ports"), name
        assert not any(
            "TOKEN" in variable and value
            for variable, value in service.get("environment", {}).items()
            if variable != "HF_TOKEN_PATH"
        ), name
        if name != "volumes":  # which only makes folders writable for the others
            assert service["user"] == "10001:10001", name
            assert service.get("cap_add") is None, name
        writable = {mount["target"] for mount in service["volumes"] if not mount.get("read_only")}
        if name in workers:
            assert writable == set(), "what others use"


def test_gpus_are_given_to_the_policy_server_and_to_rendering() -> None:
    command = ["docker", "compose", "-f", "compose.yaml", "-f", "compose.gpu.yaml", "--profile", "*", "config"]
    done = subprocess.run(
        [*command, "--format", "json"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    services = json.loads(done.stdout)["services"]
    for name in ("policy-server", "worker-metaworld", "worker-libero", "worker-aloha"):
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia", name
        assert ("graphics" in device["capabilities"]) == name.startswith("worker"), name
    assert "deploy" not in services["orchestrator"]


def test_a_hosted_policy_wants_its_token_and_speaks_tls(compose: Compose, tmp_path: Path, sparring: Sparring) -> None:
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "server.pem"))
    (tmp_path / "token").write_text("open-sesame-open-sesame\n")
    own = write_secret(tmp_path / "own-token", "open-sesame-open-sesame\n")  # the container's is for another user
    for name in ("token", "server.pem", "server.key"):
        (tmp_path / name).chmod(0o644)
    tmp_path.chmod(0o755)
    port = str(free_port())
    up = compose(
        "up",
        "--no-build",
        "--detach",
        "--wait",
        file="compose.hosting.yaml",
        SPARRING_PORT=port,
        SPARRING_TOKEN_FILE=str(tmp_path / "token"),
        SPARRING_TLS_CERT=str(tmp_path / "server.pem"),
        SPARRING_TLS_KEY=str(tmp_path / "server.key"),
    )
    assert up.returncode == 0, up.stderr
    run = ("run", "--benchmark=metaworld", "--task=reach-v3", "--episodes=1", f"--policy-server=localhost:{port}")
    done = sparring(*run, "--policy-ca=ca.pem", f"--policy-token-file={own}", "--output=out")
    assert done.returncode == 0, done.stderr
    refused = sparring(*run, "--policy-ca=ca.pem", "--output=out2")
    assert refused.returncode == 2
    assert "--policy-token-file" in refused.stderr
