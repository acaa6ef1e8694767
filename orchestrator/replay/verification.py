"""Verification: whether recorded episodes are what their actions come to when they are played again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sparring.env_worker.registry import distribution_of, get_benchmark
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed
from sparring.orchestrator.results.makers import Maker
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.action_list import UnreadableActions, unpack
from sparring.protos.installing import OURS
from sparring.protos.machine import machine
from sparring.protos.trace import Trace, TraceDifference, is_close

TOLERANCE: Final = 1e-6
"""Relative: how far rewards may be from those that another machine, or other versions, have recorded."""
_FARTHER: Final = 1e3
"""So much farther positions and velocities may be: they are not what is reported."""

ReplayVerdict = Literal["same", "close", "different", "unchecked"]
"""`same`: to the bit; `close`: outcome and steps are equal, rewards within the tolerance, made elsewhere; `unchecked`:
there is nothing to play again, or nothing came of it."""


@dataclass(frozen=True)
class CheckedEpisode:
    """What came of holding an episode against its replay.

    Attributes:
        episode: Which one.
        verdict: Of it.
        problems: In what it is different, or why it was not checked, in sentences.
        first: The first step at which the replay is not what was recorded; None: there is none, or none is known.
        elsewhere: In what machine and versions are not those that it was made with.
    """

    episode: EpisodeId
    verdict: ReplayVerdict
    problems: Sequence[str] = ()
    first: TraceDifference | None = None
    elsewhere: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns it for a program."""
        first = self.first
        return {
            "benchmark": self.episode.benchmark,
            "task": self.episode.task,
            "index": self.episode.index,
            "verdict": self.verdict,
            "problems": list(self.problems),
            "first_difference": None
            if first is None
            else {"step": first.step, "what": first.what, "then": first.then, "now": first.now},
            "elsewhere": list(self.elsewhere),
        }


def check(run: RecordedRun, replayed: Replayed, tolerance: float = TOLERANCE) -> CheckedEpisode:
    """Holds an episode against its replay.

    Args:
        run: Whose it is.
        replayed: It.
        tolerance: For rewards that were made on another machine or with other versions, relative.
    """
    row, again = replayed.recorded, replayed.again
    places = tuple(elsewhere(run, row, replayed.maker))
    close = tolerance if places else 0.0
    problems = list(dict.fromkeys([*_inner_problems(run, row, replayed), *_differences(row, again, close)]))
    first = _first_difference(replayed, close)
    if first is not None:
        word = "to the bit" if not places else f"within {tolerance:g}"
        problems.append(
            f"step {first.step} is the first that is not the same {word}: {first.what} {first.then!r} then, "
            f"{first.now!r} now{' (the reset)' if first.step == 0 else ''}."
        )
    if problems:
        return CheckedEpisode(row.id, "different", problems, first, places)
    equal = not list(_differences(row, again, 0.0)) and _first_difference(replayed, 0.0) is None
    return CheckedEpisode(row.id, "same" if equal else "close", (), None, places)


def unplayed(row: EpisodeRow, why: str) -> CheckedEpisode:
    """Returns what can be said of an episode that there is no replay of, for a reason that is a sentence."""
    return CheckedEpisode(row.id, "unchecked", [why])


def unreadable(row: EpisodeRow, why: str) -> CheckedEpisode:
    """Returns what is said of an episode whose actions cannot be read: no run has written those."""
    return CheckedEpisode(row.id, "different", [why])


def of_an_error(row: EpisodeRow, *, has_actions: bool) -> CheckedEpisode:
    """Returns what can be said of an episode that ended in an error.

    Args:
        row: Of the episode.
        has_actions: Whether there are some nevertheless: an error has none.
    """
    if has_actions:
        return CheckedEpisode(
            row.id, "different", ["it is said to be an error, and has actions, which errors have not."]
        )
    return unplayed(row, "it ended in an error, which nothing can be played of.")


