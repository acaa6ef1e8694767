"""What a worker makes of its surroundings: addresses that mean another machine, and memory that ran out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.env_worker.worker.addresses import from_here, to_dial
from sparring.env_worker.worker.memory import OomWatch
from sparring.protos.net.address import Address

ADDRESSES = [
    "unix:///tmp/p.sock",
    "127.0.0.1:1",
    "localhost:2",
    "0.0.0.0:3",
    "[::1]:4",
    "[::]:5",
    "gpu-box:6",
    "10.0.0.1:7",
]


def seen(orchestrator: str) -> list[str]:
    return [str(address) for address in from_here(map(Address.parse, ADDRESSES), Address.parse(orchestrator))]


def test_on_the_orchestrators_machine_addresses_are_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARRING_HOST", raising=False)
    assert seen("unix:///tmp/work.sock") == ADDRESSES


def test_every_interface_means_the_machine_that_was_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARRING_HOST", raising=False)
    expected = [*ADDRESSES[:3], "box:3", "[::1]:4", "box:5", *ADDRESSES[6:]]
    assert seen("box:50052") == expected


def test_nobody_is_told_to_dial_every_interface() -> None:
    told = [str(to_dial(Address.parse(address))) for address in ADDRESSES]
    assert told == [*ADDRESSES[:3], "HOST:3", "[::1]:4", "HOST:5", *ADDRESSES[6:]]


def test_in_a_container_localhost_is_the_machine_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARRING_HOST", "host")
    expected = [ADDRESSES[0], "host:1", "host:2", "host:3", "host:4", "host:5", *ADDRESSES[6:]]
    assert seen("unix:///tmp/work.sock") == expected


def cgroup(folder: Path, version: int, kills: int, limit: str) -> Path:
    if version == 2:
        (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 9\noom 3\noom_kill {kills}\noom_group_kill 0\n")
        (folder / "memory.max").write_text(f"{limit}\n")
    else:
        (folder / "memory").mkdir(exist_ok=True)
        (folder / "memory" / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        (folder / "memory" / "memory.limit_in_bytes").write_text(f"{limit}\n")
    return folder


@pytest.mark.parametrize("version", [1, 2])
def test_each_kill_for_lack_of_memory_is_blamed_once(version: int, tmp_path: Path) -> None:
    watch = OomWatch(cgroup(tmp_path, version, 1, str(3 * 2**30)))
    assert watch.blame() == "", "what was before is nobody's now"
    cgroup(tmp_path, version, 3, str(3 * 2**30))
    assert "out of memory (OOM) at the worker's limit of 3.0 GiB" in watch.blame()
    assert "OOM" in watch.blame()
    assert watch.blame() == "", "a third death was somebody's deed"


def test_without_a_limit_or_a_control_group_nothing_is_blamed(tmp_path: Path) -> None:
    assert OomWatch(tmp_path).blame() == ""
    watch = OomWatch(cgroup(tmp_path, 1, 0, "9223372036854771712"))
    cgroup(tmp_path, 1, 1, "9223372036854771712")
    assert watch.blame() == ""
    watch = OomWatch(cgroup(tmp_path, 2, 0, "max"))
    cgroup(tmp_path, 2, 1, "max")
    assert watch.blame() == ""
