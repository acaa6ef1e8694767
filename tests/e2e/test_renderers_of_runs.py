"""Runs whose devices die while they draw, and runs that go on with another renderer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from egl_drivers import MESA, MORTAL, compiled, copy_of_mesa, have_drivers
from support import Sparring, read_csv

from sparring.orchestrator.results.results import Results

pytestmark = [pytest.mark.requires("rendering", "mesa"), pytest.mark.processes]

PLAN = (
    "run", "--benchmark", "metaworld", "--benchmark-arg", "resolution=16", "--policy", "looks:Looks",
    "--max-steps", "2", "--output", "out",
)  # fmt: skip
LOOKS = """
import os
from pathlib import Path
import numpy as np
from sparring import Policy, PolicySpec, TensorSpec


class Looks(Policy):
    spec = PolicySpec({"observation.image": TensorSpec("uint8", (16, 16, 3))}, action_dim=4, chunk_length=1)

    def new_session(self, task, seed):
        if "ush" in task:
            Path("device-dies").touch()

    def act(self, observations, states):
        return [np.zeros((1, 4)) for _ in observations]
"""


@pytest.fixture
def looks(tmp_path: Path) -> None:
    """A policy that looks at images; when it hears of a puck that is to be pushed, the mortal device dies."""
    (tmp_path / "looks.py").write_text(LOOKS)


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A driver that draws with Mesa until a file is there, and then aborts whoever wants another context of it."""
    folder = tmp_path / "driver"
    library = compiled(folder, MORTAL)
    monkeypatch.setenv("MORTAL_MESA", str(copy_of_mesa(folder)))
    monkeypatch.setenv("MORTAL_DEVICE", str(tmp_path / "device-dies"))
    return library


@pytest.mark.requires("cc")
@pytest.mark.parametrize(
    ("drivers", "deaths", "instead"),
    [(2, 1, "EGL device 1"), pytest.param(1, 2, "OSMesa", marks=pytest.mark.everything)],
)
def test_a_device_that_aborts_costs_a_slots_restart_on_another(
    sparring: Sparring,
    looks: None,
    mortal: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drivers: int,
    deaths: int,
    instead: str,
) -> None:
    have_drivers(tmp_path, monkeypatch, *[mortal, MESA][:drivers])
    done = sparring(*PLAN, "--task", "reach-v3,push-v3", "--episodes", "1", "--slots", "1")
    assert done.returncode == 0, done.stderr
    results = Results.load(tmp_path / "out")
    assert [(row.outcome, row.attempts) for row in results.rows] == [("failure", 1)] * 2
    assert sum(event.kind == "lost" for event in results.events) == deaths
    (said,) = results.warnings
    assert said == (
        "EGL device 0 is left alone: while it drew, the slot's process was ended by SIGABRT. "
        f"Slots draw on {instead} from then on."
    )
    assert " ".join(done.stdout.split()).count(said) == 1, "under the table, once"


@pytest.mark.everything
@pytest.mark.parametrize("how", [("--in-process",), ("--slots", "1")], ids=["in this process", "in a slot"])
def test_a_run_goes_on_with_the_same_renderer_or_is_asked(
    sparring: Sparring, looks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    plan = (*PLAN, "--task", "reach-v3", *how)
    assert sparring(*plan, "--episodes", "1").returncode == 0
    (first,) = {row["renderer"] for row in read_csv(tmp_path / "out")}
    assert "Mesa" in first

    other = "llvmpipe" if first.startswith("softpipe") else "softpipe"
    monkeypatch.setenv("GALLIUM_DRIVER", other)
    refused = sparring(*plan, "--episodes", "2")
    assert refused.returncode == 2, refused.stderr
    assert f"renderer: {first} there, {other}" in " ".join(refused.stderr.split())
    assert "--accept-changes" in refused.stderr
    assert "--render-device" in refused.stderr
    assert len(read_csv(tmp_path / "out")) == 1, "nothing was played with it"

    accepted = sparring(*plan, "--episodes", "2", "--accept-changes")
    assert accepted.returncode == 0, accepted.stderr
    said = "episodes of metaworld were drawn by different renderers, whose pixels differ"
    assert said in " ".join(accepted.stdout.split())
    document = json.loads((tmp_path / "out" / "run.json").read_text())
    assert sorted(document["renderers"].values()) == [1, 1]
    assert first in document["renderers"]

    assert sparring(*plan, "--episodes", "3").returncode == 0, "both are known now"
