"""What waiting for a fuller batch is worth: arithmetic on times that the tests make up."""

from __future__ import annotations

import gc

import pytest

from sparring.policy_server.batch_wait import BatchWait


class Slot:
    """Whoever asks."""


def learned(*passes: tuple[int, float], demand: int = 50) -> BatchWait:
    """One that has seen passes of these sizes and lengths, back to back, on a policy that is never idle."""
    wait = BatchWait()
    now = 0.0
    for _ in range(demand):
        for rows, seconds in passes:
            wait.passed(rows, now, now + seconds, arrived=now)
            now += seconds
    return wait


def answered(wait: BatchWait, count: int, *, at: float, usually: float) -> list[Slot]:
    """Sessions that take always the same time, and have just got an answer."""
    slots = [Slot() for _ in range(count)]
    for slot in slots:
        for turn in range(100):
            wait.answered(slot, at - 1000 + turn)
            wait.asked(slot, at - 1000 + turn + usually)
        wait.answered(slot, at)
    return slots


@pytest.mark.parametrize(
    ("passes", "cost"),
    [
        (((1, 0.03), (2, 0.04), (8, 0.10)), 0.02),  # 20 ms, and 10 ms a row
        (((1, 0.05), (8, 0.05)), 0.05),  # rows are free: padded batches
        (((1, 0.01), (8, 0.08)), 0.0),  # nothing is shared between rows
        (((1, 0.01), (8, 0.20)), 0.0),  # worse than that; a cost is never below zero
        (((1, 0.04), (8, 0.02)), 0.02),  # rubbish, but never more than the shortest pass
        (((4, 0.06),), 0.03),  # one size tells nothing; half of it is a guess
        ((), 0.0),
    ],
)
def test_the_fixed_cost_is_where_the_line_through_the_sizes_starts(
    passes: tuple[tuple[int, float], ...], cost: float
) -> None:
    assert learned(*passes).fixed_cost == pytest.approx(cost, abs=1e-9)


def test_a_slow_first_pass_is_forgotten() -> None:
    once = learned((1, 5.0), *[(1, 0.02)] * 3, (2, 9.0), *[(2, 0.03)] * 3, demand=1)  # compiled, tuned, cached
    assert once.fixed_cost == pytest.approx(0.01)


def test_those_who_come_back_soon_are_waited_for() -> None:
    wait = learned((1, 0.03), (8, 0.10))
    slots = answered(wait, 4, at=10.0, usually=0.002)
    assert wait.worth(4, 60, now=10.0) == pytest.approx(0.002, rel=0.05)
    assert wait.worth(4, 60, now=10.001) == pytest.approx(0.001, rel=0.1), "what has passed has passed"
    assert len(slots) == 4


def test_those_who_take_longer_than_a_pass_of_their_own_would_cost_are_not() -> None:
    wait = learned((1, 0.03), (8, 0.10))  # fixed: 20 ms
    slots = answered(wait, 1, at=10.0, usually=0.019)
    assert wait.worth(1, 63, now=10.0) == pytest.approx(0.019, rel=0.05), "the batch doubles, the cost nearly"
    assert wait.worth(2, 62, now=10.0) == 0, "half a batch more for nearly twice the cost"
    slots += answered(wait, 1, at=10.0, usually=0.05)
    assert wait.worth(1, 63, now=10.0) == pytest.approx(0.019, rel=0.05), "only for the first of the two"


def test_rows_that_share_nothing_are_never_waited_for() -> None:
    wait = learned((1, 0.01), (8, 0.08))
    slots = answered(wait, 4, at=10.0, usually=0.0001)
    assert wait.worth(4, 60, now=10.0) == 0
    assert slots


def test_a_policy_that_is_mostly_idle_waits_for_nobody() -> None:
    wait = learned((1, 0.03), (8, 0.10))
    slots = answered(wait, 1, at=100.0, usually=0.01)
    assert wait.worth(1, 63, now=100.0) > 0
    for second in range(20):  # 30 ms of work, then nothing for a second
        wait.passed(1, 50.0 + second, 50.03 + second, arrived=50.0 + second)
    assert wait.worth(1, 63, now=100.0) == 0
    assert slots


def test_nobody_is_waited_for_who_is_late_or_new_or_gone_or_has_no_room() -> None:
    wait = learned((1, 0.03), (8, 0.10))
    assert wait.worth(1, 63, now=10.0) == 0, "nobody is known"
    new = Slot()
    wait.answered(new, 10.0)
    assert wait.worth(1, 63, now=10.0) == 0, "its first answer: nobody knows how long it takes"
    slots = answered(wait, 1, at=10.0, usually=0.005)
    assert wait.worth(1, 63, now=10.0) > 0
    assert wait.worth(1, 0, now=10.0) == 0, "no room"
    assert wait.worth(1, 63, now=10.1) == 0, "late: its episode is over, or it died"
    wait.started(slots[0])
    assert wait.worth(1, 63, now=10.0) == 0, "it has begun another episode"
    wait.answered(slots[0], 10.0)
    assert wait.worth(1, 63, now=10.0) > 0
    slots.clear()
    gc.collect()
    assert wait.worth(1, 63, now=10.0) == 0, "its stream is gone"


def test_the_time_of_a_reset_is_not_taken_for_the_time_between_observations() -> None:
    wait = learned((1, 0.03), (8, 0.10))
    (slot,) = answered(wait, 1, at=10.0, usually=0.005)
    wait.started(slot)
    wait.asked(slot, 15.0)
    wait.answered(slot, 15.03)
    assert wait.worth(1, 63, now=15.03) == pytest.approx(0.005, rel=0.05)
