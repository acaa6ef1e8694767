"""The example from end to end, small enough for every day: record, train, save, serve, evaluate."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from examples.behaviour_cloning.demonstrations import read_demonstrations
from examples.behaviour_cloning.figure import HIGH, LOW, draw_curves
from examples.behaviour_cloning.policy import IMAGE, PROPRIOCEPTION, ClonedPolicy, PixelNet, StateNet, save
from examples.behaviour_cloning.train import main as train
from support import ROOT, Sparring, read_csv

import sparring
from sparring import Evaluator, evaluate
from sparring.orchestrator.results.statistics import wilson
from sparring.policy_server.policies.base import Observation, Policy, PolicySpec
from sparring.protos.errors import UsageError

TASK = "drawer-close-v3"
CLONED = "examples.behaviour_cloning.policy:ClonedPolicy"


@pytest.fixture(autouse=True)
def _no_workers_left() -> Iterator[None]:
    yield
    sparring.close()


@pytest.mark.everything
def test_from_demonstrations_to_a_policy_that_works(sparring: Sparring, tmp_path: Path) -> None:
    recorded = sparring(
        "run", "--benchmark", "metaworld", "--task", TASK, "--policy", "expert", "--episodes", "10",
        "--seed", "100000", "--slots", "2", "--record", "demos", "--output", "experts",
    )  # fmt: skip
    assert recorded.returncode == 0, recorded.stderr
    flags = ("--tasks", TASK, "--episodes", "8", "--max-steps", "150", "--output", str(tmp_path / "out"))
    last = train(["--demos", str(tmp_path / "demos"), "--steps", "300", "--every", "150", "--batch", "256", *flags])
    assert last[TASK] >= 0.75, "ten demonstrations are enough for this one"
    with (tmp_path / "out" / "states.csv").open() as file:
        curve = list(csv.DictReader(file))
    assert [row["step"] for row in curve] == ["0", "150", "300"]
    assert float(curve[0][TASK]) <= 0.25, "it has to be learned"
    assert ElementTree.parse(tmp_path / "out" / "states.svg").getroot().tag.endswith("svg")

    # The checkpoint, served by a process of its own, plays the same episodes to the same end.
    checkpoint = tmp_path / "out" / "states.safetensors"
    served = sparring(
        "run", "--benchmark", "metaworld", "--task", TASK, "--policy", CLONED, "--policy-arg",
        f"checkpoint={checkpoint}", "--policy-arg", "deterministic=true", "--episodes", "8", "--max-steps", "150",
        "--slots", "2", "--output", "served",
    )  # fmt: skip
    assert served.returncode == 0, served.stderr
    live = tmp_path / "live"
    policy = ClonedPolicy(str(checkpoint), deterministic=True)
    torch.use_deterministic_algorithms(False)
    results = evaluate(policy, benchmark="metaworld", tasks=TASK, episodes=8, max_steps=150, slots=2, output=live)
    assert read_csv(live) == read_csv(tmp_path / "served")
    assert results.overall.successes / results.overall.n >= 0.75
    about = json.loads((tmp_path / "served" / "run.json").read_text())["policy"]
    assert about["checkpoint_sha256"] == policy.checkpoint_sha256
    assert json.loads((live / "run.json").read_text())["policy"]["checkpoint_sha256"] is None, "it may have changed"

    # What it has not learned, it says.
    other = evaluate(policy, benchmark="metaworld", tasks="reach-v3", episodes=1, slots=2, retries=0)
    assert "has not learned to 'Reach a goal position'" in other.rows[0].error

    with pytest.raises(SystemExit, match="another --seed"):
        train(["--demos", str(tmp_path / "demos"), "--tasks", TASK, "--episodes", "99005"])


@pytest.mark.everything
def test_images_are_read_a_chunk_at_a_time(sparring: Sparring, tmp_path: Path) -> None:
    base = (
        "run",
        "--benchmark",
        "metaworld",
        "--task",
        TASK,
        "--episodes",
        "1",
        "--seed",
        "100000",
        "--max-steps",
        "12",
    )
    assert sparring(*base, "--policy", "expert", "--record", "demos", "--output", "experts").returncode == 0
    path = tmp_path / "demos" / "metaworld" / TASK / "0000.npz"
    seen = sparring(
        "export", "experts", "seen", "--format", "npz", "--every", "5", "--resolution", "32", "--slots", "1"
    )
    assert seen.returncode == 0, seen.stderr
    # Twelve steps are no success; what has succeeded is what the example reads.
    _mark_as_success(tmp_path / "seen" / "metaworld" / TASK / "0000.npz")
    demonstrations = read_demonstrations(tmp_path / "seen", names=[IMAGE, PROPRIOCEPTION], chunk=5)
    assert demonstrations.observations[IMAGE].shape == (3, 32, 32, 3)
    assert demonstrations.actions.shape == (3, 5, 4)
    with np.load(path) as expert:
        actions = np.clip(expert["actions"], -1, 1).astype(np.float32)
    np.testing.assert_array_equal(demonstrations.actions[:2].reshape(10, 4), actions[:10])
    np.testing.assert_array_equal(demonstrations.actions[2], actions[[10, 11, 11, 11, 11]])

    network = PixelNet(demonstrations.sentences, side=32, chunk=5)
    save(network, tmp_path / "images.safetensors")
    policy = ClonedPolicy(str(tmp_path / "images.safetensors"))
    results = evaluate(
        policy, benchmark="metaworld", tasks=TASK, episodes=1, max_steps=12, benchmark_arg={"resolution": 32}
    )
    assert (results.rows[0].renders, results.rows[0].round_trips, results.rows[0].error) == (3, 3, "")


@pytest.mark.parametrize("kind", ["states", "images"])
def test_the_figures_on_the_page_are_of_the_numbers_beside_them_with_their_intervals(kind: str, tmp_path: Path) -> None:
    kept = ROOT / "examples/behaviour_cloning/results"
    with (kept / f"{kind}.csv").open() as file:
        curve = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    draw_curves(curve, tmp_path / "again.svg", title=f"Cloned from {kind}: success in 20 episodes per task")
    assert (tmp_path / "again.svg").read_text() == (kept / f"{kind}.svg").read_text()
    rates = [name for name in curve[0] if name + LOW in curve[0]]
    drawn = [node for node in ElementTree.parse(kept / f"{kind}.svg").iter() if node.get("class") == "interval"]
    assert len(drawn) == len(rates) * len(curve)
    for row in curve:
        for name in rates:
            n = 20 * (len(rates) - 1 if name == "overall" else 1)
            assert (row[name + LOW], row[name + HIGH]) == pytest.approx(wilson(round(row[name] * n), n))


def _mark_as_success(path: Path) -> None:
    with np.load(path) as archive:
        arrays: dict[str, Any] = dict(archive)
    about = {**json.loads(arrays["about"].tobytes()), "success": True}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez_compressed(path, **arrays)


def test_a_task_that_nobody_demonstrated_is_named(tmp_path: Path) -> None:
    about = json.dumps({"success": True, "task": TASK, "instruction": "Close it", "seed": 100000}).encode()
    arrays = {"about": np.frombuffer(about, np.uint8), "actions": np.zeros((1, 4)), "looks": np.zeros(1, np.int64)}
    np.savez(tmp_path / "0.npz", **arrays)
    assert read_demonstrations(tmp_path, names=[], tasks=[TASK]).episodes == 1
    with pytest.raises(SystemExit, match="no successful episodes of push-v3, reach-v3 in"):
        read_demonstrations(tmp_path, names=[], tasks=["push-v3", TASK, "reach-v3"])


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, str(tmp_path / "other.safetensors"))
    with pytest.raises(UsageError, match="not a checkpoint of this example"):
        ClonedPolicy(str(tmp_path / "other.safetensors"))
    with pytest.raises(UsageError, match="give a checkpoint"):
        ClonedPolicy()


class Dropping(Policy):
    """A module in training, with dropout; counts as a torch policy of a user's own that does not think of modes."""

    spec = PolicySpec(["position"], action_dim=1)

    def __init__(self) -> None:
        self.network = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        self.frozen = torch.nn.Linear(1, 1).eval()
        self.modes: set[bool] = set()

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Any]:
        self.modes |= {self.network.training, self.network[1].training}
        with torch.no_grad():
            return [self.network(torch.tensor(o["position"]).float())[None].numpy() for o in observations]


