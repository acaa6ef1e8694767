"""The protocols of LIBERO against the projects whose rules they are: the same policy, the same bits, the same end.

vla-eval 0.8.0 by its own code; openpi by its client loop and GR00T N1.7 by its environment, both written anew, with
openpi-client 0.1.2's image tools. LeRobot's are in tests/lerobot.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from foreign.libero_by_others import environment

from sparring.env_worker.benchmarks.libero import Libero
from sparring.env_worker.protocol import protocols_of, whole
from sparring.policy_server.bridges.presets import PRESETS

PROGRAM = Path(__file__).with_name("libero_by_others.py")
SIDE = 64
"""Not 256: pixels cost time, and that protocols say 256 is looked at apart."""


def test_these_are_the_versions() -> None:
    assert version("vla-eval") == "0.8.0"
    assert version("openpi-client") == "0.1.2"


def test_limits_and_seeds_are_those_of_vla_eval() -> None:
    from vla_eval.benchmarks.libero import LIBEROBenchmark
    from vla_eval.benchmarks.libero import benchmark as module

    protocol = whole(Libero(), protocols_of(Libero())["vla-eval"])
    for suite in ("spatial", "object", "goal", "10", "90"):
        theirs = LIBEROBenchmark(f"libero_{suite}")
        assert protocol.settings[f"limit_{suite}"] == theirs.get_metadata()["max_steps"]
        assert (protocol.seed, protocol.settings["settling_steps"]) == (theirs.env_seed, theirs.num_steps_wait)
        assert (protocol.settings["control"] == "absolute") == theirs.absolute_action
    assert protocol.settings["resolution"] == module.LIBERO_ENV_RESOLUTION


@pytest.mark.parametrize("name", ["openpi", "vla-eval", "gr00t"])
def test_a_protocol_and_the_layout_of_its_bridge_agree(name: str) -> None:
    protocol = whole(Libero(), protocols_of(Libero())[name])
    assert protocol.layout == name
    play = PRESETS[name]["libero"].play
    assert play == (protocol.rules["actions_per_look"] or 1)


@pytest.mark.processes
@pytest.mark.requires("libero", "libero-assets", "rendering")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "task"), [("vla-eval", "libero_goal/8"), ("openpi", "libero_spatial/0"), ("gr00t", "libero_goal/8")]
)
def test_the_same_policy_sees_and_does_the_same(name: str, task: str, tmp_path: Path) -> None:
    out = tmp_path / "found.npz"
    # An idle policy, too, that runs out of time: not by GR00T, whose episodes are long.
    idle = [] if name == "gr00t" else ["libero_spatial/0"]
    done = subprocess.run(
        [sys.executable, PROGRAM, name, task, str(SIDE), out, *idle],
        env=environment(), capture_output=True, text=True, timeout=860, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(out) as loaded:
        found = {key: loaded[key] for key in loaded if not key.startswith("idle/")}
        waited = {key.removeprefix("idle/"): loaded[key] for key in loaded if key.startswith("idle/")}
    assert found["ours/success"]
    assert found["theirs/success"]
    assert_same(found, name)
    if idle:
        assert not waited["ours/success"]
        assert not waited["theirs/success"]
        assert waited["ours/steps"] == 220
        assert_same(waited, name)


def assert_same(found: dict[str, np.ndarray], name: str) -> None:
    """It has the same length, and everything that was shown is the same."""
    assert found["ours/steps"] == found["theirs/steps"]
    names = {key.partition("/")[2] for key in found if key.startswith("theirs/")} - {"success", "steps"}
    layout = PRESETS[name]["libero"]
    assert names == {name.replace("/", ".") for name in (*layout.images, *layout.states)}
    for one in sorted(names):
        ours, theirs = found[f"ours/{one}"], found[f"theirs/{one}"]
        assert ours.shape == theirs.shape, one
        if ours.dtype == np.uint8:
            assert np.array_equal(ours, theirs), one
            assert len(np.unique(theirs)) > 50, "an empty image would be the same in any case"
        else:  # vla-eval's rotation is in single precision
            assert np.array_equal(ours.astype(np.float32), theirs.astype(np.float32)), one
