"""Our Meta-World in vla-eval's own harness (vla-eval 0.8.0): its orchestrator, runner and connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from bridges.telling import actions_for
from vla_eval.api import serve_background
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.orchestrator import Orchestrator

from sparring.env_worker.benchmark import Simulator
from sparring.env_worker.episode.play import Order, run_episode
from sparring.env_worker.registry import get_benchmark
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies.metaworld_expert import MetaworldExpert

CLASS = "sparring.env_worker.as_vla_eval:VlaEvalBenchmark"
TASKS = "reach-v3,drawer-close-v3"


def played(server: PredictModelServer, output: Path, *, episodes: int, **more: Any) -> dict[str, Any]:
    """What vla-eval's harness says came of its run."""
    with serve_background(server) as served:
        config = {
            "server": {"url": served.url, "timeout": 20},
            "output_dir": str(output),
            "benchmarks": [{"benchmark": CLASS, "episodes_per_task": episodes, **more}],
        }
        (result,) = anyio.run(Orchestrator(config).run)
    return result


def simulators(resolution: int) -> Iterator[tuple[Any, Simulator]]:
    benchmark = get_benchmark("metaworld")
    settings = benchmark.read_settings({"resolution": resolution})
    for task in benchmark.tasks(TASKS):
        simulator = benchmark.make(task, settings)
        yield task, simulator
        simulator.close()


class Expert(PredictModelServer):
    """Meta-World's scripted experts, as a model server of vla-eval's."""

    def __init__(self) -> None:
        super().__init__()
        self._experts = MetaworldExpert()._experts
        self._expert: Any = None

    async def on_episode_start(self, config: dict[str, Any], ctx: Any) -> None:
        await super().on_episode_start(config, ctx)
        self._expert = self._experts[config["task"]["name"]]()

    def predict(self, obs: dict[str, Any], ctx: Any) -> dict[str, Any]:
        return {"actions": np.asarray(self._expert.get_action(obs["environment_state"].copy()))}


def test_its_harness_comes_to_the_ends_that_our_own_episodes_come_to(tmp_path: Path) -> None:
    params = {"tasks": TASKS, "seed": 1000, "images": {}, "look": ["environment_state"]}
    result = played(Expert(), tmp_path, episodes=3, params=params)

    expected = {}
    policy = LocalPolicy(MetaworldExpert(), name="expert")
    for task, simulator in simulators(48):
        session = policy.open(simulator.offers, benchmark="metaworld")
        records = [run_episode(simulator, session, Order(task, index, 1000 + index)) for index in range(3)]
        expected[task.name] = [(record.outcome == "success", record.steps) for record in records]
    found = {
        task["task"]: [(episode["metrics"]["success"], episode["steps"]) for episode in task["episodes"]]
        for task in result["tasks"]
    }
    assert found == expected
    assert len({steps for ends in expected.values() for _, steps in ends}) > 3, "episodes that cannot be told apart"


class Telling(PredictModelServer):
    """Answers by all that it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[np.ndarray] = []

    def predict(self, obs: dict[str, Any], ctx: Any) -> dict[str, Any]:
        assert obs.keys() == {"images", "states", "task_description"}
        self.told.append(tell(obs["images"]["corner"], obs["states"], obs["task_description"]))
        return {"actions": self.told[-1]}


def tell(image: np.ndarray, state: np.ndarray, sentence: str) -> np.ndarray:
    return actions_for({"image": image, "state": state, "sentence": sentence}, size=4)[0]


@pytest.mark.requires("rendering")
def test_every_frame_state_and_sentence_is_ours_and_every_action_is_played(tmp_path: Path) -> None:
    server = Telling()
    params = {"tasks": TASKS, "seed": 7, "settings": {"resolution": 48}}
    played(server, tmp_path, episodes=2, max_steps=4, params=params)

    expected = []
    for task, simulator in simulators(48):
        look = frozenset(["observation.image", "observation.state"])
        for index in range(2):
            seen = simulator.reset(seed=7 + index, index=index, look=look)
            for _ in range(4):
                expected.append(tell(seen["observation.image"], seen["observation.state"], task.instruction))
                seen = simulator.step(expected[-1], look=look).observation
    assert len(expected) == 16
    assert np.array_equal(server.told, expected)
    (database,) = tmp_path.glob("recording-*.sqlite")
    with sqlite3.connect(database) as rows:
        assert rows.execute("select count(*) from step_rows").fetchone() == (16,)


def test_an_action_of_another_size_is_an_error_of_the_episode(tmp_path: Path) -> None:
    class Wrong(PredictModelServer):
        def predict(self, obs: dict[str, Any], ctx: Any) -> dict[str, Any]:
            return {"actions": np.zeros(7, np.float32)}

    result = played(Wrong(), tmp_path, episodes=1, params={"tasks": "reach-v3", "seed": 0, "images": {}})
    (episode,) = result["tasks"][0]["episodes"]
    assert "has 4 numbers" in episode["failure_detail"]


@pytest.mark.parametrize(("goals", "told"), [("sampled", {}), ("fixed", {"max_episodes_per_task": 50})])
def test_what_is_told_of_tasks_is_as_the_settings_have_it(goals: str, told: dict[str, int]) -> None:
    from sparring.env_worker.as_vla_eval import VlaEvalBenchmark

    found = VlaEvalBenchmark("metaworld", tasks=TASKS, settings={"goals": goals}).get_metadata()
    assert {name: value for name, value in found.items() if name == "max_episodes_per_task"} == told
