"""LIBERO as LeRobot 0.6.1 has it and as we do: the same actions, and the same checkpoint, give the same everything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import STATISTICS, act_config, save
from libero_by_lerobot import IMAGES, SETTLED, environment
from support import EVERYTHING, Sparring, read_csv
from tiny_models import LEROBOT

from sparring.env_worker.benchmarks.libero import Libero
from sparring.env_worker.protocol import protocols_of, whole

PROGRAM = Path(__file__).with_name("libero_by_lerobot.py")
CAMERAS = ("observation.images.image", "observation.images.image2")
SIDE, SEED, STEPS = 64, 1000, 100

pytestmark = [
    pytest.mark.processes,
    pytest.mark.requires("libero", "libero-assets", "rendering"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(LEROBOT < (0, 6), reason="LeRobot 0.4 resets LIBERO twice where an episode ends"),
]


def by_lerobot(*arguments: Any, out: Path) -> Mapping[str, Any]:
    done = subprocess.run(
        [sys.executable, PROGRAM, *map(str, arguments), out],
        env=environment(), capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(out) as found:
        return dict(found)


def test_the_protocol_has_the_rules_of_lerobot_0_6(tmp_path: Path) -> None:
    assert version("lerobot") == "0.6.1"
    theirs = by_lerobot("rules", "-", 0, 0, out=tmp_path / "found.npz")
    protocol = whole(Libero(), protocols_of(Libero())["lerobot-0.6"])
    ours = {**protocol.settings, "seed": protocol.seed}
    assert {name: ours[name] for name in theirs} == {name: value.item() for name, value in theirs.items()}
    assert set(ours) - set(theirs) == {"initial_states", "seeding"}, "those are what the replay below is about"


# One task in `make test`; more have other fixtures, other cameras and other lengths.
@pytest.mark.parametrize("task", ["libero_goal/8", "libero_object/1", "libero_spatial/0"][: None if EVERYTHING else 1])
def test_the_same_actions_lead_to_the_same_bits(task: str, tmp_path: Path) -> None:
    found = by_lerobot("replay", task, SIDE, SEED, out=tmp_path / "found.npz")
    for name in ("reward", "success", *SETTLED, *IMAGES):
        ours, theirs = found[f"ours/{name}"], found[f"theirs/{name}"]
        assert ours.shape == theirs.shape, name
        assert np.array_equal(ours, theirs), name
    ours, theirs = found["ours/observation.state"], found["theirs/observation.state"]
    assert np.array_equal(ours[:, [0, 1, 2, 6, 7]], theirs[:, [0, 1, 2, 6, 7]])
    np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)  # LeRobot turns quaternions in single precision
    assert found["theirs/success"][-1], "without a success there is nothing that rewards could differ in"
    assert found["theirs/reward"].sum() == 1.0
    assert len(np.unique(found["theirs/agentview_image"])) > 50, "an empty image would be the same in any case"


# In `make test` it is Meta-World's parity that has a checkpoint: here the processes that start are a minute of its ten.
@pytest.mark.everything
def test_the_same_checkpoint_plays_the_same_episodes(sparring: Sparring, tmp_path: Path) -> None:
    checkpoint = save(_act(), tmp_path / "act", statistics=_STATISTICS)
    with ThreadPoolExecutor(1) as pool:  # most of a run is waiting for processes to start
        run = pool.submit(
            sparring, "run", "--benchmark", "libero", "--task", "libero_goal/8", "--policy", f"lerobot:{checkpoint}",
            "--policy-arg", "device=cpu", "--episodes", "2", "--seed", str(SEED), "--max-steps", str(STEPS),
            "--benchmark-arg", f"resolution={SIDE}", "--slots", "1", "--record", "seen", "--output", "out", timeout=500,
        )  # fmt: skip
        theirs = by_lerobot("evaluate", "libero_goal/8", SIDE, SEED, STEPS, checkpoint, out=tmp_path / "found.npz")
        done = run.result()
    assert done.returncode == 0, done.stdout + done.stderr
    rows = sorted(read_csv(tmp_path / "out"), key=lambda row: int(row["index"]))
    assert [float(row["reward_sum"]) for row in rows] == list(theirs["sum_rewards"])
    assert [row["outcome"] == "success" for row in rows] == list(theirs["successes"])
    for index in range(2):
        with np.load(tmp_path / "seen" / "libero" / "libero_goal_8" / f"{index:04}.npz") as episode:
            np.testing.assert_allclose(episode["actions"], theirs["actions"][index], rtol=1e-5, atol=1e-6)
    difference = np.abs(theirs["actions"][0][-1] - theirs["actions"][1][-1]).max()
    assert difference > 1e-3, "episodes that are all alike would prove nothing"


def _act() -> Any:
    from lerobot.configs.types import FeatureType, PolicyFeature

    config = act_config(SIDE, CAMERAS)
    config.input_features["observation.state"] = PolicyFeature(FeatureType.STATE, (8,))
    config.output_features["action"] = PolicyFeature(FeatureType.ACTION, (7,))
    return config


def _repeated(name: str, size: int) -> dict[str, Any]:
    return {kind: values.repeat(2)[:size] for kind, values in STATISTICS[name].items()}


_STATISTICS = {**STATISTICS, "observation.state": _repeated("observation.state", 8), "action": _repeated("action", 7)}
