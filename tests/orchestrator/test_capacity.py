"""How much of a machine is used without being asked: what cores, containers, Slurm and memory leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparring.orchestrator.machine.capacity import Capacity, capacity
from sparring.orchestrator.settings import read_settings, run

GIB = 2**30


@pytest.mark.parametrize(
    ("cores", "memory", "episodes", "slots"),
    [
        (1, None, 100, 1),
        (2, None, 100, 2),  # on a small machine, all
        (4, None, 100, 4),
        (5, None, 100, 4),  # never fewer than on a smaller one
        (10, None, 100, 7),
        (10, None, 3, 3),
        (200, None, 999, 64),
        (10, 5 * GIB, 100, 5),
        (10, GIB // 2, 100, 1),
    ],
)
def test_slots(cores: int, memory: int | None, episodes: int, slots: int) -> None:
    assert Capacity(cores, memory).slots(episodes) == slots


@pytest.mark.parametrize(
    ("cores", "why"),
    [
        (1, "one for the only core that may be used here"),
        (2, "one for each of the 2 cores that may be used here"),
        (10, "0.7 of the 10 cores that may be used here"),
    ],
)
def test_the_reason_is_a_sentence_for_any_number_of_cores(cores: int, why: str) -> None:
    assert Capacity(cores).reason(100) == why


@pytest.mark.parametrize(
    ("cores", "memory", "episodes", "slots", "why"),
    [
        (1, None, 100, 3, "3 for the only core that may be used here"),
        (2, None, 100, 6, "3 for each of the 2 cores"),
        (10, None, 100, 30, "3 for each of the 10 cores"),
        (10, 5 * GIB, 100, 5, "GiB of memory"),
        (10, None, 3, 3, "one for each episode"),
        (200, None, 999, 64, "the most that are taken"),
    ],
)
def test_slots_that_wait_for_a_policy_elsewhere_share_cores(
    cores: int, memory: int | None, episodes: int, slots: int, why: str
) -> None:
    here = Capacity(cores, memory)
    assert here.slots(episodes, elsewhere=True) == slots
    assert why in here.reason(episodes, elsewhere=True)


def test_more_slots_than_the_policy_takes_would_only_wait() -> None:
    here = Capacity(10)
    assert here.slots(100, elsewhere=True, sessions=4) == 4
    assert here.reason(100, elsewhere=True, sessions=4) == "the policy takes no more than 4 at once"
    assert here.slots(100, elsewhere=True, sessions=256) == here.slots(100, elsewhere=True) == 30


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    # This machine has as many cores as it has: here a kernel is asked that allows four.
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 3, 5})


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("files", "environment", "found"),
    [
        ({}, {}, Capacity(4)),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"}, {}, Capacity(4, 2 * 2**20)),
        ({}, {"SLURM_CPUS_PER_TASK": "2", "SLURM_CPUS_ON_NODE": "32"}, Capacity(2)),
        ({}, {"SLURM_CPUS_ON_NODE": "3"}, Capacity(3)),
        ({}, {"SLURM_CPUS_PER_TASK": "many"}, Capacity(4)),
        # Version 2, two and a half cores of the group around ours, no limit of its own.
        (
            {
                "proc/self/cgroup": "0::/job/step\n",
                "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
                "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
                "sys/fs/cgroup/job/step/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/job/step/memory.current": f"{2 * GIB}\n",
                "sys/fs/cgroup/job/step/memory.stat": f"anon 5\ninactive_file {GIB}\n",
            },
            {},
            Capacity(2, 3 * GIB),
        ),
        # Version 1, as older engines have it, where no limit is a huge number.
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": "1\n",
            },
            {},
            Capacity(1),
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense"}, {}, Capacity(4)),
    ],
)
def test_what_may_be_used(tmp_path: Path, files: dict[str, str], environment: dict[str, str], found: Capacity) -> None:
    assert capacity(write(tmp_path, files), environment) == found


@pytest.mark.parametrize(("launcher", "slots"), [("process", 1), ("none", 2)])
def test_a_small_container_of_the_orchestrator_makes_no_other_workers_small(
    launcher: str, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "capacity", lambda: Capacity(2, GIB + GIB // 2))
    settings = read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "launcher": launcher})
    assert settings.slot_count(100) == slots
    assert ("memory" in settings.slot_reason(100)) == (launcher == "process")


def test_this_machine() -> None:
    here = capacity()
    assert 1 <= here.cores <= (os.cpu_count() or 1)
    assert here.memory is None or here.memory > 0
