"""When something is tried again, and when it is given up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from sparring.orchestrator.launchers.base import LaunchFailed
from sparring.orchestrator.launchers.keep_alive import Death, keep_worker
from sparring.orchestrator.retry import RetriedKind, RetryRules
from sparring.policy_server.policies.base import Instruction
from sparring.policy_server.policies.replay import ReplayPolicy
from sparring.protos.errors import UsageError
from sparring.protos.record import ErrorKind
from sparring.protos.spec import Offer


def test_the_defaults_are_those_of_the_first_release() -> None:
    rules = RetryRules()
    assert [rules.tries_again("simulator", errors_before=n) for n in range(5)] == [True] * 3 + [False] * 2
    assert next(n for n in range(25) if rules.gives_up_lost(n)) == 20
    assert next(n for n in range(5) if rules.gives_up_unreachable(n)) == 2
    assert next(n for n in range(9) if rules.gives_up_workers(n)) == 5
    assert next(n for n in range(9) if rules.gives_up_policy_server(n)) == 6
    assert [rules.pause(n) for n in (0, 1, 5, 6)] == [0.2, 0.4, 6.4, 10.0]


def test_a_kind_of_error_can_have_a_rule_of_its_own() -> None:
    rules = RetryRules(retries=1, retries_of={"policy": 0, "limit": 2})
    assert [rules.tries_again(kind, errors_before=0) for kind in ("policy", "limit", "simulator")] == [
        False,
        True,
        True,
    ]
    assert [rules.tries_again(kind, errors_before=1) for kind in ("policy", "limit", "simulator")] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(("episode", "said"), [(0, "the seed 7, and this one has 8"), (1, "has no actions")])
def test_a_recording_of_another_episode_is_not_tried_again(episode: int, said: str, tmp_path: Path) -> None:
    about = json.dumps({"benchmark": "toy", "task": "short", "index": 0, "seed": 7}).encode()
    np.savez(tmp_path / "0000.npz", actions=np.zeros((3, 1)), about=np.frombuffer(about, np.uint8))
    offer = Offer({}, action_low=(-1.0,), action_high=(1.0,))
    task = Instruction("go", name="short", benchmark="toy", episode=episode, offer=offer)
    with pytest.raises(UsageError, match=said) as raised:
        ReplayPolicy(file=str(tmp_path)).new_session(task, 8)
    assert not RetryRules().tries_again("policy", str(raised.value), errors_before=0)
    assert RetryRules().tries_again(
        "policy", "the policy's act() raised ValueError: the recording of it", errors_before=0
    )


def test_every_kind_but_a_loss_can_have_one() -> None:
    assert {*get_args(RetriedKind), "", "lost"} == set(get_args(ErrorKind))


class _Dies:
    """A worker that is dead as soon as it was started. Real ones take seconds to die."""

    log = Path("worker.log")

    def __init__(self, code: int = 1) -> None:
        self._code = code

    async def wait(self) -> Death:
        return Death(self._code)

    async def end(self) -> None:
        pass

    def last_words(self) -> str:
        return "my last words"


def kept(rules: RetryRules, *, fruitful: int = 0, code: int = 1) -> list[str]:
    """The workers that are started, of which the first few deliver results, until the keeper gives up."""
    started: list[str] = []

    async def start(name: str) -> _Dies:
        started.append(name)
        return _Dies(code)

    def results_of(name: str) -> int:
        return int(int(name.rpartition("-")[2]) < fruitful)

    with pytest.raises(LaunchFailed, match="my last words"):
        asyncio.run(keep_worker("toy", start, rules=rules, results_of=results_of))
    return started


def test_workers_that_die_without_a_result_are_replaced_so_often_and_no_more() -> None:
    assert kept(RetryRules(worker_deaths=3, first_pause=0.0)) == ["toy-0", "toy-1", "toy-2"]


def test_a_result_makes_up_for_the_deaths_before_it() -> None:
    assert len(kept(RetryRules(worker_deaths=3, first_pause=0.0), fruitful=4)) == 4 + 3


def test_a_worker_that_was_wrongly_started_is_not_replaced() -> None:
    assert kept(RetryRules(worker_deaths=3, first_pause=0.0), code=2) == ["toy-0"]


def test_what_comes_again_every_time_is_not_tried_again() -> None:
    rules = RetryRules()
    missing = "the policy's act() raised ModuleNotFoundError: No module named 'wheels'"
    assert not rules.tries_again("policy", missing, errors_before=0)
    undrawn = "the simulator raised DependencyNotInstalled: pygame is not installed"
    assert not rules.tries_again("simulator", undrawn, errors_before=0)
    assert rules.tries_again("policy", "the policy's act() raised ValueError: ImportError", errors_before=0)
