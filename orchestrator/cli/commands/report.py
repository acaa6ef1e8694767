"""`sparring report`: what came of a run, to look at and to hand on."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import unquote

import click

from sparring.orchestrator.cli.options import given
from sparring.orchestrator.cli.replaying import play_again, worker_options
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted
from sparring.orchestrator.report.content import FilmsOf, report_content
from sparring.orchestrator.report.first_frames import FEWEST_FRAMES, check_frames, first_frame
from sparring.orchestrator.report.formats import TableFormat, write_table
from sparring.orchestrator.report.markdown import report_markdown
from sparring.orchestrator.report.page import embed_films, report_page
from sparring.orchestrator.report.timelines import MOST_EPISODES
from sparring.orchestrator.results.document import read_document, to_json
from sparring.orchestrator.results.files import replace_file
from sparring.orchestrator.results.reading import read_traces
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError

log = logging.getLogger(__name__)

_FORMATS: Final = ("html", "md", "json", *get_args(TableFormat))
_PAGES: Final = ("html", "md")
"""What is made where nobody asks for something else."""


@click.command(short_help="make a page of a run: rates, every episode, films, errors, settings")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(_FORMATS),
    help="html: a page that needs nothing else; md: for pull requests; json, csv, parquet, junit: for programs; may be "
    "repeated [default: html and md]",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="where to put it, a folder or, for one format, a file; - is standard output [default: FOLDER]",
)
@click.option("--embed", is_flag=True, help="put films into the page, instead of their paths")
@click.option(
    "--tasks", metavar="SELECTION", help="these tasks or groups only, comma-separated; * and ? stand for anything"
)
@click.option(
    "--first-frames",
    is_flag=True,
    help="put a small picture of what each episode began with into the page: of its film, or by playing it again",
)
@worker_options
def report(
    folder: Path,
    formats: tuple[str, ...],
    output: Path | None,
    embed: bool,
    tasks: str | None,
    first_frames: bool,
    **values: Any,
) -> None:
    """Makes report.html and report.md of the run in FOLDER, finished or not.

    It needs neither the benchmark nor the policy, and reads only what is in the folder; --first-frames needs the
    benchmark where episodes have no film, and the flags on workers are for that.
    """
    chosen = list(dict.fromkeys(formats or _PAGES))
    results = Results.load(folder)
    results = results if tasks is None else results.select(tasks)
    to_stdout = output is not None and str(output) == "-"
    if to_stdout and len(chosen) > 1:
        raise UsageError("standard output has place for one format: name it with --format.")
    if embed and "html" not in chosen:
        raise UsageError("--embed is for the page: add --format html.")
    if (given(values) or first_frames) and not (first_frames and {"html", "json"} & {*chosen}):
        raise UsageError("flags on workers are for --first-frames, and these for --format html or json.")
    target = Path() if to_stdout else folder if output is None else output
    traces = read_traces(folder, MOST_EPISODES) if {"html", "json"} & {*chosen} else {}
    frames = _frames(folder, results, given(values)) if first_frames else {}
    for name in chosen:
        path = target if to_stdout else _path(name, target, alone=len(chosen) == 1)
        beside = Path.cwd() if to_stdout else path.parent
        if name in get_args(TableFormat):
            write_table(results, name, sys.stdout.buffer if to_stdout else path)  # type: ignore[arg-type]
        else:
            content = report_content(results, read_document(folder), beside, traces, frames)
            if name == "html" and embed:
                embed_films(content, beside)
            text = {"html": report_page, "md": report_markdown, "json": to_json}[name](content)
            if to_stdout:
                click.echo(text, nl=False)
            else:
                replace_file(path, text)
        if not to_stdout:
            click.echo(path)


def _frames(folder: Path, results: Results, now: Mapping[str, Any]) -> dict[EpisodeId, str]:
    """Returns what episodes began with: the first pictures of their films, or of new ones; errors have none."""
    check_frames()
    frames: dict[EpisodeId, str] = {}
    films = FilmsOf(results)
    for row in results.rows:
        if film := films.address(row, folder):  # none of elsewhere
            frames[row.id] = first_frame(folder / unquote(film))

    def heard(replayed: Replayed) -> None:
        if replayed.film is None or replayed.difference:
            log.warning("there is no picture of %s: %s", replayed.recorded.id, replayed.difference or replayed.missing)
        else:
            frames[replayed.recorded.id] = first_frame(replayed.film)

    left = [row.id for row in results.rows if row.outcome != "error" and row.id not in frames]
    if left:
        wanted = Wanted(film=FEWEST_FRAMES, now=now)
        for episode, why in play_again(RecordedRun.in_folder(folder), left, wanted, folder, heard).items():
            log.warning("there is no picture of %s: %s", episode, why)
    return frames


def _path(name: str, output: Path, *, alone: bool) -> Path:
    """Returns the file that a format goes to, in a folder that is there.

    Raises:
        UsageError: If there cannot be such a file.
    """
    endings = {"junit": "xml"}
    if alone and not output.is_dir() and output.suffix:
        folder, path = output.parent, output
    else:
        folder, path = output, output / f"report.{endings.get(name, name)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{str(folder)!r} cannot be made: {error.strerror}.") from error
    return path
