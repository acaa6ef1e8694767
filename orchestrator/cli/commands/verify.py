"""`sparring verify`: whether the results in a folder or a bundle are what their actions come to."""

from __future__ import annotations

import json
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import click
from rich.console import Group
from rich.text import Text

from sparring.orchestrator.cli.options import given
from sparring.orchestrator.cli.replaying import play_again, worker_options
from sparring.orchestrator.display.figures import FigureTable
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.display.screen import show as show_on_screen
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.bundle import opened
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted, unreadable_among
from sparring.orchestrator.replay.stop_check import StopCheck, check_stop
from sparring.orchestrator.replay.verification import (
    TOLERANCE,
    CheckedEpisode,
    ReplayVerdict,
    check,
    of_an_error,
    unplayed,
    unreadable,
)
from sparring.orchestrator.results.damage import DamagedJournal
from sparring.orchestrator.results.reading import KeptEpisode
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.plain_text import plain

log = logging.getLogger(__name__)

EXIT_DIFFERENT: Final = 1
EXIT_UNCHECKED: Final = 3
_SAMPLE: Final = 20
_NO_ACTIONS: Final = "its actions are missing."
_MOST_TOLD: Final = 20
"""Episodes that the table tells in sentences; --json has all of them."""


@click.command(short_help="play recorded actions again and compare: is a result what it says?")
@click.argument("place", metavar="DIR|BUNDLE", type=click.Path(path_type=Path))
@click.option("--sample", type=click.IntRange(min=1), help=f"check so many episodes, at random [default: {_SAMPLE}]")
@click.option("--all", "everything", is_flag=True, help="check every episode")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0, max=1.0),
    default=TOLERANCE,
    show_default=True,
    help="how far rewards may be apart, relative, if they were made on another machine or with other versions",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="where the run is now that this one was held against (run --against), to check that it stopped where it says",
)
@worker_options
def verify(
    place: Path,
    sample: int | None,
    everything: bool,
    tolerance: float,
    as_json: bool,
    against: Path | None,
    **values: Any,
) -> int:
    """Plays recorded actions again, without the policy, and compares what they come to with what was recorded.

    On the machine and with the versions that made it, an episode must be equal to the bit; elsewhere outcome and
    steps must be equal, and rewards within the tolerance.

    \b
    Exit codes: 0 all that was checked is what was recorded, 1 something is not,
    3 something could not be checked (errors, episodes without actions or without a row, a stop by another run),
    2 wrong usage, or no episode of the run has actions.
    """  # noqa: D301 - click wants the very character
    if sample is not None and everything:
        raise UsageError("give --sample or --all, not both.")
    try:
        with opened(place) as source:
            stop = _stop_check(source.run, against)
            problems = [*source.problems, *stop.problems]
            unchecked = " ".join(filter(None, [source.unchecked, stop.unchecked]))
            return _verify(source.run, problems, unchecked, given(values), sample, everything, tolerance, as_json)
    except DamagedJournal as error:
        raise SparringError(error.sentence) from error  # the answer that was asked for, and no wrong usage


def _verify(
    run: RecordedRun,
    problems: Sequence[str],
    not_checked: str,
    now: dict[str, Any],
    sample: int | None,
    everything: bool,
    tolerance: float,
    as_json: bool,
) -> int:
    chosen = _chosen(run, sample, everything)
    failed = [row for row in chosen if row.outcome == "error"]
    played = run.read([row.id for row in failed])
    checked = [of_an_error(row, has_actions=row.id in played) for row in failed]
    kept = _kept(run, chosen)
    damaged = unreadable_among(kept)
    checked += [unreadable(run.rows[episode], why) for episode, why in damaged.items()]

    def heard(replayed: Replayed) -> None:
        checked.append(check(run, replayed, tolerance))

    to_play = [episode for episode in kept if episode not in damaged]
    untold: Mapping[EpisodeId, str] = {}
    if to_play:
        with tempfile.TemporaryDirectory(prefix="sparring-verify-") as beside:
            untold = play_again(run, to_play, Wanted(now=now), Path(beside), heard, tell_elsewhere=False)
    judged = {each.episode for each in checked}  # whatever went wrong: no verdict is none that says that all is well
    checked += [unplayed(row, untold.get(row.id, _NO_ACTIONS)) for row in chosen if row.id not in judged]
    order = {episode: number for number, episode in enumerate(run.plan.ids())}
    checked.sort(key=lambda each: order[each.episode])
    absent = 0 if run.running else len(order.keys() - run.rows.keys())
    different = any(each.verdict == "different" for each in checked) or bool(problems)
    unchecked = any(each.verdict == "unchecked" for each in checked) or absent > 0 or bool(not_checked)
    if as_json:
        document = {
            "verified": not different and not unchecked,
            "tolerance": tolerance,
            "planned": len(order),
            "recorded": len(run.rows),
            "running": run.running,
            "problems": list(problems),
            "unchecked": not_checked,
            "episodes": [each.to_json() for each in checked],
        }
        click.echo(json.dumps(document, allow_nan=False))
    else:
        show_on_screen(_report(run, checked, [*problems, *filter(None, [not_checked])], absent, tolerance))
    return EXIT_DIFFERENT if different else EXIT_UNCHECKED if unchecked else 0


