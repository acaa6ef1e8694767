"""Pytest plug-in: makes Sparring wrong by one bit, in the place that SPARRING_ONE_BIT names.

SPARRING_ONE_BIT=metaworld-image PYTHONPATH=tests pytest -n 0 -p one_bit.changes tests/env_worker/test_metaworld.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from one_bit import drawing
from one_bit.bits import flip, flipped

from sparring.env_worker.benchmark import Step

SUITES: Final = ("libero_spatial", "libero_object", "libero_goal", "libero_10", "libero_90")


def _libero_steps(change: Callable[[Any, Any, int], Any], when: Callable[..., bool] = lambda **_: True) -> None:
    """Changes what comes of the second step of every episode, in the fast loop only."""
    from sparring.env_worker.benchmarks._libero.control_loop import FastLoop
    from sparring.env_worker.benchmarks.libero import LiberoSimulator

    step, begin, make = FastLoop.step, FastLoop.begin, LiberoSimulator.__init__

    def made(self: Any, task: Any, *settings: Any, **more: Any) -> None:
        make(self, task, *settings, **more)
        self._loop.suite = task.suite

    def begun(self: Any) -> None:
        self.episodes, self.steps = getattr(self, "episodes", 0) + 1, 0
        begin(self)

    def stepped(self: Any, action: Any, sensors: Any) -> Any:
        played = step(self, action, sensors)
        self.steps += 1
        relative = self._robot.controller.use_delta
        facts = {"suite": self.suite, "relative": relative, "looks": bool(sensors), "episodes": self.episodes}
        # Ten steps are for settling. Two: in some tests every other one looks.
        return change(self, played, self.steps) if self.steps in (12, 13) and when(**facts) else played

    LiberoSimulator.__init__ = made  # type: ignore[method-assign, assignment]
    FastLoop.begin, FastLoop.step = begun, stepped  # type: ignore[method-assign]


def _state(loop: Any, played: Any, step: int) -> Any:
    flip(loop._data.qpos)
    return played


def _observation(loop: Any, played: Any, step: int) -> Any:
    first = sorted(played.readings)[:1]
    return replace(played, readings={**played.readings, **{name: flipped(played.readings[name]) for name in first}})


def _libero_images() -> None:
    from sparring.env_worker.benchmarks.libero import LiberoSimulator

    rendered = LiberoSimulator._rendered
    LiberoSimulator._rendered = lambda self, camera: flipped(rendered(self, camera))  # type: ignore[method-assign]


def _libero_contexts() -> None:
    """Making what draws before the first episode leaves something behind."""
    from sparring.env_worker.benchmarks.libero import LiberoSimulator

    _leaves_something(LiberoSimulator, lambda simulator: simulator._environment.sim.data._data.qpos)


def _leaves_something(kind: Any, state: Callable[[Any], Any]) -> None:
    """Changes the state that episodes begin in, in a simulator whose images were prepared."""
    prepare, reset = kind.prepare_images, kind.reset

    def prepared(self: Any) -> None:
        prepare(self)
        self.was_prepared = True

    def again(self: Any, **episode: Any) -> Any:
        seen = reset(self, **episode)
        if getattr(self, "was_prepared", False):
            flip(state(self))
        return seen

    kind.prepare_images, kind.reset = prepared, again


def _libero_snapshots() -> None:
    """Drawing what somebody who watches sees leaves something behind."""
    from sparring.env_worker.benchmarks.libero import LiberoSimulator

    snapshot = LiberoSimulator.snapshot

    def drawn(self: Any) -> Any:
        seen = snapshot(self)
        flip(self._environment.sim.data._data.qpos)
        return seen

    LiberoSimulator.snapshot = drawn  # type: ignore[method-assign]


def _metaworld_steps(change: Callable[[Any, Step], Step], when: Callable[[Any, Any], bool] = lambda *_: True) -> None:
    from sparring.env_worker.benchmarks.metaworld import MetaworldSimulator

    step, reset = MetaworldSimulator.step, MetaworldSimulator.reset

    def begun(self: Any, **episode: Any) -> Any:
        self.episodes, self.steps = getattr(self, "episodes", 0) + 1, 0
        return reset(self, **episode)

    def stepped(self: Any, action: Any, *, look: Any) -> Step:
        played = step(self, action, look=look)
        self.steps += 1
        # Only where ours is held against another, which the shortcuts are.
        ours = "touching_object" in vars(type(self._env))
        return change(self, played) if ours and self.steps == 8 and when(self, look) else played

    MetaworldSimulator.reset, MetaworldSimulator.step = begun, stepped  # type: ignore[method-assign]


def _metaworld_state(simulator: Any, played: Step) -> Step:
    flip(simulator._env.data.qpos)
    return played


def _metaworld_observation(simulator: Any, played: Step) -> Step:
    return replace(played, observation={name: flipped(seen) for name, seen in played.observation.items()})


def _metaworld_images() -> None:
    from sparring.env_worker.benchmarks.metaworld import MetaworldSimulator

    render = MetaworldSimulator._render
    MetaworldSimulator._render = lambda self: flipped(render(self))  # type: ignore[method-assign]


def _metaworld_contexts() -> None:
    """Making what draws before the first episode leaves something behind."""
    from sparring.env_worker.benchmarks.metaworld import MetaworldSimulator

    _leaves_something(MetaworldSimulator, lambda simulator: simulator._env.data.qpos)


def _metaworld_rotations() -> None:
    """A quaternion that is made without scipy's check is another one."""
    from sparring.env_worker.benchmarks._metaworld import shortcuts

    class Off:
        def __init__(self, right: Any) -> None:
            self._right = right

        def as_quat(self) -> Any:
            return flipped(self._right.as_quat())

    right = shortcuts._Rotation.from_matrix
    shortcuts._Rotation.from_matrix = lambda matrix: Off(right(matrix))  # type: ignore[method-assign, assignment]


