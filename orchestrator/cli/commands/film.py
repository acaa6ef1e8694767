"""`sparring film`: films of recorded episodes, afterwards, from any camera."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sparring.orchestrator.cli.options import given
from sparring.orchestrator.cli.replaying import play_again, worker_options
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.replay.bundle import recorded_in
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.file_names import FILMED_LATER, FileNames
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError
from sparring.protos.plain_text import plain

log = logging.getLogger(__name__)

EXIT_MISSING = 3


@click.command(short_help="film episodes of a run afterwards, from any camera")
@click.argument("folder", metavar="DIR|BUNDLE", type=click.Path(path_type=Path))
@click.option(
    "--episodes",
    default="failures",
    show_default=True,
    help="failures, successes, all, or single ones: TASK:INDEX, or BENCHMARK/TASK:INDEX, comma-separated",
)
@click.option(
    "--camera",
    "cameras",
    help="images that the benchmark offers, or cameras of its scenes, comma-separated: several stand side by side "
    "[default: the benchmark's own]",
)
@click.option("--resolution", type=click.IntRange(16, 4096), help="height and width of each picture, in pixels")
@click.option(
    "--fps",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="frames per simulated second; never more than there are steps",
)
@click.option("--overlay", is_flag=True, help="write task, step, reward and success under the picture")
@click.option("--format", "kind", type=click.Choice(["mp4", "gif"]), default="mp4", show_default=True, help="of films")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="folder of the films [default: DIR/films; a bundle has none]; others are replaced",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
@worker_options
def film(
    folder: Path,
    episodes: str,
    cameras: str | None,
    resolution: int | None,
    fps: float,
    overlay: bool,
    kind: str,
    output: Path | None,
    as_json: bool,
    **values: Any,
) -> int:
    """Plays recorded episodes again, without the policy, and films them.

    A film is of what was recorded: if outcome, steps or rewards of a replay are others, there is none, and why is told.
    Nothing is changed in what the run has written.

    \b
    Exit codes: 0 all films are made, 3 some are not, 2 wrong usage, 1 it could not be finished.
    """  # noqa: D301 - click wants the very character
    named = comma_list(cameras or "")
    if cameras is not None and not named:
        raise UsageError("--camera names no camera.")
    target = _target(folder, output)
    style = pb.FilmStyle(cameras=named, fps=fps, overlay=overlay, gif=kind == "gif")
    wanted = Wanted(film=style, now=given(values), seen={} if resolution is None else {"resolution": resolution})
    with recorded_in(folder) as run:
        made, missing = _films(run, run.choose(episodes), wanted, target, kind)
    if as_json:
        click.echo(json.dumps({"films": made, "missing": missing}))
    else:
        click.echo(
            f"{count(len(made), 'film')} in {plain(str(target))}" + (f", {len(missing)} missing" if missing else "")
        )
    return EXIT_MISSING if missing else 0


def _target(place: Path, output: Path | None) -> Path:
    """Returns the folder of films."""
    if output is not None:
        return output
    if place.is_file():
        raise UsageError(f"{str(place)!r} is a file, and films need a folder: name one with --output.")
    target = place / FILMED_LATER
    if target.is_symlink():
        raise UsageError(
            f"{str(target)!r} is a link, and leads elsewhere. If films are to go there, name it with --output."
        )
    return target


def _films(
    run: RecordedRun, chosen: Sequence[EpisodeRow], wanted: Wanted, target: Path, kind: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Makes films of episodes; returns where they are, and of the others why there are none."""
    names = FileNames(run.plan)
    made: dict[str, str] = {}
    missing: dict[str, str] = {}

    def heard(replayed: Replayed) -> None:
        row = replayed.recorded
        if problem := replayed.difference or replayed.missing:
            missing[str(row.id)] = problem
            log.warning("there is no film of %s: %s", row.id, problem)
            return
        assert replayed.film is not None
        path = target / names.film(row.id, row.outcome, kind)
        try:
            replayed.film.replace(path)
        except OSError as error:
            raise RunStopped(f"the film {str(path)!r} cannot be written: {error.strerror}.") from error
        made[str(row.id)] = str(path)

    for episode, why in play_again(run, [row.id for row in chosen], wanted, target, heard).items():
        missing[str(episode)] = why
        log.warning("there is no film of %s: %s", episode, why)
    return made, missing
