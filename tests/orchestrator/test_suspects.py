"""Which episode takes the policy server down: it is found, however many are in flight, and no other is blamed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparring.orchestrator.coordination.suspects import Suspects, Suspicion
from sparring.orchestrator.plan import EpisodeId


def episodes(count: int) -> list[EpisodeId]:
    return [EpisodeId("toy", "short", index) for index in range(count)]


def play(slots: int, queue: Sequence[EpisodeId], guilty: Sequence[EpisodeId]) -> tuple[list[EpisodeId], int]:
    """Plays a queue: the server crashes whenever a guilty one is in flight. Who was convicted, and how many crashes."""
    suspects = Suspects(most=5)
    waiting, convicted, crashes = list(queue), [], 0
    while waiting:
        allowed = [e for e in waiting if suspects.group is None or e in suspects.group]
        in_flight = allowed[:slots]
        assert in_flight, "somebody must be played"
        if not set(in_flight) & set(guilty):
            for episode in in_flight:
                waiting.remove(episode)
                suspects.ended(episode)
            continue
        crashes += 1
        finding: Suspicion = suspects.crashed(in_flight)
        assert finding in ("suspected", "narrowed", "convicted")
        if finding == "convicted":
            convicted += in_flight
            waiting.remove(in_flight[0])
    return convicted, crashes


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 64])
def test_the_guilty_one_is_found_wherever_it_is(slots: int) -> None:
    queue = episodes(70)
    for guilty in (0, 1, 5, 63, 69):
        convicted, crashes = play(slots, queue, [queue[guilty]])
        assert convicted == [queue[guilty]]
        assert crashes <= 2 + slots.bit_length()


@pytest.mark.parametrize("slots", [1, 4, 7])
def test_so_are_several(slots: int) -> None:
    queue = episodes(30)
    guilty = [queue[i] for i in (2, 3, 17, 29)]
    convicted, _ = play(slots, queue, guilty)
    assert sorted(convicted) == guilty


def test_a_crash_that_does_not_come_again_convicts_nobody() -> None:
    suspects = Suspects(most=5)
    one, two = episodes(2)
    assert suspects.crashed([one, two]) == "suspected"
    assert suspects.group == {one}
    suspects.ended(one)
    assert suspects.group == {two}
    suspects.ended(two)
    assert suspects.group is None


def test_one_that_is_alone_the_first_time_has_another_chance() -> None:
    suspects = Suspects(most=5)
    (one,) = episodes(1)
    assert suspects.crashed([one]) == "suspected"
    assert suspects.crashed([one]) == "convicted"


def test_with_nothing_in_flight_nobody_did_it() -> None:
    assert Suspects(most=5).crashed([]) == "nobody"


def test_where_every_episode_does_it_there_is_no_hope() -> None:
    suspects = Suspects(most=2)
    findings = [suspects.crashed([episode]) for episode in episodes(3) for _ in range(2)]
    assert findings == ["suspected", "convicted", "suspected", "convicted", "hopeless", "convicted"]
    suspects = Suspects(most=2)
    for episode in episodes(9):
        assert suspects.crashed([episode]) == "suspected"
        suspects.ended(episode)  # one came to an end: there is hope
