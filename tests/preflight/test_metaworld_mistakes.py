"""Every mistake that preflight knows, deliberately made on Meta-World; and right set-ups, which are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bridges.foreign_servers import OpenpiServer, listening, pack
from preflight.training_sets import Change, changed
from seeing_policies import IMAGE, STATE, Seeing

from sparring.orchestrator.execution.in_process import run_in_process
from sparring.orchestrator.preflight.data_set import DataSet
from sparring.orchestrator.preflight.evidence import Ask, Evidence, PolicyNames
from sparring.orchestrator.preflight.playing import Rehearsed, asking
from sparring.orchestrator.preflight.preflight import PreflightRequest, observe, verdicts_of
from sparring.orchestrator.preflight.script import Script
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy

pytestmark = pytest.mark.processes

SIDE, STEPS = 48, 36
BLIND = {"policy": "random", "policy_arg": {"chunk": 9, "observations": [STATE]}}
"""A policy that looks at no images: they take their time."""
ON = {"benchmark": "metaworld", "benchmark_arg": {"resolution": SIDE}, "in_process": True}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy's own training, so to speak."""
    folder = tmp_path_factory.mktemp("training")
    given = {
        **ON,
        "task": "drawer-open-v3",
        "policy": "seeing_policies:Seeing",
        "episodes": 2,
        "max_steps": STEPS,
        "seed": 7,
    }
    settings = read_settings({**given, "record": folder / "seen", "output": folder / "run"})
    run_in_process(settings, make_plan(settings), folder / "run")
    return folder / "seen"


