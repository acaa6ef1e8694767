"""`sparring export`: a data set of the episodes of a run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from sparring.orchestrator.display.screen import count
from sparring.orchestrator.export.export import Only, chosen_recordings
from sparring.orchestrator.export.export import export as write
from sparring.orchestrator.export.formats import FORMATS, ExportOptions


@click.command(short_help="make a data set of the episodes of a run")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
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
    help="what is in it; may be repeated [default: all observation.*]",
)
@click.option("--fps", type=click.FloatRange(0, min_open=True), help="frames per second, if the simulator says another")
def export(
    folder: Path, out: Path, form: str, only: Only, tasks: str | None, observations: tuple[str, ...], fps: float | None
) -> None:
    """Makes a data set OUT of episodes in FOLDER, which `--record` wrote: every step, with all cameras."""
    FORMATS[form].check()
    episodes = chosen_recordings(folder, only=only, tasks=tasks)
    options = ExportOptions(observations, fps or 0.0, all(one.about.success is not None for one in episodes))
    done = write(episodes, out, form, options)
    click.echo(f"{count(done.episodes, 'episode')}, {count(done.frames, 'frame')}: {out}")