def _metaworld_fingers() -> None:
    """How far the fingers are apart is another number, in the observation that is written into one array."""
    from sparring.env_worker.benchmarks._metaworld import shortcuts

    observe = shortcuts._observe

    def changed(env: Any) -> Any:
        seen = observe(env)
        flip(seen[3:4])
        return seen

    shortcuts._observe = changed


def _metaworld_resets() -> None:
    """A reset that plays its physics once ends in another state."""
    from sparring.env_worker.benchmarks._metaworld import shortcuts

    reset = shortcuts._reset

    def changed(env: Any) -> Any:
        seen = reset(env)
        flip(env.data.qpos)
        return seen

    shortcuts._reset = changed


def _metaworld_contacts() -> None:
    """Whether something is held between the fingers is told otherwise, where contacts are read from arrays."""
    from sparring.env_worker.benchmarks._metaworld import shortcuts

    touching = shortcuts._touching_object
    shortcuts._touching_object = lambda env, geom: not touching(env, geom)


def _in_company() -> None:
    """In deterministic mode, the first row of several has another answer than it has alone."""
    from sparring.policy_server.policies.torch import TorchPolicy

    act = TorchPolicy.act

    def changed(self: Any, observations: Any, states: Any) -> Any:
        first, *others = act(self, observations, states)
        return [flipped(first) if self.deterministic and others else first, *others]

    TorchPolicy.act = changed  # type: ignore[method-assign]


def _lerobot_answers() -> None:
    """A LeRobot checkpoint answers something else in this process, and not in those that this one starts."""
    from sparring.policy_server.policies.lerobot import LeRobotPolicy

    act = LeRobotPolicy.act

    def changed(self: Any, observations: Any, states: Any) -> Any:
        return [flipped(answer) for answer in act(self, observations, states)]

    LeRobotPolicy.act = changed  # type: ignore[method-assign]


def _replayed() -> None:
    """A replay's sum of rewards is another one."""
    from sparring.env_worker.episode import replay

    play = replay.replay_episode

    def changed(*arguments: Any, **more: Any) -> Any:
        record = play(*arguments, **more)
        return replace(record, reward_sum=_next(record.reward_sum))

    replay.replay_episode = changed


