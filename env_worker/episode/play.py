"""An episode, from reset to outcome."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator, Step, Task
from sparring.env_worker.episode.actions import ActionSpace
from sparring.env_worker.episode.observers import EpisodeObserver, Observers
from sparring.env_worker.episode.session import Session
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array


@dataclass(frozen=True)
class Order:
    """Says which episode to run, and by which rules.

    Attributes:
        task: What is to be done.
        index: Which of the task's episodes.
        seed: Of the episode.
        rules: By which it is played.
        policy_seed: Of the policy, where it is not the episode's.
    """

    task: Task
    index: int
    seed: int
    rules: EpisodeRules = field(default_factory=EpisodeRules)
    policy_seed: int | None = None

    def limit(self, simulator: Simulator) -> int:
        """Returns after how many steps the episode ends at the latest."""
        return min(filter(None, (self.rules.max_steps, simulator.max_steps)))


class UnusableStep(SparringError):
    """The simulator reported something that cannot be recorded."""


def run_episode(
    simulator: Simulator, session: Session, order: Order, observers: Sequence[EpisodeObserver] = ()
) -> EpisodeRecord:
    """Plays one episode of a policy in a simulator.

    The policy looks at the start of each chunk, at the steps its history reaches back to, and at
    nothing else; what nobody looks at is not made.

    Args:
        simulator: Of the order's task.
        session: An open session of the policy that plays.
        order: Which episode.
        observers: Who is told of every step; they change nothing.
    """
    record = EpisodeRecord(outcome="played", reward_max=-math.inf)
    needs = session.needs
    wanted = frozenset(needs.named)
    window = _Window(needs.history)
    watching = Observers(observers)
    space = ActionSpace(simulator.offers, order.rules.out_of_range)
    limit = order.limit(simulator)

    policy_seed = order.seed if order.policy_seed is None else order.policy_seed
    session.start(task=order.task.name, instruction=order.task.instruction, seed=policy_seed, index=order.index)
    look = wanted | watching.looks(0)
    with _timed(simulator, record):
        observation = simulator.reset(seed=order.seed, index=order.index, look=look)
    watching.on_reset(observation)
    window.push(observation, wanted)

    while True:
        seen = window.stacked()
        watching.on_look(record.steps, seen)
        chunk = session.act(seen, step=record.steps)
        record.round_trips += 1
        record.policy_s += chunk.policy_seconds
        record.transport_s += chunk.transport_seconds

        outside = space.outside(chunk.actions)
        playable = chunk.actions[: order.rules.actions_per_look or None]
        for played, given in enumerate(playable, start=1):
            action = space.playable(given, outside=outside[played - 1], step=record.steps)
            record.out_of_range += int(outside[played - 1])
            steps_to_next_look = len(playable) - played
            may_go_on = record.steps + 1 < limit  # else nobody will look at what comes of this step
            looks = order.rules.observe == "every-step" or (may_go_on and steps_to_next_look < needs.history)
            look = (wanted if looks else NOTHING) | watching.looks(record.steps + 1)
            with _timed(simulator, record):
                step = simulator.step(action, look=look)
            _count(record, step)
            watching.on_step(record.steps, action, step)
            if step.terminated or step.truncated or record.steps >= limit:
                watching.on_end(record)
                return record
            if looks:
                window.push(step.observation, wanted)


def _count(record: EpisodeRecord, step: Step) -> None:
    record.steps += 1
    if not math.isfinite(step.reward):
        raise UnusableStep(f"the simulator gave the reward {step.reward} for step {record.steps}: not a finite number.")
    for name, value in step.metrics.items():
        if not math.isfinite(value):
            raise UnusableStep(f"the benchmark reported {value} as its metric {name!r} at step {record.steps}.")
        record.metrics[str(name)] = float(value)
    if step.success:  # reached once is reached, also where the task goes on
        record.outcome = "success"
    elif step.success is not None and record.outcome == "played":
        record.outcome = "failure"
    record.reward_sum += step.reward
    if not math.isfinite(record.reward_sum):
        raise UnusableStep(f"the rewards of the simulator add up to {record.reward_sum} at step {record.steps}.")
    record.reward_max = max(record.reward_max, step.reward)


@contextmanager
def _timed(simulator: Simulator, record: EpisodeRecord) -> Iterator[None]:
    """Splits the time of a simulator call into physics and rendering."""
    renders, rendering, began = simulator.meter.renders, simulator.meter.seconds, time.perf_counter()
    yield
    rendering = simulator.meter.seconds - rendering
    record.renders += simulator.meter.renders - renders
    if record.renders:
        record.renderer = simulator.meter.renderer
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
