"""Replays: an episode played again from its recorded actions, without the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparring.env_worker.benchmark import Simulator
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.env_worker.episode.play import Order, run_episode
from sparring.protos.chunk import Chunk
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array


class ReplayDiverged(SparringError):
    """The simulator does not do what it did when the actions were recorded."""


def replay_episode(
    simulator: Simulator, order: Order, actions: Array, observers: Sequence[EpisodeObserver] = ()
) -> EpisodeRecord:
    """Plays an episode again: the same simulator calls in the same order, and no policy.

    Args:
        simulator: Of the order's task.
        order: Which episode, by the rules that it was played by.
        actions: As they were executed, (steps, dimensions).
        observers: Who is told of every step: a film, an export, a check.

    Raises:
        ReplayDiverged: If the episode goes on where it had ended. One that ends earlier has fewer steps than actions.
    """
    # What was executed is executed again, to the bit, whatever rule had made it of what the policy gave.
    order = replace(order, rules=replace(order.rules, out_of_range="pass", observe="on-demand"))
    return run_episode(simulator, _RecordedActions(actions), order, observers)


class _RecordedActions:
    """A session that looks at nothing and answers with all that was executed."""

    def __init__(self, actions: Array) -> None:
        self._actions = actions
        self.needs = PolicySpec(action_dim=actions.shape[1], chunk_length=len(actions))

    def start(self, *, task: str, instruction: str, seed: int, index: int) -> None:
        """Needs to know nothing of it."""

    def act(self, tensors: Mapping[str, Array], *, step: int) -> Chunk:
        if step >= len(self._actions):
            raise ReplayDiverged(
                f"the episode had ended after {len(self._actions)} steps, and the simulator goes on now: it is not "
                "the same, or these are not the actions of this episode."
            )
        return Chunk(self._actions[step:], 0.0, 0.0, 1)
