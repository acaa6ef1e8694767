"""Traces: what came of every step, to the bit, and where two of them part."""

from __future__ import annotations

import numpy as np
import pytest

from sparring.protos.action_list import UnreadableActions, pack
from sparring.protos.trace import Trace, physics_number, success_number

TRACE = Trace([0.0, 0.1, -0.0, 1e300], [-1.0, 0.0, 0.0, 1.0], [0.5, 0.25, 1 / 3, 0.0])


def test_a_trace_comes_out_as_it_went_in() -> None:
    assert Trace.unpack(TRACE.pack()) == TRACE
    assert TRACE.steps == 3


@pytest.mark.parametrize(
    "content",
    [b"", TRACE.pack()[:-1], pack(np.zeros((2, 4))), pack(np.zeros((3, 4), np.float32)), pack(np.full((3, 4), np.nan))],
)
def test_what_is_no_trace_is_told(content: bytes) -> None:
    with pytest.raises(UnreadableActions):
        Trace.unpack(content)


@pytest.mark.parametrize("what", ["rewards", "successes", "physics"])
def test_the_first_difference_is_found_and_the_last_bit_is_one(what: str) -> None:
    now = Trace.unpack(TRACE.pack())
    numbers = getattr(now, what)
    numbers[2] = float(np.nextafter(numbers[2], 1.0))
    numbers[3] = 7.0
    found = TRACE.first_difference(now)
    assert found is not None
    assert (found.step, found.then, found.now) == (2, getattr(TRACE, what)[2], numbers[2])
    assert TRACE.first_difference(Trace.unpack(TRACE.pack())) is None


def test_elsewhere_numbers_may_be_a_little_apart_and_successes_not() -> None:
    now = Trace([0.0, 0.1 + 1e-9, 0.0, 1e300], [-1.0, 0.0, 0.0, 1.0], [0.5, 0.25 + 1e-5, 1 / 3, 0.0])
    assert TRACE.first_difference(now, tolerance=1e-6, far=1e-3) is None
    found = TRACE.first_difference(now, tolerance=1e-6, far=1e-6)
    assert found is not None
    assert (found.step, found.what) == (1, "physics")
    now.successes[2] = 1.0
    found = TRACE.first_difference(now, tolerance=1e-6, far=1e-3)
    assert found is not None
    assert (found.step, found.what) == (2, "success")


def test_one_number_tells_any_change_of_positions() -> None:
    state = np.random.default_rng(0).normal(size=40)
    number = physics_number(state)
    assert physics_number(state.copy()) == number
    for place in range(40):
        moved = state.copy()
        moved[place] += 1e-9
        assert physics_number(moved) != number
    assert physics_number(state[::-1]) != number, "what has changed places is not seen"
    assert abs(physics_number(state + 1e-12) - number) < 1e-9
    assert physics_number(None) == physics_number(np.empty(0)) == physics_number(np.array([np.inf])) == 0.0
    assert [success_number(each) for each in (None, False, True)] == [-1.0, 0.0, 1.0]
