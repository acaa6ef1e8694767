"""`evaluate()` with workers that stay: what is the same whichever evaluation they have played before."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from pathlib import Path
from typing import Any

import psutil
import pytest
from toy_policies import Forward, WantsTooMuch

from sparring import Evaluator
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError

TOY: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 4, "slots": 2}


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_policy_that_would_end_the_program_ends_nothing(warm: Evaluator, kind: type[BaseException]) -> None:
    """Such exceptions end event loops, and then a call would wait for ever."""

    class Quits(Forward):
        def warm_up(self) -> None:
            raise kind("enough")

    with pytest.raises(UsageError, match=f"failed in its warm-up: {kind.__name__}: enough"):
        warm.evaluate(Quits(), **TOY)
    assert warm.evaluate(Forward(), **TOY).overall.successes == 8


def test_a_policy_that_does_not_fit_is_refused_and_the_next_one_is_not(warm: Evaluator) -> None:
    with pytest.raises(UsageError, match="depth"):
        warm.evaluate(WantsTooMuch(), **TOY)
    assert warm.evaluate(Forward(), **TOY).overall.successes == 8


def test_inside_a_running_event_loop(warm: Evaluator) -> None:
    async def cell() -> Results:  # as a notebook runs its cells
        return warm.evaluate(Forward(), **TOY)

    assert asyncio.run(cell()).overall.successes == 8


def test_the_policy_is_let_go_after_the_call(warm: Evaluator) -> None:
    policy = Forward()
    warm.evaluate(policy, **TOY)
    gone = weakref.ref(policy)
    del policy
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("setting", ["metrics", "listen"])
def test_a_taken_port_leaves_nothing_listening(warm: Evaluator, setting: str) -> None:
    warm.evaluate(Forward(), **TOY)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = _listening()
        for _ in range(2):
            with pytest.raises(UsageError, match="taken"):
                warm.evaluate(Forward(), **TOY, **{setting: f"127.0.0.1:{taken.getsockname()[1]}"})
        assert _listening() <= before


def _listening() -> set[Any]:
    return {c.laddr for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN}


def test_an_output_folder_is_for_one_call(warm: Evaluator, tmp_path: Path) -> None:
    warm.evaluate(Forward(), **TOY, output=tmp_path / "out")
    with pytest.raises(UsageError, match="folder of its own"):
        warm.evaluate(Forward(), **TOY, output=tmp_path / "out")


def test_a_call_that_never_came_to_a_run_leaves_no_folder(warm: Evaluator, tmp_path: Path) -> None:
    class Cold(Forward):
        def warm_up(self) -> None:
            raise RuntimeError("not yet")

    (tmp_path / "mine").mkdir()
    for output in (tmp_path / "new", tmp_path / "mine"):
        with pytest.raises(UsageError, match="not yet"):
            warm.evaluate(Cold(), **TOY, output=output)
        assert warm.evaluate(Forward(), **TOY, output=output).overall.successes == 8
