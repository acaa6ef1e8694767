"""Our benchmarks in vla-eval's harness: a class that its configuration names by an import string.

    benchmarks:
      - benchmark: sparring.env_worker.as_vla_eval:VlaEvalBenchmark
        params: {benchmark: metaworld, tasks: mt50, seed: 0}

Episode k of a task is the one that `sparring run` plays as number k: the same seed, the same initial state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from vla_eval.benchmarks.base import StepBenchmark, StepResult
from vla_eval.render import configure_mujoco_render
from vla_eval.specs import GRIPPER_CLOSE_POS, IMAGE_RGB, LANGUAGE, POSITION_DELTA, DimSpec

from sparring.env_worker.benchmark import Observation, Simulator
from sparring.env_worker.gl import choose_backend
from sparring.env_worker.registry import get_benchmark
from sparring.protos.errors import UsageError, unknown
from sparring.protos.tensor import Array

_IMAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "metaworld": {"corner": "observation.image"},
    "libero": {"agentview": "observation.images.image", "wrist": "observation.images.image2"},
}
"""Which image a model server knows by which name, where nobody says so; those of vla-eval's own benchmarks."""
_ACTIONS: Final[Mapping[str, Mapping[str, DimSpec]]] = {
    "metaworld": {"position": POSITION_DELTA, "gripper": GRIPPER_CLOSE_POS},
}
"""What the numbers of an action are, where vla-eval has words for it."""
_STATE: Final = "observation.state"


class VlaEvalBenchmark(StepBenchmark):  # type: ignore[misc]  # vla-eval has no types here
    """One of our benchmarks, to vla-eval's runners one of theirs.

    Args:
        benchmark: As in `sparring ls benchmarks`.
        tasks: As for `sparring run --task`.
        seed: Of episode 0; episode k has this plus k, as in our runs.
        images: Our name of each image, by the name that model servers know it by; without any, those that are known.
        send_state: Whether `states` is sent: our `observation.state`.
        look: Observations of ours that are sent as well, by their own names.
        settings: What --benchmark-arg takes.

    Raises:
        UsageError: If there is no such benchmark, task or setting.
    """

    render_backends: ClassVar[frozenset[str]] = frozenset({"gpu", "cpu"})

    def __init__(
        self,
        benchmark: str = "metaworld",
        tasks: str = "mt50",
        seed: int = 0,
        images: Mapping[str, str] | None = None,
        send_state: bool = True,
        look: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._benchmark = get_benchmark(benchmark)
        self._settings = self._benchmark.read_settings(settings or {})
        self._benchmark.prepare(self._settings)
        planned = self._benchmark.planned(self._benchmark.tasks(tasks), self._settings)
        self._tasks = {task.name: task for task in planned}
        self._seed = seed
        self._images = dict(_IMAGES.get(benchmark, {}) if images is None else images)
        self._more = tuple(dict.fromkeys([*([_STATE] if send_state else []), *look]))
        self._look = frozenset([*self._images.values(), *self._more])
        self._simulator: Simulator | None = None
        self._simulated = ""
        self._succeeded = False

    @classmethod
    def configure_render(cls, mode: str) -> dict[str, str]:
        """Chooses what MuJoCo draws with, before it is imported."""
        if mode == "cpu":
            chosen: dict[str, str] = configure_mujoco_render(mode)
            return chosen
        return {"MUJOCO_GL": choose_backend()}

    def get_tasks(self) -> list[dict[str, Any]]:
        """Returns the tasks, in our order."""
        return [
            {"name": task.name, "suite": task.group, "instruction": task.instruction} for task in self._tasks.values()
        ]

    def reset(self, task: Mapping[str, Any]) -> Observation:
        """Begins an episode of a task."""
        simulator = self._simulator_of(str(task["name"]))
        index = int(task.get("episode_idx", 0))
        self._succeeded = False
        observation = simulator.reset(seed=self._seed + index, index=index, look=self._look)
        self._film(observation)
        return observation

    def step(self, action: Mapping[str, Any]) -> StepResult:
        """Plays an action.

        Raises:
            UsageError: If it has another size than the benchmark's.
        """
        assert self._simulator is not None, "an episode begins with reset()"
        given: Array = np.asarray(action.get("actions", action.get("action")))
        size = self._simulator.offers.action_dim
        if given.shape != (size,):
            raise UsageError(f"an action of {self._benchmark.name} has {size} numbers, not the shape {given.shape}.")
        step = self._simulator.step(given, look=self._look)
        self._succeeded |= bool(step.success)  # reached once is reached, as in our own runs
        done = step.terminated or step.truncated
        self._film(step.observation)
        self._recorder.record_step(
            reward=step.reward, done=done, success=self._succeeded, action=given, **self._recorded(step.observation)
        )
        return StepResult(obs=step.observation, reward=step.reward, done=done, info={"metrics": dict(step.metrics)})

    def make_obs(self, raw_obs: Observation, task: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what a model server is shown."""
        shown: dict[str, Any] = {name: raw_obs[name] for name in self._more if name != _STATE}
        if _STATE in self._more:
            shown["states"] = raw_obs[_STATE]
        shown["images"] = {name: raw_obs[ours] for name, ours in self._images.items()}
        shown["task_description"] = str(task["instruction"])
        return shown

    def get_step_result(self, step_result: StepResult) -> dict[str, Any]:
        """Returns what came of the episode."""
        return {"success": self._succeeded}

    def get_metadata(self) -> dict[str, Any]:
        """Returns the step limit, and how many initial states there are where they are listed."""
        longest = max(task.max_steps for task in self._tasks.values())
        states = [task.initial_states for task in self._tasks.values() if task.initial_states]
        return {
            "suite": self._benchmark.name,
            **({"max_steps": longest} if longest else {}),
            **({"max_episodes_per_task": min(states)} if states else {}),
        }

    def get_action_spec(self) -> dict[str, DimSpec]:
        """Returns what an action means, where vla-eval has words for it."""
        if self._benchmark.name not in _ACTIONS:
            raise NotImplementedError(f"what an action of {self._benchmark.name} means is not said here")
        return dict(_ACTIONS[self._benchmark.name])

    def get_observation_spec(self) -> dict[str, DimSpec]:
        """Returns what is shown."""
        state = {"state": DimSpec("state", 0, "raw")} if _STATE in self._more else {}
        return {**dict.fromkeys(self._images, IMAGE_RGB), **state, "language": LANGUAGE}

    def cleanup(self) -> None:
        """Frees the simulator."""
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    def render(self) -> Array | None:
        """Returns what the episode looks like at this moment."""
        return None if self._simulator is None else self._simulator.snapshot()

    def _simulator_of(self, name: str) -> Simulator:
        if name not in self._tasks:
            raise unknown("task", name, self._tasks)
        if self._simulator is None or self._simulated != name:
            self.cleanup()
            self._simulator, self._simulated = self._benchmark.make(self._tasks[name], self._settings), name
            for wanted in self._look:
                if wanted not in self._simulator.offers.observations:
                    raise unknown("observation", wanted, self._simulator.offers.observations)
        return self._simulator

    def _film(self, observation: Observation) -> None:
        if self._images:
            self._recorder.record_video(observation[next(iter(self._images.values()))])

    def _recorded(self, observation: Observation) -> dict[str, Array]:
        return {"state": observation[_STATE]} if _STATE in self._more else {}
