"""The numbers that run.json tells of its episodes: whether they are what the plan and the rows come to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from sparring.orchestrator.replay.alike import alike
from sparring.orchestrator.replay.stop_check import stop_problems
from sparring.orchestrator.results.document import RunDocument
from sparring.orchestrator.results.document_parts import RunRate
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.results.statistics import Summary


def outside_the_plan(document: RunDocument, rows: Collection[EpisodeRow]) -> Iterator[str]:
    """Says in a sentence that there are rows of episodes that the plan does not have: nothing would play them."""
    planned = set(document.plan().ids())
    strangers = sorted(row.id for row in rows if row.id not in planned)
    if strangers:
        one = len(strangers) == 1
        many = "1 episode has a row and is" if one else f"{len(strangers)} episodes have a row and are"
        yield f"{many} not in the plan, the first of them {strangers[0]}."


def told_problems(document: RunDocument, rows: Collection[EpisodeRow], where: str) -> Iterator[str]:
    """Says in sentences where the numbers of run.json are not what the rows of a run come to.

    Every release that keeps actions writes all of them, so one that is missing was taken out.

    Args:
        document: run.json of a run that is not going on.
        rows: All of them.
        where: They were found, in words.
    """
    if document.recorded is None:
        yield f"run.json does not tell how many episodes were recorded, and {where} has {len(rows)}."
    elif document.recorded != len(rows):
        yield f"run.json tells of {document.recorded} episodes, and {where} has {len(rows)}."
    results = Results(plan=document.plan(), rows=list(rows), seconds=0.0, folder=None, protocols=document.protocols)
    overall = {} if document.overall is None else {"": document.overall}
    # Of several protocols there is no rate of all; releases that told one told this one.
    due = {} if not overall and protocols_side_by_side(results) else {"": results.overall}
    yield from _rate_problems("overall", overall, due, where)
    yield from _rate_problems("task", document.task_rates, results.tasks, where)
    yield from _rate_problems("group", document.group_rates, results.groups, where)
    if document.early_stop is not None and document.early_stop.against is None:
        with suppress(ModuleNotFoundError):  # scipy comes with an extra, and all the rest can be told without
            yield from list(stop_problems(document, rows))


def _rate_problems(kind: str, told: Mapping[str, RunRate], found: Mapping[str, Summary], where: str) -> Iterator[str]:
    for name in (*found, *(name for name in told if name not in found)):
        which = f"{kind} {name}".rstrip()
        if name not in told:
            yield f"run.json has no rate ({which}), and {where} comes to one."
        elif name not in found:
            yield f"run.json has a rate ({which}) of what is not in the plan."
        elif not alike(told[name].model_dump(), RunRate.of(found[name]).model_dump()):
            yield f"run.json has another rate ({which}) than {where} comes to."
