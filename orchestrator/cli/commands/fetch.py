"""`sparring fetch`: has a benchmark's assets here before a run needs them."""

from __future__ import annotations

import json

import click

from sparring.orchestrator.settings.assets import fetch_for
from sparring.protos.errors import UsageError


@click.command(short_help="download a benchmark's assets")
@click.argument("benchmark")
@click.option("--settings", default="{}", help="the benchmark's own settings, a JSON object")
def fetch(benchmark: str, settings: str) -> None:
    """Downloads the assets of BENCHMARK into the cache, if they are not there; a run would do the same."""
    try:
        given = json.loads(settings)
    except ValueError as error:
        raise UsageError(f"--settings is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise UsageError("--settings is not a JSON object.")
    fetch_for(benchmark, given)
    click.echo(f"{benchmark} has its assets.")
