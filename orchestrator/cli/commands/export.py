"""`sparring export`: a data set of the episodes of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import click

from sparring.orchestrator.cli.options import given
from sparring.orchestrator.cli.replaying import play_again, worker_options
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.export.destination import check_free
from sparring.orchestrator.export.export import Exported, Only, chosen_recordings
from sparring.orchestrator.export.export import export as write
from sparring.orchestrator.export.formats import FORMATS, ExportOptions
from sparring.orchestrator.export.replayed import ReplayedEpisodes
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Wanted, working_folder
from sparring.orchestrator.results.document import RUN_FILE
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError
from sparring.protos.plain_text import plain

EXIT_MISSING = 3
_SEEN: Final = "observation*"
"""What is watched if nothing is named: LeRobot's names, and what Gymnasium's environments show that have one thing."""


@click.command(short_help="make a data set of the episodes of a run")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(sorted(FORMATS)), required=True, help="what OUT will be")
@click.option(
    "--only", type=click.Choice(get_args(Only)), default="all", show_default=True, help="episodes that ended so"
)
@click.option("--tasks", metavar="SELECTION", help="these tasks only, comma-separated; * and ? stand for anything")
@click.option(
    "--observation",
    "observations",
    multiple=True,
    metavar="NAME",
    help="what is in it; * and ? stand for anything; may be repeated [default: observation.*]",
)
@click.option("--resolution", type=click.IntRange(16, 4096), help="height and width of images, in pixels")
@click.option(
    "--every",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="look after so many steps, not after each; for policies that play several actions at once (npz)",
)
@click.option("--fps", type=click.FloatRange(0, min_open=True), help="frames per second, if the simulator says another")
@worker_options
def export(
    folder: Path,
    out: Path,
    form: str,
    only: Only,
    tasks: str | None,
    observations: tuple[str, ...],
    resolution: int | None,
    every: int,
    fps: float | None,
    **values: Any,
) -> int:
    """Makes a data set OUT of the episodes of a run: every step, with all cameras.

    DIR is the output folder of a run, whose episodes are played again, without the policy; or a folder that `--record`
    wrote, with what a policy saw at every step.

    \b
    Exit codes: 0 all episodes are in it, 3 some are left out, 2 wrong usage, 1 it could not be finished.
    """  # noqa: D301 - click wants the very character
    check_free(out)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r}.")
    is_run = (folder / RUN_FILE).exists()
    options = ExportOptions(observations, fps or 0.0, every=every, as_recorded=not is_run)
    FORMATS[form].check(options)
    if is_run:
        seen = {} if resolution is None else {"resolution": resolution}
        wanted = Wanted(watch=observations or [_SEEN], every=every, now=given(values), seen=seen)
        done, missing = _played_again(folder, out, form, options, wanted, only, tasks)
    else:
        if resolution is not None or every > 1 or given(values):
            raise UsageError("recordings are as they are: there is nothing to set for workers and images.")
        episodes = chosen_recordings(folder, only=only, tasks=tasks)
        options = replace(options, success=all(one.about.success is not None for one in episodes))
        done, missing = write(episodes, out, form, options), 0
    left = f", {missing} left out" if missing else ""
    click.echo(f"{count(done.episodes, 'episode')}, {count(done.steps, 'step')}{left}: {plain(str(out))}")
    return EXIT_MISSING if missing else 0


def _played_again(
    folder: Path, out: Path, form: str, options: ExportOptions, wanted: Wanted, only: Only, tasks: str | None
) -> tuple[Exported, int]:
    """Exports by replay; returns what is in it, and how many episodes are not."""
    run = RecordedRun.in_folder(folder)
    rows = run.choose(only)
    if tasks is not None:
        chosen = {row.id for row in Results.load(folder).select(tasks).rows}
        rows = [row for row in rows if row.id in chosen]
    document = run.document
    policy = None if document.policy is None else document.policy.model_dump(mode="json")
    about = {"policy": policy, "versions": document.versions, "seed": document.settings.get("seed")}
    options = replace(options, success=all(row.outcome != "played" for row in rows), run=about)
    with working_folder(out.parent) as work:
        work.mkdir()
        episodes = ReplayedEpisodes(work, [row.id for row in rows])
        episodes.play(lambda heard: play_again(run, [row.id for row in rows], wanted, out.parent, heard))
        return write(episodes, out, form, options), len(episodes.missing)
