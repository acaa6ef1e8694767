"""`sparring compare`: runs side by side, by pairs of the same episode."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sparring.orchestrator.cli.statistics import needs_scipy
from sparring.orchestrator.display.screen import show
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError


@click.command(short_help="hold runs against each other: is the new checkpoint really better?")
@click.argument("folders", metavar="A B [C...]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--tasks", metavar="SELECTION", help="these tasks or groups only, comma-separated; * and ? stand for anything"
)
@click.option("--force", is_flag=True, help="compare although something that moves a score is not the same in both")
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
def compare(folders: tuple[Path, ...], tasks: str | None, force: bool, as_json: bool) -> None:
    """Compares the run in B, and those in C and so on, with the run in A.

    Episodes of the same seed and task are pairs. Only pairs in which one run succeeded and the other failed say
    something; McNemar's exact test judges by these. Without common episodes the rates are compared, and it says so.
    """
    if len(folders) < 2:
        raise UsageError("two runs are needed: sparring compare outputs/first outputs/second")
    with needs_scipy("sparring compare"):
        from sparring.orchestrator.comparison.comparison import compare as compare_runs
        from sparring.orchestrator.display.comparison import comparison_table, runs_compared
    runs = [Results.load(folder) for folder in folders]
    runs = runs if tasks is None else [run.select(tasks) for run in runs]
    names = _names(folders)
    found = [compare_runs(runs[0], other, force=force) for other in runs[1:]]
    if as_json:
        documents = [
            {"first": str(folders[0]), "second": str(folder), **comparison.to_json()}
            for folder, comparison in zip(folders[1:], found, strict=True)
        ]
        click.echo(json.dumps(finite(documents[0] if len(documents) == 1 else documents), allow_nan=False))
        return
    for name, comparison in zip(names[1:], found, strict=True):
        show(runs_compared((names[0], name), (comparison.first, comparison.second)))
        show(comparison_table(comparison, (names[0], name)))


def _names(folders: tuple[Path, ...]) -> list[str]:
    """Returns what runs are called in a table: the last part of their path, or the whole where that is not enough."""
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]
