"""The toy, broken in every way that `check_benchmark` looks for: one class per fault, found by another process, too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from toy_benchmark import Toy, ToySettings, ToySimulator

from sparring.env_worker.benchmark import Names, Observation, Simulator, Step, Task
from sparring.protos.errors import UsageError
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import Array


class Broken(Toy):
    """The toy with another simulator."""

    simulator: ClassVar[type[ToySimulator]] = ToySimulator

    def make(self, task: Task, settings: ToySettings) -> Simulator:
        return self.simulator(task.name, settings)


class GroupOfOthers(Toy):
    def groups(self) -> Mapping[str, Sequence[str]]:
        return {"good": ("long", "short")}


class NamesMoreThanOne(Toy):
    def tasks(self, selection: str) -> Sequence[Task]:
        return super().tasks("good" if selection == "short" else selection)


class NoSentence(Toy):
    def tasks(self, selection: str) -> Sequence[Task]:
        return [replace(task, instruction="") for task in super().tasks(selection)]


class NamesTwice(Toy):
    def tasks(self, selection: str) -> Sequence[Task]:
        return [task for part in selection.split(",") for task in Toy.tasks(self, part)]


class TakesAnyTask(Toy):
    def tasks(self, selection: str) -> Sequence[Task]:
        try:
            return super().tasks(selection)
        except UsageError:
            return super().tasks("short")


class RefusesWithAKey(Toy):
    def tasks(self, selection: str) -> Sequence[Task]:
        if "no-such" in selection:
            raise KeyError(selection)
        return super().tasks(selection)


class TakesAnySetting(Toy):
    def read_settings(self, given: Mapping[str, Any]) -> Any:
        return ToySettings()


@dataclass
class Changeable:
    speed: float = 1.0


class ChangeableSettings(Toy):
    settings: ClassVar[type[Any]] = Changeable


class SaysAnotherLimit(Toy):
    def tasks(self, selection: str) -> Sequence[Task]:
        return [replace(task, max_steps=7) for task in super().tasks(selection)]


class OpenShape(Broken):
    class simulator(ToySimulator):
        def __init__(self, task: str, settings: ToySettings) -> None:
            super().__init__(task, settings)
            self.offers = replace(self.offers, observations={**self.offers.observations, "step": TensorSpec("int64")})


class NoControlRate(Broken):
    class simulator(ToySimulator):
        def __init__(self, task: str, settings: ToySettings) -> None:
            super().__init__(task, settings)
            self.offers = replace(self.offers, control_hz=0.0)


class WrongType(Broken):
    class simulator(ToySimulator):
        def _observe(self, look: Names) -> Observation:
            return {name: np.asarray(array, np.float32) for name, array in super()._observe(look).items()}


class ShowsMore(Broken):
    class simulator(ToySimulator):
        def _observe(self, look: Names) -> Observation:
            return super()._observe(look | {"step"})


class RendersUnseen(Broken):
    class simulator(ToySimulator):
        def _observe(self, look: Names) -> Observation:
            super()._observe(frozenset(["image"]))
            return super()._observe(look)


class CameraUnknown(Broken):
    class simulator(ToySimulator):
        camera = "imagge"


class CameraOfNumbers(Broken):
    class simulator(ToySimulator):
        camera = "position"


class PicturesNumbers(Broken):
    class simulator(ToySimulator):
        camera = "from above"
        cameras = ("from above",)

        def picture(self, camera: str) -> Array:
            return np.zeros(3)


class CountsNoPictures(Broken):
    class simulator(ToySimulator):
        camera = "from above"
        cameras = ("from above",)

        def picture(self, camera: str) -> Array:
            return np.zeros((16, 16, 3), np.uint8)


class CountsNoImages(Broken):
    class simulator(ToySimulator):
        def _observe(self, look: Names) -> Observation:
            seen = super()._observe(look)
            self.meter.renders = 0
            return seen


class WritesIntoWhatItShowed(Broken):
    class simulator(ToySimulator):
        _buffer: Array | None = None

        def _observe(self, look: Names) -> Observation:
            seen = dict(super()._observe(look))
            if "position" in seen:
                if self._buffer is None:
                    self._buffer = seen["position"]
                self._buffer[:] = seen["position"]
                seen["position"] = self._buffer
            return seen


class WritesIntoActions(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            action *= 0.5
            return super().step(action, look=look)


class GlobalGenerator(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            return super().step(action + np.random.normal(), look=look)


class RemembersItsProcess(Broken):
    class simulator(ToySimulator):
        def reset(self, *, seed: int, index: int, look: Names) -> Observation:
            return super().reset(seed=seed + os.getpid(), index=index, look=look)


class EachSimulatorItsOwn(Broken):
    made: ClassVar[int] = 0

    class simulator(ToySimulator):
        def __init__(self, task: str, settings: ToySettings) -> None:
            super().__init__(task, settings)
            EachSimulatorItsOwn.made += 1
            self._number = EachSimulatorItsOwn.made

        def reset(self, *, seed: int, index: int, look: Names) -> Observation:
            return super().reset(seed=seed + self._number, index=index, look=look)


class LookingMoves(Broken):
    class simulator(ToySimulator):
        def _observe(self, look: Names) -> Observation:
            self._position += 1e-12 * len(look)
            return super()._observe(look)


class RemembersLongEpisodes(Broken):
    """A whole episode leaves something behind, a short one does not."""

    class simulator(ToySimulator):
        _left = 0.0

        def reset(self, *, seed: int, index: int, look: Names) -> Observation:
            super().reset(seed=seed, index=index, look=look)
            self._position += self._left
            return self._observe(look)

        def step(self, action: Array, *, look: Names) -> Step:
            step = super().step(action, look=look)
            if self._steps >= self.max_steps - 1:
                self._left = 1e-9
            return step


class NeverEnds(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            return replace(super().step(action, look=look), truncated=False, terminated=False)


class EndsEarly(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            return replace(super().step(action, look=look), truncated=self._steps >= 5)


class SuccessIsNoBool(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            return replace(super().step(action, look=look), success=np.bool_(False))  # type: ignore[arg-type]


class RewardIsNaN(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            return replace(super().step(action, look=look), reward=float("nan") if self._steps == 4 else 0.0)


class MetricIsInfinite(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            return replace(super().step(action, look=look), metrics={"way": float("inf")})


class ClosesOnce(Broken):
    class simulator(ToySimulator):
        _closed = False

        def close(self) -> None:
            if self._closed:
                raise RuntimeError("it is closed already")
            self._closed = True


class ClosesAll(Broken):
    """What one simulator closes, another one needs: such as a GL context."""

    open: ClassVar[set[int]] = set()

    class simulator(ToySimulator):
        def __init__(self, task: str, settings: ToySettings) -> None:
            super().__init__(task, settings)
            ClosesAll.open.add(id(self))

        def _observe(self, look: Names) -> Observation:
            seen = dict(super()._observe(look))
            if "image" in seen and id(self) not in ClosesAll.open:
                seen["image"] = np.zeros_like(seen["image"])
            return seen

        def close(self) -> None:
            ClosesAll.open.clear()


class RaisesAtStep(Broken):
    class simulator(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            raise ValueError("the world came apart")
