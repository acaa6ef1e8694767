"""`sparring report`: what came of a run, to look at and to hand on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, get_args

import click

from sparring.orchestrator.report.content import report_content
from sparring.orchestrator.report.formats import TableFormat, write_table
from sparring.orchestrator.report.markdown import report_markdown
from sparring.orchestrator.report.page import embed_films, report_page
from sparring.orchestrator.results.document import read_document, to_json
from sparring.orchestrator.results.files import replace_file
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError

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
def report(folder: Path, formats: tuple[str, ...], output: Path | None, embed: bool, tasks: str | None) -> None:
    """Makes report.html and report.md of the run in FOLDER, finished or not.

    It needs neither the benchmark nor the policy, and reads only what is in the folder.
    """
    chosen = list(dict.fromkeys(formats or _PAGES))
    results = Results.load(folder)
    results = results if tasks is None else results.select(tasks)
    to_stdout = output is not None and str(output) == "-"
    if to_stdout and len(chosen) > 1:
        raise UsageError("standard output has place for one format: name it with --format.")
    if embed and "html" not in chosen:
        raise UsageError("--embed is for the page: add --format html.")
    target = Path() if to_stdout else folder if output is None else output
    for name in chosen:
        path = target if to_stdout else _path(name, target, alone=len(chosen) == 1)
        beside = Path.cwd() if to_stdout else path.parent
        if name in get_args(TableFormat):
            write_table(results, name, sys.stdout.buffer if to_stdout else path)  # type: ignore[arg-type]
        else:
            content = report_content(results, read_document(folder), beside)
            if name == "html" and embed:
                embed_films(content, beside)
            text = {"html": report_page, "md": report_markdown, "json": to_json}[name](content)
            if to_stdout:
                click.echo(text, nl=False)
            else:
                replace_file(path, text)
        if not to_stdout:
            click.echo(path)


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
