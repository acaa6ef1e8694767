"""`sparring show`: the results of a run that is finished, unfinished, or going on right now."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
from rich.text import Text

from sparring.orchestrator.cli.by_protocols import by_protocols_json, show_by_protocols
from sparring.orchestrator.display.errors import errors_json, errors_list
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.display.screen import show as show_on_screen
from sparring.orchestrator.display.table import results_table
from sparring.orchestrator.display.title import results_title, status
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.results import Results
from sparring.protos.episode_rules import Metric


@click.command(short_help="print the results of a run, also while it is running")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
@click.option(
    "--tasks",
    metavar="SELECTION",
    help="these tasks or groups only, comma-separated; * and ? stand for anything",
)
@click.option(
    "--metric", type=click.Choice(get_args(Metric)), help="what the table is about; default: what the run was about"
)
@click.option("--errors", is_flag=True, help="list all errors by kind, with attempts tried again and leases lost")
def show(folder: Path, as_json: bool, tasks: str | None, metric: Metric | None, errors: bool) -> None:
    """Prints the table of the run whose results are in FOLDER, and whether it is finished, unfinished or running now.

    It changes nothing in the folder, and needs neither the benchmark nor the policy.
    """
    whole = Results.load(folder)
    whole = whole if metric is None else replace(whole, metric=metric)
    results = whole if tasks is None else whole.select(tasks)
    if as_json:
        policy = None if results.policy is None else results.policy.model_dump()
        document = {
            **results.to_json(),
            **by_protocols_json(results),
            "policy": policy,
            "makers": _makers(results),
            **(errors_json(results) if errors else {}),
        }
        click.echo(json.dumps(finite(document), allow_nan=False))
        return
    show_on_screen(Text("\n".join([results_title(whole), status(whole), *_selected(results, whole), ""]), style="bold"))
    show_on_screen(errors_list(results) if errors else results_table(results))
    if not errors:
        show_by_protocols(results)


def _makers(results: Results) -> dict[str, Any]:
    """Returns who has made how many of the rows; those that have made none of them are left out."""
    made = Counter(row.maker for row in results.rows)
    return {
        str(number): {**maker.model_dump(), "episodes": made[number]}
        for number, maker in results.makers.items()
        if made[number]
    }


def _selected(results: Results, whole: Results) -> list[str]:
    if results is whole:
        return []
    return [f"below: {len(results.plan.labels())} of {count(len(whole.plan.labels()), 'task')}"]
