"""An episode, from reset to outcome."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator, Step, Task
from sparring.env_worker.episode.actions import ActionSpace, OutOfRange
from sparring.env_worker.episode.film import Film
from sparring.env_worker.episode.recording import Recording
from sparring.policy_server.client import RemoteSession
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array


@dataclass(frozen=True)
class Order:
    """Which episode to run, and how to watch it."""

    task: Task
    index: int
    seed: int
    max_steps: int = 0
    """0: the simulator's own limit."""
    observe_every_step: bool = False
    film_fps: float = 0.0
    """0: no film."""
    record: bool = False
    """Keep what the policy saw and did."""
    out_of_range: OutOfRange = "pass"
    """What to do with actions outside the action space."""


class UnusableStep(SparringError):
    """The simulator reported something that cannot be recorded."""


@dataclass(kw_only=True)
class Record(EpisodeRecord):
    """The record of an episode, and what was kept of it."""

    video: bytes = field(default=b"", repr=False)
    recording: Recording | None = field(default=None, repr=False)


def run_episode(
    simulator: Simulator, session: RemoteSession, order: Order, *, on_step: Callable[[int], None]
) -> Record:
    """Plays one episode of a policy in a simulator.

    The policy looks at the start of each chunk, at the steps its history reaches back to, and at
    nothing else; what nobody looks at is not made.

    Args:
        simulator: Of the order's task.
        session: An open session of the policy that plays.
        order: Which episode.
        on_step: Called after each step with the number of steps so far.
    """
    record = Record(outcome="failure", reward_max=-math.inf, recording=Recording() if order.record else None)
    needs = session.needs
    wanted = frozenset(needs.named)
    window = _Window(needs.history)
    film = _open_film(simulator, order)
    space = ActionSpace(simulator.offers, order.out_of_range)
    limit = min(filter(None, (order.max_steps, simulator.max_steps)))

    session.start(task=order.task.name, instruction=order.task.instruction, seed=order.seed, index=order.index)
    with _timed(simulator, record):
        observation = simulator.reset(seed=order.seed, index=order.index, look=wanted | film.look(0))
    film.add(observation, 0)
    window.push(observation, wanted)

    while True:
        seen = window.stacked()
        chunk = session.act(seen, step=record.steps)
        if record.recording:
            record.recording.look(record.steps, seen)
        record.round_trips += 1
        record.policy_s += chunk.policy_seconds
        record.transport_s += chunk.transport_seconds

        outside = space.outside(chunk.actions)
        for played, given in enumerate(chunk.actions, start=1):
            action = space.playable(given, outside=outside[played - 1], step=record.steps)
            record.out_of_range += int(outside[played - 1])
            steps_to_next_look = len(chunk.actions) - played
            may_go_on = record.steps + 1 < limit  # else nobody will look at what comes of this step
            looks = order.observe_every_step or (may_go_on and steps_to_next_look < needs.history)
            with _timed(simulator, record):
                step = simulator.step(action, look=(wanted if looks else NOTHING) | film.look(record.steps + 1))
            _count(record, step)
            if record.recording:
                record.recording.act(action, step.reward)
            on_step(record.steps)
            film.add(step.observation, record.steps)
            if step.terminated or step.truncated or record.steps >= limit:
                record.video = film.finish()
                return record
            if looks:
                window.push(step.observation, wanted)


def _count(record: EpisodeRecord, step: Step) -> None:
    record.steps += 1
    if math.isnan(step.reward):
        raise UnusableStep(f"the simulator gave a reward that is not a number for step {record.steps}.")
    for name, value in step.metrics.items():
        if not math.isfinite(value):
            raise UnusableStep(f"the benchmark reported {value} as its metric {name!r} at step {record.steps}.")
        record.metrics[str(name)] = float(value)
    if step.success:  # reached once is reached, also where the task goes on
        record.outcome = "success"
    record.reward_sum += step.reward
    record.reward_max = max(record.reward_max, step.reward)


@contextmanager
def _timed(simulator: Simulator, record: EpisodeRecord) -> Iterator[None]:
    """Splits the time of a simulator call into physics and rendering."""
    renders, rendering, began = simulator.meter.renders, simulator.meter.seconds, time.perf_counter()
    yield
    rendering = simulator.meter.seconds - rendering
    record.renders += simulator.meter.renders - renders
    record.render_s += rendering
    record.physics_s += time.perf_counter() - began - rendering


class _Window:
    """The last observations, as many as the policy wants; the first of an episode stands in for those before it."""

    def __init__(self, history: int) -> None:
        self._history = history
        self._last: deque[dict[str, Array]] = deque(maxlen=history)

    def push(self, observation: Observation, names: Names) -> None:
        self._last.append({name: observation[name] for name in names})

    def stacked(self) -> dict[str, Array]:
        if self._history == 1:
            return self._last[-1]
        padding = [self._last[0]] * (self._history - len(self._last))
        frames = [*padding, *self._last]
        return {name: np.stack([frame[name] for frame in frames]) for name in frames[-1]}


class _NoFilm:
    def look(self, step: int) -> Names:
        return NOTHING

    def add(self, observation: Observation, step: int) -> None:
        pass

    def finish(self) -> bytes:
        return b""


class _Filming(_NoFilm):
    """Looks through the camera at the steps that the film wants; a frame that the policy looks at too is made once."""

    def __init__(self, camera: str, film: Film) -> None:
        self._camera = camera
        self._film = film

    def look(self, step: int) -> Names:
        return frozenset({self._camera}) if self._film.wants(step) else NOTHING

    def add(self, observation: Observation, step: int) -> None:
        if self._film.wants(step):
            self._film.add(observation[self._camera])

    def finish(self) -> bytes:
        return self._film.finish()


def _open_film(simulator: Simulator, order: Order) -> _NoFilm:
    if not order.film_fps:
        return _NoFilm()
    if simulator.camera is None:
        raise SparringError("this simulator offers no camera to film with (for gym: --benchmark-arg render=true).")
    return _Filming(simulator.camera, Film(control_hz=simulator.offers.control_hz, fps=order.film_fps))
