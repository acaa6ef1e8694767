"""What the scheduler does for one message does not grow with slots, leases and episodes: counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.run.scheduler import Scheduler, SlotId
from sparring.protos.record import EpisodeRecord

DONE = EpisodeRecord(outcome="success")


def lines_of(work: Callable[[], None]) -> int:
    """How many lines of Python were run; comprehensions count once for each element."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines


def cost(slots: int, episodes: int) -> int:
    """Of one result and the next lease, with so many slots at work on one of four tasks."""
    tasks = [Task(f"task-{number}", "Go", "all") for number in range(4)]
    scheduler = Scheduler(Plan({"toy": tasks}, episodes=episodes, seed=0))
    busy = [SlotId("toy", f"w{number}", 0) for number in range(slots)]
    leases = {slot: scheduler.lease(slot) for slot in busy}

    def one() -> None:
        lease = leases[busy[0]]
        assert lease is not None
        scheduler.finish(lease.number, DONE)
        assert scheduler.unfinished
        assert scheduler.lease(busy[0]) is not None

    return lines_of(one)


def test_neither_slots_nor_episodes_make_a_message_dearer() -> None:
    few = cost(slots=4, episodes=10)
    assert cost(slots=400, episodes=1000) <= few + 5
