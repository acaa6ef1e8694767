"""A run of which nothing but errors comes, and one of them again and again, is stopped; no other run is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.run import error_limit
from sparring.orchestrator.run.error_limit import ErrorLimit
from sparring.orchestrator.run.errors import RunStopped
from sparring.protos.record import EpisodeRecord


def error(task: str, index: int, what: str = "boom") -> tuple[EpisodeId, EpisodeRecord]:
    said = f"policy 'm:P', {task} #{index}, step 0: ValueError: {what} at 0x7f{index:04x}"
    return EpisodeId("toy", task, index), EpisodeRecord.failed("policy", said)


def stopped_after(limit: ErrorLimit, attempts: Iterable[tuple[EpisodeId, EpisodeRecord]]) -> int | None:
    """Returns the number of the attempt that was one too many."""
    for number, (episode, record) in enumerate(attempts, 1):
        try:
            limit.heard(episode, record)
        except RunStopped:
            return number
    return None


def test_the_same_error_again_and_again_in_whatever_task() -> None:
    assert stopped_after(ErrorLimit(5), (error(f"task-{n}", n) for n in range(99))) == 5


def test_the_sentence_says_what_happened_and_how_to_go_on() -> None:
    limit = ErrorLimit(2)
    limit.heard(*error("a", 0))
    with pytest.raises(RunStopped, match=r"all 2 attempts so far, of 2 episodes.*ValueError: boom.*max_errors=0"):
        limit.heard(*error("b", 0))


def test_errors_that_come_sooner_than_successes_do_not_stop_a_run() -> None:
    """Lease 1 goes on and on while those after it fail at their first step; it is waited for, whatever comes of it."""
    limit = ErrorLimit(5)
    for n in range(2, 30):
        limit.heard(*error("a", n), lease=n, in_flight=[1, n])
    with pytest.raises(RunStopped, match="all 29 attempts"):
        limit.heard(*error("a", 1), lease=1, in_flight=[1, 30])
    limit = ErrorLimit(5)
    for n in range(2, 30):
        limit.heard(*error("a", n), lease=n, in_flight=[1, n])
    limit.heard(EpisodeId("toy", "a", 1), EpisodeRecord(outcome="success", steps=3), lease=1, in_flight=[1])
    assert stopped_after(limit, (error("a", n) for n in range(30, 99))) is None


def test_those_who_began_last_are_not_waited_for() -> None:
    limit = ErrorLimit(5)
    for n in range(4):
        limit.heard(*error("a", n), lease=n, in_flight=[n, 97, 98, 99])
    with pytest.raises(RunStopped):
        limit.heard(*error("a", 4), lease=4, in_flight=[4, 97, 98, 99])


def test_one_episode_alone_ends_by_the_rules_of_trying_again() -> None:
    assert stopped_after(ErrorLimit(3), (error("a", 0) for _ in range(10))) is None


def test_a_run_in_which_something_works_goes_on() -> None:
    played = EpisodeRecord(outcome="failure", steps=3)
    attempts = [
        error("a", 0),
        error("a", 1),
        (EpisodeId("toy", "a", 2), played),
        *(error("a", n) for n in range(3, 99)),
    ]
    assert stopped_after(ErrorLimit(5), attempts) is None


def test_errors_that_are_all_different_do_not_stop_a_run() -> None:
    said = [f"{'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]}" for n in range(100)]
    attempts = [error("a", n, what) for n, what in enumerate(said)]
    assert stopped_after(ErrorLimit(5), attempts) is None


def test_another_error_between_those_that_come_again_saves_no_run() -> None:
    """Weights are looked for at the first answer, and missed at all others; or a policy breaks in two ways in turns."""
    limit = ErrorLimit(5)
    for attempt in (error("a", 0, "no weights"), *(error("a", n) for n in range(1, 5))):
        limit.heard(*attempt)
    with pytest.raises(
        RunStopped, match=r"all 6 attempts so far, of 6 episodes, ended in errors, and 5 of them ended in the same"
    ):
        limit.heard(*error("a", 5))
    in_turns = (error("a", n, "yes" if n % 2 else "no") for n in range(99))
    assert stopped_after(ErrorLimit(5), in_turns) == 9


def test_kinds_of_errors_that_are_counted_have_an_end() -> None:
    letters = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(300)]
    assert stopped_after(ErrorLimit(5), (error("a", n, what) for n, what in enumerate(letters))) is None
    most = error_limit._MOST_KINDS
    after = [error("a", n, what) for n, what in enumerate(letters[:most])] + [error("a", n, "zz") for n in range(50)]
    assert stopped_after(ErrorLimit(5), after) is None, "no more than a hundred are remembered"
    assert stopped_after(ErrorLimit(5), after[1:]) is not None


def test_of_an_error_that_no_attempt_can_cure_two_episodes_are_enough() -> None:
    missing = "the policy's act() raised ModuleNotFoundError: No module named 'wheels'"
    attempts = [(EpisodeId("toy", "a", n), EpisodeRecord.failed("policy", missing)) for n in range(9)]
    assert stopped_after(ErrorLimit(20), attempts) == 2
    assert stopped_after(ErrorLimit(0), attempts) is None


def test_what_is_raised_at_one_place_is_the_same_whatever_it_says() -> None:
    """A policy that looks for the sentence of a task, and finds none: 2,000 attempts, each with other words."""

    def raised(index: int, place: str = "0f8e2d1c") -> tuple[EpisodeId, EpisodeRecord]:
        said = f"the policy's act() raised KeyError: {'abcdefg'[index % 7] * 9!r}"
        record = EpisodeRecord.failed("policy", f"{said} (policy 'm:P', step 0; traceback: errors/policy-{place}.txt)")
        return EpisodeId("toy", f"task-{index}", 0), record

    assert stopped_after(ErrorLimit(5), (raised(n) for n in range(99))) == 5
    elsewhere = (raised(n, place=f"{n:08x}") for n in range(99))
    assert stopped_after(ErrorLimit(5), elsewhere) is None


@pytest.mark.parametrize(
    "words",
    [
        lambda n: f"the policy's act() raised KeyError: {chr(97 + n) * 3!r} (in the policy server's log)",
        lambda n: f"the policy's act() raised KeyError: \"don't {chr(97 + n)}\"",
        lambda n: f"the simulator raised ValueError: {(-1) ** n * 10.0 ** (n - 5):g} is too much",
    ],
)
def test_without_a_traceback_numbers_and_what_is_quoted_do_not_count(words: Callable[[int], str]) -> None:
    attempts = [(EpisodeId("toy", "a", n), EpisodeRecord.failed("policy", words(n))) for n in range(20)]
    assert len({record.error for _, record in attempts}) == 20
    assert stopped_after(ErrorLimit(5), attempts) == 5


def test_zero_never_stops() -> None:
    assert stopped_after(ErrorLimit(0), (error("a", n) for n in range(99))) is None


def test_an_error_without_a_word_is_another_one() -> None:
    """Found by a simulated run: the first error said nothing, and was counted with those after it."""
    silent = (EpisodeId("toy", "z", 0), EpisodeRecord.failed("simulator", ""))
    assert stopped_after(ErrorLimit(3), [silent, *(error("a", n) for n in range(20))]) == 4
