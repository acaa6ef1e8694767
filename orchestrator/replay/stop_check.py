"""Whether a run that might stop early stopped where its rules say, by its rows and those of the run it is held to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparring.orchestrator.replay.alike import alike
from sparring.orchestrator.results.document import RunDocument
from sparring.orchestrator.results.early_stop import EarlyStop
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.early_stopping import EarlyStopping, rule_against
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError

if TYPE_CHECKING:
    from sparring.orchestrator.comparison.stopping import StopRule


@dataclass(frozen=True)
class StopCheck:
    """What can be said of a stop.

    Attributes:
        problems: In what it is not as its rules say, in sentences.
        unchecked: Why that cannot be known here, in a sentence; empty: it is known.
    """

    problems: Sequence[str] = ()
    unchecked: str = ""


def check_stop(document: RunDocument, rows: Collection[EpisodeRow], places: Sequence[Path]) -> StopCheck:
    """Checks the stop of a run that was held against another one; of any other run there is nothing to say.

    Args:
        document: Its run.json.
        rows: Its rows.
        places: Where the other one may be.
    """
    stop = document.early_stop
    if stop is None or stop.against is None or document.status != "finished":
        return StopCheck()
    why = f"there is no run in {str(places[0])!r} any more"
    for place in places:
        try:
            other = Results.load(place)
        except SparringError:
            continue
        if stop.against_id is not None and other.id != stop.against_id:
            why = f"the run in {str(place)!r} is another one"
            continue
        try:
            return StopCheck(list(stop_problems(document, rows, other)))
        except ModuleNotFoundError:  # scipy comes with an extra, and all the rest can be told without
            why = "scipy is not installed"
            break
    return StopCheck(
        unchecked="whether it stopped where its rule says was not checked: it was held against another run, and "
        f"{why}. Name its folder with {Hint('against')}."
    )


def stop_problems(document: RunDocument, rows: Collection[EpisodeRow], other: Results | None = None) -> Iterator[str]:
    """Says in a sentence that a run did not stop where its rules say.

    Args:
        document: Its run.json.
        rows: Its rows.
        other: The run that it was held against, if it was.
    """
    stop = document.early_stop
    if stop is None or document.status != "finished":
        return
    found = _judged_again(document, stop, rows, other)
    if found is None:
        return
    told = f"run.json says that the run {_where(stop)}, and by its rule it {_where(found)}."
    if (found.reason, found.rounds) != (stop.reason, stop.rounds):
        yield told
    elif not alike(
        found.model_dump(exclude={"against", "against_id"}), stop.model_dump(exclude={"against", "against_id"})
    ):
        yield "run.json has other numbers of its early stop than its rows come to."


def _judged_again(
    document: RunDocument, stop: EarlyStop, rows: Collection[EpisodeRow], other: Results | None
) -> EarlyStop | None:
    """Returns what rules come to that hear of the rows; None: there are none."""
    plan = replace(document.plan(), episodes=document.episodes)
    rules: list[StopRule] = []
    if stop.half_width is not None:
        from sparring.orchestrator.comparison.stopping import PreciseEnough

        rules.append(PreciseEnough(stop.half_width, stop.alpha))
    if other is not None:
        futility = bool(document.settings.get("futility"))
        rules.append(rule_against(other, plan, stop.against or "", stop.alpha, futility=futility))
    stopping = EarlyStopping(plan, rules, stop.alpha)
    for row in rows:
        stopping.heard(row)
    return stopping.state()


def _where(stop: EarlyStop) -> str:
    if stop.reason is None or not stop.stopped:
        return "did not stop early"
    return f"stopped after {stop.rounds} rounds ({stop.reason})"
