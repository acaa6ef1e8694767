"""Which cluster a process is part of, and what is left of a launch that is called off: with a made-up Ray.

A real one is in tests/ray_cluster: it cannot be slow, or have a head on another machine, when a test wants that.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sparring.orchestrator.launchers.ray import cluster, launcher
from sparring.orchestrator.launchers.ray.settings import RaySettings, request_for
from sparring.protos.errors import UsageError


class MadeUpRay(SimpleNamespace):
    """A process that is connected to a head, or will be."""

    def __init__(self, head: str, *, connected: bool = True) -> None:
        self.connected = connected
        super().__init__(
            is_initialized=lambda: self.connected,
            get_runtime_context=lambda: SimpleNamespace(gcs_address=head),
            job_config=SimpleNamespace(JobConfig=lambda **_: None),
        )

    def init(self, **_: Any) -> None:
        self.connected = True


@pytest.mark.parametrize(
    ("head", "address", "same"),
    [
        ("192.0.2.1:6379", "192.0.2.1:6379", True),
        ("192.0.2.1:6379", "auto", True),
        ("192.0.2.1:6379", "192.0.2.2:6379", False),
        ("192.0.2.1:6379", "192.0.2.1:6380", False),
        ("127.0.0.1:6379", "localhost:6379", True),
        ("127.0.0.1:6379", "127.0.0.2:6379", True),  # this machine, too
        ("127.0.0.1:6379", "192.0.2.1:6379", False),
    ],
)
def test_another_cluster_is_not_taken_for_the_one_that_was_named(
    monkeypatch: pytest.MonkeyPatch, head: str, address: str, same: bool
) -> None:
    monkeypatch.setattr(cluster, "ray_package", lambda: MadeUpRay(head))
    monkeypatch.setattr(cluster, "_joined", {})
    if same:
        assert cluster.connect(address, "job") == head.partition(":")[0]
    else:
        with pytest.raises(UsageError, match=f"part of the Ray cluster at {head} already"):
            cluster.connect(address, "job")


@pytest.mark.parametrize(("named", "variable"), [("ray://head:10001", ""), ("auto", "ray://head:10001")])
def test_rays_client_is_told_to_come_to_a_node_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch, named: str, variable: str
) -> None:
    monkeypatch.setattr(cluster, "ray_package", lambda: MadeUpRay("192.0.2.1:6379", connected=False))
    monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(UsageError, match="is an address for Ray's client"):
        cluster.connect(named, "job")


def test_a_head_that_names_itself_otherwise_is_known_by_where_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeUpRay("192.0.2.1:6379", connected=False)
    monkeypatch.setattr(cluster, "ray_package", lambda: made)
    monkeypatch.setattr(cluster, "_joined", {})
    monkeypatch.setattr(cluster, "_knock", lambda address: None)
    for _ in range(2):
        assert cluster.connect("198.51.100.7:6379", "job") == "192.0.2.1"


def test_a_placement_group_that_is_called_off_while_it_is_made_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[str] = []
    asked, answers = threading.Event(), threading.Event()

    def make(bundles: Any, *, strategy: str, name: str) -> str:
        asked.set()
        assert answers.wait(60)
        groups.append(name)
        return name

    module: Any = ModuleType("ray.util.placement_group")
    module.placement_group, module.remove_placement_group = make, groups.remove
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.util", ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.placement_group", module)
    place = launcher._Place("toy", 0, 4, request_for(RaySettings(ray={"placement": "PACK"}), "toy", ["toy"]))

    async def launch() -> None:
        order: Any = SimpleNamespace(folder=tmp_path)
        async with launcher._group_for([place], order):
            raise AssertionError

    async def play() -> None:
        launching = asyncio.create_task(launch())
        assert await asyncio.to_thread(asked.wait, 20)
        launching.cancel()
        await asyncio.sleep(0)
        answers.set()
        await asyncio.wait([launching], timeout=60)
        assert launching.cancelled()
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(play())
    assert groups == []
