"""`sparring diff`: why the numbers of two runs of one plan are not the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from sparring.orchestrator.cli.options import given
from sparring.orchestrator.cli.replaying import play_again, worker_options
from sparring.orchestrator.display.figures import FigureTable
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.display.screen import show as show_on_screen
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.bundle import recorded_in
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted, working_folder
from sparring.orchestrator.replay.run_difference import EpisodeDifference, RunDifference, difference_of
from sparring.orchestrator.replay.side_by_side import frames_of, labelled, write_png
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.file_names import unique_file_names
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.comma_list import comma_list
from sparring.protos.plain_text import plain

log = logging.getLogger(__name__)

EXIT_DIFFERENT = 3
_EVERY_STEP = 1e6
"""Frames per second: never more than there are steps."""


@click.command(short_help="say why two runs of one plan have different numbers")
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--frames",
    type=click.Path(path_type=Path),
    help="folder for pictures: of the first step that differs, before and after it, A at the left and B at the right",
)
@click.option(
    "--most", type=click.IntRange(1), default=3, show_default=True, help="of so many episodes pictures are made"
)
@click.option("--camera", "cameras", help="of the pictures, as for sparring film [default: the benchmark's own]")
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
@worker_options
def diff(
    first: Path, second: Path, frames: Path | None, most: int, cameras: str | None, as_json: bool, **values: Any
) -> int:
    """Holds the runs in A and B, output folders or bundles, against each other, action by action.

    It says which episodes' actions differ, from which step on and by how much, whether the simulator or the policy
    differed first, and what is not the same in settings, versions, renderers and checkpoint.

    \b
    Exit codes: 0 all actions are the same, 3 some are not, or cannot be compared (errors, for one),
    2 wrong usage, 1 it failed.
    """  # noqa: D301 - click wants the very character
    pictures: dict[str, str] = {}
    with recorded_in(first) as left, recorded_in(second) as right:
        for run in (left, right):
            if run.running:
                said = "the run in %r is still going: its episodes that have ended by now are compared"
                log.warning(said, str(run.place))
        found = difference_of(left, right)
        if frames is not None and found.differing:
            style = pb.FilmStyle(cameras=comma_list(cameras or ""), fps=_EVERY_STEP, overlay=True)
            wanted = Wanted(film=style, now=given(values))
            pictures = _pictures((left, right), found, found.differing[:most], frames, wanted)
    if as_json:
        click.echo(json.dumps(finite({**found.to_json(), "pictures": pictures}), allow_nan=False))
    else:
        _show(found, pictures)
    unjudged = (found.other_seeds, found.unknown, found.unreadable, found.errors, *found.only)
    whole = not (found.differing or any(unjudged))
    return 0 if whole else EXIT_DIFFERENT


def _pictures(
    runs: tuple[RecordedRun, RecordedRun],
    found: RunDifference,
    differing: list[EpisodeDifference],
    folder: Path,
    wanted: Wanted,
) -> dict[str, str]:
    """Makes a picture of each episode that can be played again in both runs; returns where they are."""
    ids = {found.ids[one.episode]: one for one in differing}
    names = unique_file_names(one.episode for one in differing)
    wanted = replace(wanted, steps={episode: (one.step, one.step + 1) for episode, one in ids.items()})
    made: dict[str, str] = {}
    with working_folder(folder) as work:
        work.mkdir()
        films: list[dict[EpisodeId, Path]] = [{}, {}]
        for number, run in enumerate(runs):

            def heard(replayed: Replayed, number: int = number) -> None:
                episode = replayed.recorded.id
                if problem := replayed.difference or replayed.missing:
                    log.warning("there is no picture of %s: %s", episode, problem)
                    return
                assert replayed.film is not None
                films[number][episode] = work / f"{number}-{len(films[number])}.mp4"
                replayed.film.replace(films[number][episode])

            for episode, why in play_again(run, list(ids), wanted, folder, heard).items():
                log.warning("there is no picture of %s: %s", episode, why)
        for episode, one in ids.items():
            if all(episode in each for each in films):
                path = folder / f"{names[one.episode]}_step{one.step}.png"
                _write_picture(path, [each[episode] for each in films], one.step, work)
                made[one.episode] = str(path)
    return made


def _write_picture(path: Path, films: Sequence[Path], step: int, work: Path) -> None:
    """Writes a picture of a step, before it and after it, in films that stand side by side.

    Raises:
        RunStopped: If it cannot be written: then there is none.
    """
    shots = [
        [labelled(frame, name) for frame in frames_of(film, (step, step + 1))]
        for name, film in zip("AB", films, strict=True)
    ]
    part = work / path.name
    try:
        write_png(part, list(zip(*shots, strict=True)))
        part.replace(path)
    except OSError as error:
        raise RunStopped(f"the picture {str(path)!r} cannot be written: {error.strerror}.") from error


def _show(found: RunDifference, pictures: dict[str, str]) -> None:
    for name, (left, right) in found.around.items():
        click.echo(plain(f"{name}: {json.dumps(left)} in A, {json.dumps(right)} in B"))
    if found.differing:
        table = FigureTable("episode", ["same actions", "apart there", "apart at most", "first", "steps", "outcome"])
        for one in found.differing:
            apart = "-" if one.apart is None else f"{one.apart:.3g}"
            ends = (" / ".join(map(str, one.steps)), " / ".join(one.outcomes))
            table.add_row(one.episode, [str(one.step), apart, f"{one.most:.3g}", one.first, *ends])
        show_on_screen(table)
    for episode, path in pictures.items():
        click.echo(plain(f"{episode}: {path}"))
    for names, said in (
        (found.other_seeds, "have other seeds in B, so that nothing can be said of them"),
        (found.unknown, "have no recorded actions in one of the runs"),
        (found.unreadable, "have actions in one of the runs that cannot be read, sparring verify says why"),
        (found.errors, "ended in an error in one of the runs"),
        (found.only[0], "are in A alone"),
        (found.only[1], "are in B alone"),
    ):
        if names:
            click.echo(
                f"{count(len(names), 'episode')} {said}: {plain(', '.join(names[:5]))}{'...' if names[5:] else ''}"
            )
    click.echo(f"{count(found.same, 'episode')} with the same actions, {len(found.differing)} with others.")