def _framed() -> None:
    """What comes back over frames has another bit."""
    from sparring.policy_server.framed_session import FramedSession

    act = FramedSession.act

    def changed(self: Any, *arguments: Any, **more: Any) -> Any:
        chunk = act(self, *arguments, **more)
        return replace(chunk, actions=flipped(chunk.actions))

    FramedSession.act = changed  # type: ignore[method-assign]


def _written() -> None:
    """What goes over a wire, written without protobuf, has another last bit."""
    from sparring.protos.wire import ObservationCodec

    write = ObservationCodec.write

    def changed(self: Any, *arguments: Any, **more: Any) -> Any:
        data = bytes(write(self, *arguments, **more))
        return data[:-1] + bytes([data[-1] ^ 1])

    ObservationCodec.write = changed  # type: ignore[method-assign]


def _is_of(wanted: str, *, suite: str, **_: Any) -> bool:
    return suite == wanted


def _next(number: float) -> float:
    return float(np.nextafter(number, np.inf))


CHANGES: Final[dict[str, Callable[[], None]]] = {
    "libero-state": lambda: _libero_steps(_state),
    "libero-observation": lambda: _libero_steps(_observation),
    "libero-reward": lambda: _libero_steps(lambda _, p, __: replace(p, reward=_next(p.reward))),
    "libero-success": lambda: _libero_steps(lambda _, p, __: replace(p, success=not p.success)),
    "libero-image": _libero_images,
    "libero-image-absolute": _libero_images,
    "libero-prepared": _libero_contexts,
    "libero-watched": _libero_snapshots,
    "libero-relative": lambda: _libero_steps(_state, lambda relative, **_: relative),
    "libero-absolute": lambda: _libero_steps(_state, lambda relative, **_: not relative),
    "libero-after-a-reset": lambda: _libero_steps(_state, lambda episodes, **_: episodes > 1),
    "libero-looking": lambda: _libero_steps(_state, lambda looks, **_: looks),
    "libero-not-looking": lambda: _libero_steps(_state, lambda looks, **_: not looks),
    **{suite: partial(_libero_steps, _state, partial(_is_of, suite)) for suite in SUITES},
    "metaworld-state": lambda: _metaworld_steps(_metaworld_state),
    "metaworld-observation": lambda: _metaworld_steps(_metaworld_observation),
    "metaworld-reward": lambda: _metaworld_steps(lambda _, p: replace(p, reward=_next(p.reward))),
    "metaworld-success": lambda: _metaworld_steps(lambda _, p: replace(p, success=not p.success)),
    "metaworld-image": _metaworld_images,
    "metaworld-reset": _metaworld_resets,
    "metaworld-after-a-reset": lambda: _metaworld_steps(_metaworld_state, lambda sim, _: sim.episodes > 1),
    "metaworld-looking": lambda: _metaworld_steps(_metaworld_state, lambda _, look: len(look) > 1),
    "metaworld-prepared": _metaworld_contexts,
    "metaworld-rotation": _metaworld_rotations,
    "metaworld-fingers": _metaworld_fingers,
    "metaworld-contacts": _metaworld_contacts,
    "gym-image": partial(drawing.drawn_on_look, drawing.gym_images),
    "gym-not-looking": partial(drawing.drawn_on_look, drawing.gym_states),
    "pusht-image": partial(drawing.pusht, "observation.image"),
    "pusht-state": partial(drawing.pusht, "observation.state"),
    "pusht-not-looking": drawing.pusht_not_looking,
    "aloha-image": partial(drawing.aloha, "observation.images.top"),
    "aloha-state": partial(drawing.aloha, "observation.state"),
    "filmed-again": drawing.film_of_a_replay,
    "filmed-by-the-way": drawing.film_by_the_way,
    "replayed": _replayed,
    "written": _written,
    "framed": _framed,
    "deterministic": _in_company,
    "lerobot-loop": _lerobot_answers,
    "lerobot-light": _lerobot_answers,
    "lerobot-libero": lambda: _libero_steps(_state),
    "metaworld-not-looking": lambda: _metaworld_steps(_metaworld_state, lambda _, look: len(look) == 1),
}


def pytest_configure() -> None:
    """Makes the change."""
    if wanted := os.environ.get("SPARRING_ONE_BIT"):
        CHANGES[wanted]()