def test_modules_in_training_are_evaluated_in_evaluation_mode_and_go_on_training() -> None:
    with Evaluator() as evaluator:
        policy = Dropping()
        policy.network.train()
        first = evaluator.evaluate(policy, benchmark="toy", tasks="short", episodes=3, slots=1)
        assert policy.modes == {False}
        assert policy.network.training
        assert policy.network[1].training
        assert not policy.frozen.training, "what was in evaluation mode stays in it"
        again = evaluator.evaluate(policy, benchmark="toy", tasks="short", episodes=3, slots=1)
        assert [r.reward_sum for r in again.rows] == [r.reward_sum for r in first.rows], "no dropout"
        loss = policy.network(torch.ones(4, 1)).sum()
        loss.backward()
        torch.optim.SGD(policy.network.parameters(), lr=1.0).step()
        trained = evaluator.evaluate(policy, benchmark="toy", tasks="short", episodes=3, slots=1)
        assert [r.reward_sum for r in trained.rows] != [r.reward_sum for r in first.rows]


def test_the_state_network_is_told_what_to_do_by_the_sentence() -> None:
    network = StateNet(["Push", "Pull"])
    states = {"environment_state": torch.zeros(2, 39)}
    pushed, pulled = network(states, torch.tensor([0, 1]))
    assert not torch.equal(pushed, pulled)
