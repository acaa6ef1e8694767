"""`sparring compare`: runs side by side, by pairs of the same episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from sparring.orchestrator.cli.options import given
from sparring.orchestrator.cli.replaying import worker_options
from sparring.orchestrator.cli.statistics import needs_scipy
from sparring.orchestrator.display.screen import show
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.results import Results, compared_metric
from sparring.protos.episode_rules import Metric
from sparring.protos.errors import UsageError

if TYPE_CHECKING:
    from sparring.orchestrator.cli.compared_pages import ComparedPage

_FILMS: Final = 12


@click.command(short_help="hold runs against each other: is the new checkpoint really better?")
@click.argument("folders", metavar="A B [C...]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--tasks", metavar="SELECTION", help="these tasks or groups only, comma-separated; * and ? stand for anything"
)
@click.option("--force", is_flag=True, help="compare although something that moves a score is not the same in both")
@click.option(
    "--metric", type=click.Choice(get_args(Metric)), help="what is compared; default: what all of the runs were about"
)
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="write a page, such as compare.html: differences with intervals, and what flipped, or by returns differs "
    "most, with both films",
)
@click.option(
    "--films",
    type=click.IntRange(min=0),
    default=_FILMS,
    show_default=True,
    help="with --html: the first so many of these episodes are played again to be filmed, if they have no film",
)
@click.option("--embed", is_flag=True, help="with --html: put films into the page, instead of their paths")
@worker_options
def compare(
    folders: tuple[Path, ...],
    tasks: str | None,
    force: bool,
    metric: Metric | None,
    as_json: bool,
    page: Path | None,
    films: int,
    embed: bool,
    **values: Any,
) -> None:
    """Compares the run in B, and those in C and so on, with the run in A.

    Episodes of the same seed and task are pairs. Only pairs in which one run succeeded and the other failed say
    something; McNemar's exact test judges by these. Without common episodes the rates are compared, and it says so.
    Returns are compared by the mean difference of pairs, with Student's t.
    """
    if len(folders) < 2:
        raise UsageError("two runs are needed: sparring compare outputs/first outputs/second")
    if page is None and (embed or films != _FILMS):
        raise UsageError(f"{'--embed' if embed else '--films'} is for the page: name it with --html.")
    with needs_scipy("sparring compare"):
        from sparring.orchestrator.cli.compared_pages import ComparedPage
        from sparring.orchestrator.comparison.comparison import compare as compare_runs
        from sparring.orchestrator.display.comparison import comparison_table, runs_compared
    runs = [Results.load(folder) for folder in folders]
    runs = runs if tasks is None else [run.select(tasks) for run in runs]
    names = _names(folders)
    wanted = None if page is None else ComparedPage(page, films, embed, given(values))
    if (metric or compared_metric(runs)) == "return":
        _compare_returns(runs, names, force, as_json, wanted)
        return
    found = [compare_runs(runs[0], other, force=force) for other in runs[1:]]
    if wanted is not None:
        wanted.write(found, names)
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
    if page is not None:
        click.echo(page)


def _compare_returns(
    runs: Sequence[Results], names: Sequence[str], force: bool, as_json: bool, wanted: ComparedPage | None
) -> None:
    from sparring.orchestrator.comparison.returns import compare_returns
    from sparring.orchestrator.display.compared_returns import returns_table
    from sparring.orchestrator.display.comparison import runs_compared

    found = [compare_returns(runs[0], other, force=force) for other in runs[1:]]
    if wanted is not None:
        wanted.write_returns(found, runs, names)
    if as_json:
        documents = [
            {"first": str(runs[0].folder), "second": str(run.folder), **comparison.to_json()}
            for run, comparison in zip(runs[1:], found, strict=True)
        ]
        click.echo(json.dumps(finite(documents[0] if len(documents) == 1 else documents), allow_nan=False))
        return
    for name, run, comparison in zip(names[1:], runs[1:], found, strict=True):
        show(runs_compared((names[0], name), (runs[0], run)))
        show(returns_table(comparison, (names[0], name)))
    if wanted is not None:
        click.echo(wanted.path)


def _names(folders: tuple[Path, ...]) -> list[str]:
    """Returns what runs are called in a table: the last part of their path, or the whole where that is not enough."""
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]
