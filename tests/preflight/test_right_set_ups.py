"""Set-ups in which nothing is wrong: Meta-World's experts and what they have done, on tasks of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from preflight.training_sets import changed
from support import EVERYTHING

from sparring import preflight
from sparring.orchestrator.execution.in_process import run_in_process
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings

pytestmark = pytest.mark.processes

ALL = (
    *("push-v3", "door-open-v3", "disassemble-v3", "reach-v3", "button-press-topdown-v3", "pick-place-v3"),
    *("drawer-close-v3", "sweep-into-v3", "hammer-v3", "peg-unplug-side-v3"),
)
TASKS = ALL if EVERYTHING else ALL[:3]
EXPERT = {"policy": "expert", "policy_arg": {"look": ["observation.state"]}, "benchmark": "metaworld"}


@pytest.mark.parametrize("task", TASKS)
def test_an_expert_that_is_held_against_itself_has_no_finding(task: str, tmp_path: Path) -> None:
    given = {**EXPERT, "in_process": True, "task": task}
    training = read_settings(
        {**given, "episodes": 3, "max_steps": 60, "seed": 7, "record": tmp_path / "seen", "output": tmp_path / "run"}
    )
    run_in_process(training, make_plan(training), tmp_path / "run")
    changed(tmp_path / "seen", tmp_path, lambda arrays: None, observations=["*state"])
    found = preflight(**given, dataset=tmp_path / "set")
    assert [str(finding) for finding in found.findings] == []
    kinds = {verdict.rule: verdict.kind for verdict in found.verdicts}
    assert kinds["observation.state: it begins as in training: same numbers, same order, signs and units."] == "ok"
    assert kinds["The policy answers frames of its training as the training set does."] == "ok"