def _stop_check(run: RecordedRun, against: Path | None) -> StopCheck:
    stop = run.document.early_stop
    if stop is None or stop.against is None:
        if against is not None:
            raise UsageError("this run was not held against another one: leave --against out.")
        return StopCheck()
    there = Path(stop.against)
    places = [there, run.place.parent / there.name] if against is None else [against]
    found = check_stop(run.document, run.rows.values(), places)
    return StopCheck(found.problems, SparringError(found.unchecked).told(FLAGS) if found.unchecked else "")


def _chosen(run: RecordedRun, sample: int | None, everything: bool) -> list[EpisodeRow]:
    rows = [run.rows[episode] for episode in run.plan.ids() if episode in run.rows]
    if not rows:
        raise UsageError(f"the run in {str(run.place)!r} has no episode that has ended, so there is nothing to check.")
    size = sample or _SAMPLE
    if everything or size >= len(rows):
        return rows
    # Not by a seed: who made the results must not know which of them are looked at.
    picked = set(random.SystemRandom().sample(range(len(rows)), size))
    return [row for number, row in enumerate(rows) if number in picked]


def _kept(run: RecordedRun, chosen: Sequence[EpisodeRow]) -> Mapping[EpisodeId, KeptEpisode]:
    """Returns what is kept of those of some episodes that can be played again.

    Raises:
        UsageError: If that is none of the whole run.
    """
    ended = [row.id for row in chosen if row.outcome != "error"]
    kept = run.read(ended)
    if ended and not kept:
        run.kept(episode for episode, row in run.rows.items() if row.outcome != "error")
    return kept


def _report(
    run: RecordedRun, checked: Sequence[CheckedEpisode], problems: Sequence[str], absent: int, tolerance: float
) -> Group:
    table = FigureTable("task", get_args(ReplayVerdict))
    tasks: dict[str, Counter[str]] = {}
    for each in checked:
        tasks.setdefault(run.label(each.episode), Counter())[each.verdict] += 1
    overall = sum(tasks.values(), Counter[str]())
    for label, counts in [*tasks.items(), *([("overall", overall)] if len(tasks) > 1 else [])]:
        table.add_row(label, [str(counts[verdict]) for verdict in get_args(ReplayVerdict)])
    lines = [f"{count(len(checked), 'episode')} of {len(run.rows)} that are recorded, {len(run.plan.ids())} planned"]
    elsewhere = Counter(said for each in checked for said in each.elsewhere)
    lines += [f"made elsewhere ({number} of them): {said}" for said, number in elsewhere.items()]
    if elsewhere:
        lines.append(f"so outcome and steps must be equal, and rewards within {tolerance:g} of what they were")
    if absent:
        lines.append(f"{count(absent, 'episode')} of the plan have no row: what came of them is not known")
    lines += problems
    told = [each for each in checked if each.problems]
    for each in told[:_MOST_TOLD]:
        lines += [f"{each.episode}: {problem}" for problem in each.problems]
    if len(told) > _MOST_TOLD:
        lines.append(f"... and {len(told) - _MOST_TOLD} more; --json has all of them")
    return Group(table, Text(""), *(Text(plain(line)) for line in lines))
