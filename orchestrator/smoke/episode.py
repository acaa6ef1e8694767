"""A smoke evaluation: one episode with rendering on, and a look at everything that came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparring.env_worker.benchmark import Benchmark, SmokeTest
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.execution.execution import run
from sparring.orchestrator.execution.prepare import prepare
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.spec import TensorSpec

_RECORDING: Final = "recording"
_FEWEST_SHADES: Final = 16
"""An image of fewer is not of a simulated world: black, or one colour, is what broken rendering gives."""


class SmokeFailed(SparringError):
    """The episode ran, and something about it is not as it must be."""


@dataclass(frozen=True)
class Smoke:
    """What a smoke evaluation has seen.

    Attributes:
        task: That was played.
        steps: Of the episode.
        film: What is in its video.
        seen: Observations, as the policy got them.
        seconds: All in all.
    """

    task: str
    steps: int
    film: str
    seen: Mapping[str, TensorSpec]
    seconds: float

    def __str__(self) -> str:
        seen = ", ".join(f"{name} {spec}" for name, spec in self.seen.items())
        return f"{self.task}: success in {self.steps} steps; {seen}; {self.film}; {self.seconds:.0f} s"


def smoke_test(benchmark: Benchmark) -> SmokeTest:
    """Returns the benchmark's smoke test.

    Raises:
        UsageError: If it has none.
    """
    if benchmark.smoke is None:
        raise UsageError(f"the benchmark {benchmark.name!r} says nothing of a smoke test: give its class a `smoke`.")
    return benchmark.smoke


def policy_arguments(test: SmokeTest) -> dict[str, Any]:
    """Returns what a smoke test's policy has to be made with: it must look at everything that is to be checked."""
    return {"look": list(test.layout)}


async def smoke(name: str, folder: Path, **settings: Any) -> Smoke:
    """Plays one episode of a benchmark and checks its outcome, what the policy saw, and the film.

    Args:
        name: Of the benchmark.
        folder: For everything that comes of it.
        settings: Further settings of the run; a `policy_server` must host what `policy_arguments` says.

    Raises:
        SmokeFailed: If something is not as it must be.
        SparringError: If it could not be played.
    """
    began = time.monotonic()
    test = smoke_test(get_benchmark(name))
    if not settings.get("policy_server"):
        settings |= {"policy": test.policy, "policy_arg": policy_arguments(test)}
    settings |= {"benchmark": name, "task": test.task, "episodes": 1, "slots": 1}
    given = read_settings({**settings, "video": "all", "record": folder / _RECORDING, "output": folder / "run"})
    prepare(given)
    results = await run(given, make_plan(given), folder / "run")
    row = _only_row(results)
    seen = _check_layout(folder / _RECORDING, test.layout)
    return Smoke(test.task, row.steps, _check_film(folder / "run", row), seen, time.monotonic() - began)


def _only_row(results: Results) -> EpisodeRow:
    (row,) = results.rows
    if row.outcome != "success":
        why = f": {row.error}" if row.error else f" after {row.steps} steps, and this policy succeeds"
        raise SmokeFailed(f"{row.task} ended in {row.outcome}{why}.")
    if not row.renders:
        raise SmokeFailed(f"{row.task} was played without rendering a single image.")
    return row


def _check_layout(recordings: Path, layout: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Compares what was recorded with what the benchmark promises; a recording holds what the policy got."""
    (file,) = recordings.rglob("*.npz")
    seen = {}
    with np.load(file, allow_pickle=False) as recording:
        about = json.loads(recording["about"].tobytes())
        for name, expected in layout.items():
            key = f"observations/{name}"
            if key not in recording:
                raise SmokeFailed(f"{about['task']} showed no {name!r}, which every policy of this benchmark may use.")
            values = recording[key]
            seen[name] = TensorSpec(str(values.dtype), values.shape[1:])
            if seen[name] != expected:
                raise SmokeFailed(f"{name!r} is {seen[name]}, and policies of this benchmark expect {expected}.")
            if values.dtype == np.uint8 and (shades := len(np.unique(values[0]))) < _FEWEST_SHADES:
                raise SmokeFailed(f"{name!r} shows nothing: its first image has {shades} shades. Rendering is broken.")
    return seen


def _check_film(folder: Path, row: EpisodeRow) -> str:
    path = folder / row.video
    if not row.video or not path.is_file():
        raise SmokeFailed("no film was made.")
    try:
        import av
    except ImportError:  # the orchestrator's image has no decoder; whoever made the film has
        if path.read_bytes()[4:8] != b"ftyp":
            raise SmokeFailed(f"{str(path)!r} is not an mp4 file.") from None
        return f"film of {path.stat().st_size / 1000:.0f} kB"
    with av.open(str(path)) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    if not frames or len(np.unique(frames[-1])) < _FEWEST_SHADES:
        raise SmokeFailed(f"the film {str(path)!r} shows nothing ({len(frames)} frames).")
    return f"film of {len(frames)} frames"
