"""What a worker's container is made of follows from the settings. Needs the docker package, and no engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.env_worker.benchmark import Assets
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.launchers.base import WorkerOrder
from sparring.orchestrator.launchers.docker.container_spec import ASSETS_VOLUME, ContainerSpec
from sparring.orchestrator.launchers.docker.engine import OWNER_LABEL, RUN_LABEL, WORKER_LABEL, Image
from sparring.orchestrator.launchers.docker.launcher import DockerLauncher
from sparring.orchestrator.launchers.docker.route import Route
from sparring.orchestrator.machine.owner import owner
from sparring.orchestrator.retry import DEFAULT_RULES
from sparring.orchestrator.settings import read_settings
from sparring.protos.net.address import Address

pytest.importorskip("docker.types", reason="the docker package is not installed")

IMAGE = Image("sparring/toy:1", 1, {}, {}, "")
UNIX = Route("unix", None, needs_name=False, folders=())
GIB = 2**30


def made_of(route: Route = UNIX, image: Image = IMAGE, **settings: Any) -> dict[str, Any]:
    return spec_of(route, image, **settings).options("toy-0")


def spec_of(route: Route = UNIX, image: Image = IMAGE, **settings: Any) -> ContainerSpec:
    run = read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "launcher": "docker", **settings})
    order = WorkerOrder(
        run=run,
        folder=Path("/run"),
        slots={"toy": 2},
        orchestrator=Address.parse("unix:///sockets/work.sock"),
        public=Address.parse("127.0.0.1:5555"),
        sockets=Path("/sockets"),
        logs=Path("/run/logs"),
        rules=DEFAULT_RULES,
        results_of=lambda worker: 0,
        explain=lambda worker, reason: None,
        join_token="the-secret-of-this-run",
    )
    return ContainerSpec(DockerLauncher().own(run), "toy", image, route, order, "/run")


def test_limits_are_by_slot_unless_they_are_set() -> None:
    options = made_of()
    assert (options["mem_limit"], options["memswap_limit"], options["pids_limit"]) == (4 * GIB, 4 * GIB, 512)
    options = made_of(worker_memory="1.5g", worker_pids=77)
    assert (options["mem_limit"], options["memswap_limit"], options["pids_limit"]) == (1.5 * GIB, 1.5 * GIB, 77)


def test_it_has_no_rights_and_says_whose_it_is() -> None:
    options = made_of()
    assert (options["cap_drop"], options["read_only"], options["user"]) == (["ALL"], True, "10001:10001")
    assert made_of(image=Image("x", 1, {}, {}, "me"))["user"] is None, "the image's own"
    assert options["labels"] == {RUN_LABEL: "/run", WORKER_LABEL: "toy-0", OWNER_LABEL: owner()}


def test_gpus_are_given_when_asked_for() -> None:
    assert made_of()["device_requests"] is None
    options = made_of(worker_gpus="all")
    assert options["device_requests"][0]["Count"] == -1
    assert options["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "all"


def test_it_dials_the_socket_that_it_is_shown_or_this_machine() -> None:
    options = made_of()
    assert "--orchestrator=unix:///sockets/work.sock" in options["command"]
    assert [mount["Source"] for mount in options["mounts"]] == ["/sockets"]
    options = made_of(Route("tcp", None, needs_name=True, folders=(Path("/policy"),)))
    assert "--orchestrator=host.docker.internal:5555" in options["command"]
    assert options["extra_hosts"] == {"host.docker.internal": "host-gateway"}
    assert [mount["Source"] for mount in options["mounts"]] == ["/policy"]
    assert options["command"][0] == "worker"
    assert {"--benchmark=toy", "--slots=2", "--name=toy-0"} < set(options["command"])


def test_who_needs_no_network_has_none() -> None:
    assert made_of()["network_mode"] == "none"
    assert made_of(policy=None, policy_server="unix:///policy/policy.sock")["network_mode"] == "none"
    assert made_of(policy=None, policy_server="gpu-box:50051")["network_mode"] is None
    assert made_of(Route("tcp", None, needs_name=True, folders=()))["network_mode"] is None


def test_what_is_mounted_from_this_machine_cannot_be_written() -> None:
    mounts = made_of(Route("unix", None, needs_name=False, folders=(Path("/policy"),)))["mounts"]
    assert [(mount["Source"], mount["ReadOnly"]) for mount in mounts] == [("/policy", True), ("/sockets", True)]


def test_assets_are_downloaded_by_one_container_and_read_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(get_benchmark("toy")), "assets", Assets("TOY_ASSETS"))
    worker, fetching = made_of(), spec_of().fetching()
    (volume,) = [mount for mount in worker["mounts"] if mount["Type"] == "volume"]
    assert (volume["Target"], volume["Source"], volume["ReadOnly"]) == ("/cache", ASSETS_VOLUME, True)
    assert worker["network_mode"] == "none"
    (volume,) = fetching["mounts"]
    assert (volume["Target"], volume["Source"], volume["ReadOnly"]) == ("/cache", ASSETS_VOLUME, False)
    assert "network_mode" not in fetching
    assert fetching["command"] == ["fetch", "toy", "--settings={}"]
    assert (fetching["cap_drop"], fetching["read_only"], fetching["user"]) == (["ALL"], True, "10001:10001")
    named = made_of(assets=Path("/srv/assets"))
    assert [mount["Source"] for mount in named["mounts"]] == ["/sockets", "/srv/assets"]
    assert not spec_of(assets=Path("/srv/assets")).downloads


def test_the_engines_copy_of_what_it_says_is_limited() -> None:
    assert made_of()["log_config"]["Config"] == {"max-size": "50m", "max-file": "2"}
