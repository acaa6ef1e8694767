"""The assets of a benchmark as a run's settings name them, and as they are fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparring.env_worker.benchmark import asking
from sparring.env_worker.hub import AssetsError, HubMissing
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.settings.plan import Evaluation
from sparring.orchestrator.settings.run import RunSettings
from sparring.protos.errors import UsageError


def benchmark_settings(settings: RunSettings, part: Evaluation) -> dict[str, Any]:
    """Returns what a benchmark is told: its own arguments, and the assets folder if it has assets."""
    assets = get_benchmark(part.benchmark).assets
    if settings.worker.assets is None or assets is None:
        return dict(part.benchmark_arg)
    return {assets.setting: str(settings.worker.assets.absolute()), **part.benchmark_arg}


def assets_of(settings: RunSettings, part: Evaluation) -> Path | None:
    """Returns the assets folder that a setting or a variable names for a benchmark; None: they are downloaded.

    Raises:
        UsageError: If the name means different folders in different places.
    """
    assets = get_benchmark(part.benchmark).assets
    if assets is None:
        return None
    named = benchmark_settings(settings, part).get(assets.setting) or os.environ.get(assets.variable)
    if not named:
        return None
    if not Path(named).is_absolute():
        raise UsageError(f"assets={named!r} means another folder to workers in containers; give its absolute path.")
    return Path(named)


def fetch_assets(settings: RunSettings, part: Evaluation) -> None:
    """Has a benchmark's assets here, downloaded if need be.

    Raises:
        SparringError: If they cannot be had.
    """
    fetch_for(part.benchmark, benchmark_settings(settings, part))


def fetch_for(name: str, given: Mapping[str, Any]) -> None:
    """Has a benchmark's assets here, downloaded if need be, by the Python that can.

    Args:
        name: Of the benchmark whose they are, or `module:Class`.
        given: Its own settings.

    Raises:
        SparringError: If they cannot be had.
    """
    benchmark = get_benchmark(name)
    try:
        with asking(name, "fetch()"):
            benchmark.fetch(benchmark.read_settings(given))
    except HubMissing:
        python = interpreter(benchmark)
        if python == Path(sys.executable):
            raise
        command = [str(python), "-P", "-m", "sparring.env_worker.fetch", name, json.dumps(dict(given))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # as long as a download takes
        if done.returncode != 0:
            raise AssetsError(done.stdout or f"the assets of {benchmark.name!r} could not be fetched.") from None