def elsewhere(run: RecordedRun, row: EpisodeRow, now: Maker | None) -> Iterator[str]:
    """Says in what machine and versions are not those that a row was made with."""
    then = run.makers.get(row.maker)
    if then is None or now is None:
        yield "who made it is not known"
        return
    if then.host != now.host:
        yield f"made on {then.host or 'a machine without a name'}, played again on {now.host}"
    elif (cpu := run.document.machines.get(then.host, {}).get("cpu")) and cpu != machine().get("cpu"):
        yield f"made on a {cpu}, played again on a {machine().get('cpu', 'processor that is not known')}"
    benchmark = next(part.benchmark for part in run.parts if part.label == row.benchmark)  # `replay` has checked it
    deciding = {"python", "numpy", *get_benchmark(benchmark).packages, distribution_of(benchmark)} - {OURS}
    versions = then.versions.get("worker", {}), now.versions.get("worker", {})
    for package in sorted(deciding & (versions[0].keys() | versions[1].keys())):
        was, is_ = (found.get(package, "none") for found in versions)
        if was != is_:
            yield f"{package} {was} then, {is_} now"


def _inner_problems(run: RecordedRun, row: EpisodeRow, replayed: Replayed) -> Iterator[str]:
    """Says what a row, its actions and its trace say that cannot all be true, whatever a replay comes to."""
    if row.seed != run.plan.seed_of(row.id):
        yield f"its seed is {row.seed}, and by the plan it is {run.plan.seed_of(row.id)}."
    try:
        actions = unpack(replayed.kept.actions)
    except UnreadableActions as error:
        yield error.sentence
        return
    if len(actions) != row.steps:
        yield f"it has {len(actions)} actions, and says that it had {row.steps} steps."
    if not replayed.kept.trace:
        return  # of an earlier release
    try:
        trace = Trace.unpack(replayed.kept.trace)
    except UnreadableActions as error:
        yield error.sentence
        return
    if trace.steps != row.steps:
        yield f"its trace has {trace.steps} steps, and it says that it had {row.steps}."
        return
    total = 0.0
    for reward in trace.rewards[1:]:
        total += reward  # in the order and with the roundings of the episode itself
    told: list[tuple[str, object, object]] = [
        ("reward_sum", row.reward_sum, total),
        ("reward_max", row.reward_max, max(trace.rewards[1:], default=0.0)),
        ("outcome", row.outcome, _outcome(trace)),
    ]
    for name, said, traced in told:
        if said != traced:
            yield f"it says that its {name} is {said!r}, and by its own trace it is {traced!r}."


def _outcome(trace: Trace) -> str:
    known = [success for success in trace.successes[1:] if success >= 0.0]
    return "played" if not known else "success" if any(known) else "failure"


def _differences(row: EpisodeRow, again: EpisodeRow, tolerance: float) -> Iterator[str]:
    """Says in what a row is not what its actions come to."""
    if again.outcome == "error":
        yield again.error or "its replay ended in an error."
        return
    for name in ("outcome", "steps"):
        was, now = getattr(row, name), getattr(again, name)
        if was != now:
            yield f"{name}: {was} was recorded, and its actions come to {now}."
    then = {"reward_sum": row.reward_sum, "reward_max": row.reward_max, **_named(row)}
    found = {"reward_sum": again.reward_sum, "reward_max": again.reward_max, **_named(again)}
    for name in then.keys() | found.keys():
        if name not in then or name not in found:
            yield f"{name}: reported {'then' if name in then else 'now'} only."
        elif not is_close(then[name], found[name], tolerance):
            yield f"{name}: {then[name]!r} was recorded, and its actions come to {found[name]!r}."


def _named(row: EpisodeRow) -> dict[str, float]:
    return {f"metric {name}": value for name, value in sorted(row.metrics.items())}


def _first_difference(replayed: Replayed, tolerance: float) -> TraceDifference | None:
    if not replayed.kept.trace or not replayed.trace:
        return None
    try:
        then, now = Trace.unpack(replayed.kept.trace), Trace.unpack(replayed.trace)
    except UnreadableActions:
        return None  # which is told already
    return then.first_difference(now, tolerance=tolerance, far=min(1.0, tolerance * _FARTHER))
