"""A slot that waits for the policy does not stall: it says so now and then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support import Sparring, read_csv, wait_for

from sparring.env_worker.worker.waiting import PolicyWait


def test_while_it_is_waited_for_it_is_said_and_not_otherwise() -> None:
    told: list[float] = []
    wait = PolicyWait(lambda: told.append(time.monotonic()), 60.0, every=0.02)
    time.sleep(0.1)
    assert told == [], "nobody waits"
    with wait.begun():
        wait_for(lambda: len(told) >= 2)
    time.sleep(0.05)
    before = len(told)
    time.sleep(0.1)
    assert len(told) == before, "nobody waits any more"


def test_who_is_never_done_with_one_wait_is_not_heard_of_any_more() -> None:
    told: list[float] = []
    wait = PolicyWait(lambda: told.append(time.monotonic()), 0.1, every=0.02)
    with wait.begun():
        time.sleep(0.3)
        before = len(told)
        time.sleep(0.1)
        assert len(told) == before


@pytest.mark.processes
def test_a_policy_that_takes_longer_than_a_simulator_may_is_no_stall(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(
        "run", "--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--policy-arg", "seconds=6",
        "--episodes", "1", "--max-steps", "1", "--retries", "0", "--stall-timeout", "4", "--output", "o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [row["error_kind"] for row in read_csv(tmp_path / "o")] == [""]
