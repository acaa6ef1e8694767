"""A benchmark without a simulator library, found through an entry point as a user's own would be.

A point on a line: an action moves it, a success is to be at 1 or beyond. Small enough that what a
test finds out is about Sparring and not about physics; no part of Sparring is replaced by it.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparring.env_worker.benchmark import Benchmark, Names, Observation, RenderMeter, Simulator, Step, Task, setting
from sparring.env_worker.protocol import Protocol
from sparring.env_worker.task_table import TaskTable
from sparring.protos.effect import Effect
from sparring.protos.spec import Offer, TensorSpec
from sparring.protos.tensor import Array

_TASKS = TaskTable(
    benchmark="toy",
    instructions={
        "short": "Go a little",
        "long": "Go a lot",
        "raises": "Break at step 3",
        "segfaults": "Crash at step 3",
        "hangs": "Stop at step 3",
        "flaky": "Break the first time",
        "unmakeable": "Cannot be made",
        "hungry": "Eat 2 GiB at step 3",
        "unmeasured": "Lose count at step 3",
        "hostile": "Break at step 3, each time in another way",
    },
    groups={"good": ("short", "long")},
)


_HOSTILE = ("unmeasured", "raises", "segfaults", "limited", "exits", "raises", "hangs", *("unmeasured",) * 33)
"""What episodes of `hostile` do, by their number."""


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Lets this process have no more memory than it has."""
    import psutil  # here, because worker images have none

    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 2**26, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@dataclass(frozen=True)
class ToySettings:
    step_seconds: float = setting(0.0, in_protocol=False)
    flag_folder: str = setting("", in_protocol=False)
    noise: int = setting(0, only_seen=True)
    """The side of images that are of noise, which nothing makes smaller; 0: small and plain ones."""
    reach: float = setting(
        0.1, what="how far an action of 1 moves the point", effect=Effect(more="higher", less="lower")
    )
    """How far an action of 1 moves the point."""


class Toy(Benchmark):
    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = "a point on a line"
    settings: ClassVar[type[Any]] = ToySettings
    packages: ClassVar[Sequence[str]] = ("psutil", "no-such-distribution")
    expert: ClassVar[str] = "toy_policies:Forward"
    protocols: ClassVar[Sequence[Protocol]] = (
        Protocol("narrow", 1, "short ways", seed=7, settings={"reach": 0.05}, rules={"actions_per_look": 2}),
    )

    def tasks(self, selection: str) -> Sequence[Task]:
        return _TASKS.select(selection)

    def groups(self) -> Mapping[str, Sequence[str]]:
        return _TASKS.groups

    def make(self, task: Task, settings: ToySettings) -> Simulator:
        if task.name == "unmakeable":
            raise RuntimeError("no such world")
        return ToySimulator(task.name, settings)


class ToySimulator(Simulator):
    camera = "image"

    def __init__(self, task: str, settings: ToySettings) -> None:
        self._task = task
        self._settings = settings
        self.looked: list[Names] = []
        self.max_steps = {"short": 20, "long": 200}.get(task, 30)
        self.meter = RenderMeter()
        self.offers = Offer(
            observations={
                "position": TensorSpec("float64", (1,)),
                "step": TensorSpec("int64", ()),
                "image": TensorSpec("uint8", (settings.noise or 16, settings.noise or 16, 3)),
            },
            action_low=(-1.0,),
            action_high=(1.0,),
            control_hz=20.0,
        )

    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        self._position = float(np.random.default_rng(seed).uniform(-1, 0))
        self._steps = 0
        self._seed = seed
        self._mood = _HOSTILE[index % len(_HOSTILE)] if self._task == "hostile" else self._task
        self.looked = [look]
        return self._observe(look)

    def step(self, action: Array, *, look: Names) -> Step:
        if self._settings.step_seconds:
            time.sleep(self._settings.step_seconds)
        self._steps += 1
        self.looked.append(look)
        if self._steps == 3:
            if self._settings.flag_folder:
                open(os.path.join(self._settings.flag_folder, f"begun-{self._seed}"), "w").close()
            self._misbehave(self._mood)
        self._position += float(action[0]) * self._settings.reach
        success = self._position >= 1.0
        truncated = self._steps >= self.max_steps
        return Step(
            self._observe(look),
            self._position,
            terminated=success,
            truncated=truncated,
            success=success,
            metrics={"distance": self._distance()},
        )

    def close(self) -> None:
        pass

    @property
    def cameras(self) -> Sequence[str]:
        return ("above",)

    def picture(self, camera: str) -> Array:
        with self.meter.image():
            return np.full((24, 16, 3), 8 * self._steps % 256, np.uint8)

    def physics_state(self) -> Array:
        return np.array([self._position])

    def _misbehave(self, how: str) -> None:
        if how == "raises":
            raise ValueError("the world came apart")
        if how == "segfaults":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "hangs":
            time.sleep(3600)
        if how == "hungry":
            self._eaten = np.ones(2**28)
        if how == "limited":
            with _limited_memory():
                np.ones(2**28)
        if how == "exits":
            os._exit(3)
        if how == "flaky":
            flag = os.path.join(self._settings.flag_folder, f"tried-{self._seed}")
            if not os.path.exists(flag):
                open(flag, "w").close()
                raise ValueError("only the first time")

    def _distance(self) -> float:
        """What is left of the way."""
        if self._mood == "unmeasured" and self._steps == 3:
            return float("nan")
        return max(0.0, 1.0 - self._position)

    def _image(self) -> Array:
        if side := self._settings.noise:
            return np.random.default_rng([self._seed, self._steps]).integers(0, 256, (side, side, 3), np.uint8)
        shade = int(np.clip((self._position + 1) * 100, 0, 255))
        return np.full((16, 16, 3), shade, np.uint8)

    def _observe(self, look: Names) -> Observation:
        observation: dict[str, Array] = {}
        if "position" in look:
            observation["position"] = np.array([self._position])
        if "step" in look:
            observation["step"] = np.array(self._steps)
        if "image" in look:
            with self.meter.image():
                observation["image"] = self._image()
        return observation
