"""The short form of `run.py`: a few hundred inputs, thousands in make test-all, the same every time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import EVERYTHING

sys.path.append(str(Path(__file__).parent))  # for the helpers beside this file, whatever pytest's import mode

from made_up import inputs
from targets import TARGETS

EXAMPLES = 200 if EVERYTHING else 60


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_errors_of_ours_comes_out(name: str) -> None:
    target, seeds = TARGETS[name]
    for seed in seeds:
        target(seed)

    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def fed(data: st.DataObject) -> None:
        target(data.draw(inputs(seeds)))

    fed()


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.requires("atheris")
def test_the_long_form_runs() -> None:
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run.py")), "--runs=2000", "codec", "wire"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert json.loads(ended.stdout.splitlines()[-1]) == {"inputs": 4000, "failed": False}