@pytest.fixture(scope="module")
def evidence(right: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """What is seen of the policy where everything is right, and the policy, to be asked."""
    given = {"policy": "seeing_policies:Seeing", "policy_arg": {"chunk": 8}}
    return seen_of(tmp_path_factory.mktemp("seen"), dataset=right.folder, **given)


@pytest.fixture(scope="module")
def right(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return changed(recordings, tmp_path_factory.mktemp("right"), lambda arrays: None)


def seen_of(folder: Path, dataset: Path | None = None, **given: Any) -> Evidence:
    found: list[Evidence] = []
    observe(
        PreflightRequest(folder, {**ON, "task": "drawer-open-v3", **given}, dataset=dataset, steps=STEPS), found.append
    )
    return found[0]


def trained_on(evidence: Evidence, data_set: DataSet) -> Evidence:
    """The same, as if the policy had been trained on another data set, whose actions are those that were played."""
    return replace(evidence, data_set=data_set, script=Script.of(data_set, evidence.instruction, STEPS))


def asked_of(policy: LocalPolicy, evidence: Evidence) -> Ask:
    """Asks another policy than the one that has played."""
    played = Rehearsed(evidence.episodes, evidence.probe)
    return asking(policy, played, task="drawer-open-v3", benchmark="metaworld")


def findings(evidence: Evidence) -> dict[str, str]:
    """What was found, by its rule."""
    return {verdict.rule: verdict.detail for verdict in verdicts_of(evidence) if verdict.kind == "FAILED"}


def verdicts(evidence: Evidence) -> dict[str, str]:
    return {verdict.rule: verdict.kind for verdict in verdicts_of(evidence)}


SEEN_IMAGE, SEEN_STATE = f"observations/{IMAGE}", f"observations/{STATE}"
HANGS = f"{IMAGE}: it hangs as in training: not upside down, not mirrored."
COLOURS = f"{IMAGE}: red and blue are not exchanged."
SIZE = f"{IMAGE}: it has the size that it was trained on."
BEGINS = f"{STATE}: it begins as in training: same numbers, same order, signs and units."
DOES = "Actions of training do in the simulator what they did then: same sign, same scale, same meaning."
RANGE = "The training set's actions have the range of the action space."
ANSWERS = "The policy answers frames of its training as the training set does."
SENTENCE = "The instruction is one of the training set's, word by word."


def images(change: Any) -> Change:
    def made(arrays: dict[str, Any]) -> None:
        arrays[SEEN_IMAGE] = np.ascontiguousarray(change(arrays[SEEN_IMAGE]))

    return made


def states(change: Any) -> Change:
    def made(arrays: dict[str, Any]) -> None:
        arrays[SEEN_STATE] = np.ascontiguousarray(change(arrays[SEEN_STATE])).astype(np.float32)

    return made


def actions(change: Any) -> Change:
    def made(arrays: dict[str, Any]) -> None:
        arrays["actions"] = np.ascontiguousarray(change(arrays["actions"]))

    return made


def factors(*numbers: float) -> Any:
    return lambda rows: rows * np.array(numbers)


def poses(arrays: dict[str, Any]) -> None:
    """Actions that are where the hand was to be."""
    rows = arrays[SEEN_STATE]
    arrays["actions"] = np.concatenate([np.vstack([rows[1:], rows[-1:]])[:, :3], arrays["actions"][:, 3:]], axis=1)


MISTAKES: dict[str, tuple[Change, str, str]] = {
    # What training had otherwise, the rule that finds it, and words of what it says.
    "upside down": (images(lambda film: film[:, ::-1]), HANGS, "shown upside down"),
    "mirrored": (images(lambda film: film[:, :, ::-1]), HANGS, "shown mirrored"),
    "turned": (images(lambda film: film[:, ::-1, ::-1]), HANGS, "shown turned by 180 degrees"),
    "rows for columns": (images(lambda film: np.swapaxes(film, 1, 2)), HANGS, "rows and columns exchanged"),
    "quarter turn": (images(lambda film: np.rot90(film, 1, (1, 2))), HANGS, "shown turned by"),
    "BGR": (images(lambda film: film[..., ::-1]), COLOURS, "BGR"),
    "resolution": (images(lambda film: film[:, ::2, ::2]), SIZE, "{{benchmark_arg.resolution=24}}"),
    "order of the state": (states(lambda rows: rows[:, [2, 1, 0, 3]]), BEGINS, "numbers 0 and 2 exchanged"),
    "sign of the state": (states(factors(1, -1, 1, 1)), BEGINS, "another sign of number 1"),
    "units of the state": (states(factors(1000, 1000, 1000, 1)), BEGINS, "millimetres"),
    "sign of what begins at zero": (states(factors(-1, 1, 1, 1)), DOES, "the other way"),
}
IN_ACTIONS: dict[str, tuple[Change, str, str]] = {
    "sign of an action": (actions(factors(-1, 1, 1, 1)), DOES, "the other way"),
    "sign of the gripper": (actions(factors(1, 1, 1, -1)), DOES, "number 3 of 'observation.state'"),
    "metres for steps": (actions(factors(0.04, 0.04, 0.04, 1)), RANGE, "metres"),
    "a step a quarter as large": (actions(factors(0.25, 0.25, 0.25, 1)), DOES, "times as far"),
    "degrees, or pixels": (actions(factors(100, 100, 100, 1)), RANGE, "degrees or pixels"),
    "poses for movements": (poses, DOES, "absolute"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, evidence: Evidence, recordings: Path, tmp_path: Path) -> None:
    change, rule, words = MISTAKES[mistake]
    found = findings(trained_on(evidence, changed(recordings, tmp_path, change)))
    assert rule in found, found
    assert words in found[rule]


@pytest.mark.parametrize("mistake", IN_ACTIONS)
def test_a_mistake_in_actions_is_found(mistake: str, recordings: Path, tmp_path: Path) -> None:
    change, rule, words = IN_ACTIONS[mistake]
    changed(recordings, tmp_path, change)
    found = findings(seen_of(tmp_path / "seen", **BLIND, dataset=tmp_path / "set"))
    assert rule in found, found
    assert words in found[rule]


WRONG = {
    "upside down": "images shown upside down",
    "mirrored": "images shown mirrored",
    "turned by 180 degrees": "images shown turned by 180 degrees",
    "red and blue exchanged": "images shown with red and blue exchanged",
    "gripper negated": "the gripper, mostly, goes the other way",
    "actions in metres": "times as large",
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_in_the_policys_own_code_is_found(mistake: str, evidence: Evidence, right: DataSet) -> None:
    """What it is shown is right, and it makes something else of it before its network sees it."""
    ask = asked_of(LocalPolicy(Seeing(mistake), name="seeing"), evidence)
    found = findings(trained_on(replace(evidence, ask=ask), right))
    assert list(found) == [ANSWERS]
    assert WRONG[mistake] in found[ANSWERS]


def test_a_right_set_up_is_left_alone(evidence: Evidence, right: DataSet) -> None:
    seen = trained_on(evidence, right)
    assert findings(seen) == {}
    kinds = verdicts(seen)
    assert all(kinds[rule] == "ok" for rule in (HANGS, COLOURS, SIZE, BEGINS, DOES, RANGE, ANSWERS)), kinds


TOLD = ("values from 0 to 255", "state negated")


@pytest.mark.parametrize("mistake", TOLD)
def test_what_else_is_wrong_in_a_policy_is_told(mistake: str, evidence: Evidence, right: DataSet) -> None:
    """By its answers it has learned nothing, or the opposite; that it is shown something else is one reason."""
    asked = replace(evidence, ask=asked_of(LocalPolicy(Seeing(mistake), name="seeing"), evidence))
    assert verdicts(trained_on(asked, right))[ANSWERS] != "ok"


@contextmanager
def openpi(mistake: str = "", *, gripper: Callable[[float], float] = lambda given: given) -> Iterator[str]:
    """A server of openpi's wire with the trained policy behind it; its address."""
    policy = Seeing(mistake)

    def answer(connection: Any, seen: dict[str, Any]) -> None:
        action = policy.act([{IMAGE: seen["observation/image"], STATE: seen["observation/state"]}], [0.0])[0]
        action[:, -1] = gripper(float(action[0, -1]))
        connection.send(pack({"actions": np.tile(action, (5, 1))}))

    server = OpenpiServer()
    server.answer = answer
    with listening(server.handle) as port:
        yield f"openpi://127.0.0.1:{port}"


def behind(address: str, evidence: Evidence, right: DataSet, **arguments: Any) -> Evidence:
    """The same run, of a policy behind a bridge."""
    policy = LocalPolicy(load_policy(address, arguments), name=address)
    asked = replace(evidence, policy=PolicyNames(address), ask=asked_of(policy, evidence))
    return trained_on(asked, right)


def test_a_right_bridge_is_left_alone(evidence: Evidence, right: DataSet) -> None:
    with openpi() as address:
        found = behind(address, evidence, right)
        assert findings(found) == {}
        assert verdicts(found)[ANSWERS] == "ok"


def test_a_server_that_turns_images_is_found(evidence: Evidence, right: DataSet) -> None:
    with openpi("mirrored") as address:
        said = findings(behind(address, evidence, right))[ANSWERS]
    assert "images shown mirrored" in said
    assert "{{policy_arg.images}}" in said


def test_a_bridges_gripper_is_found_and_what_sets_it_right_is(evidence: Evidence, right: DataSet) -> None:
    """Its server says 0 to 1, with 1 for open, and the layout plays that as it is."""
    with openpi(gripper=lambda given: (1 - given) / 2) as address:
        said = findings(behind(address, evidence, right))[ANSWERS]
        assert "the gripper, mostly, goes the other way" in said
        assert "{{policy_arg.gripper}}" in said
        assert findings(behind(address, evidence, right, gripper="zero-one-inverted")) == {}
