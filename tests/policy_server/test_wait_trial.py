"""Which way batches are made: with waiting or without, whichever makes more answers per second, as it turns out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from sparring.policy_server.wait_trial import _LONGEST, _LOOKS, _SETTLING, WaitTrial

Rate = Callable[[bool], float]


class Server:
    """Passes of one row after the other, at a rate that depends on whether batches may wait."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.trial = WaitTrial()
        self.now = 0.0
        self.turns: list[tuple[bool, int]] = []

    def passes(self, count: int, *, sessions: int = 4, idle: float = 0.0) -> float:
        """Returns in which share of so many passes batches could wait."""
        waited = 0
        for _ in range(count):
            waited += self.trial.waits
            if not self.turns or self.turns[-1][0] != self.trial.waits:
                self.turns.append((self.trial.waits, 0))
            self.turns[-1] = self.trial.waits, self.turns[-1][1] + 1
            arrived = self.now + idle
            self.now = arrived + 1 / self.rate(self.trial.waits)
            self.trial.passed(1, self.now, arrived=arrived, sessions=sessions)
        return waited / count


@pytest.mark.parametrize(("gain", "waits"), [(1.05, True), (0.95, False), (1.0, False)])
def test_the_better_way_is_kept_and_the_other_one_tried_now_and_then(gain: float, waits: bool) -> None:
    server = Server(lambda waits: gain if waits else 1.0)
    assert not server.trial.waits, "nothing is known yet"
    server.passes(500)
    share = server.passes(5000)
    assert (share if waits else 1 - share) > 0.9
    assert 0 < share < 1
    lengths = [count for way, count in server.turns[:-1] if way == waits]
    assert lengths[:-1] == sorted(lengths[:-1]), "the longer it holds, the less often it is doubted"
    assert max(lengths) == 4 * (_SETTLING + _LONGEST * _LOOKS), "and that has an end"


def test_what_changes_is_noticed() -> None:
    gains = [1.3]
    server = Server(lambda waits: gains[0] if waits else 1.0)
    server.passes(1000)
    assert server.passes(2000) > 0.85
    gains[0] = 0.7
    server.passes(4000)
    assert server.passes(2000) < 0.15


def test_what_was_learned_of_few_sessions_is_nothing_to_many() -> None:
    server = Server(lambda waits: 1.3 if waits else 1.0)
    server.passes(1000, sessions=4)
    server.passes(5, sessions=5)
    waits, turns = server.trial.waits, len(server.turns)
    server.passes(5, sessions=16)
    assert server.trial._gain == 0.0, "all is tried anew"
    assert (server.trial.waits, len(server.turns)) == (waits, turns), "in the turn that it is"


def test_a_pause_is_held_against_no_way() -> None:
    """Nobody asks while simulators are made, which happens in any turn."""
    server = Server(lambda waits: 1.3 if waits else 1.0)
    for _ in range(300):
        server.passes(9)
        server.passes(1, idle=50.0)
    assert server.trial._gain == pytest.approx(math.log(1.3))
