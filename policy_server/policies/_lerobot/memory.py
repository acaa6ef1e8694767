"""What a LeRobot policy remembers between steps: on the policy object there, in the session here.

Three kinds are known: a queue of actions (played in the worker, as a chunk), queues of the last observations (sent by
the worker, as a history), and ACT's running average over overlapping chunks. Policies that remember nothing else are
asked for chunks, in batches. One that keeps anything else on itself is driven through its own loop (`own_loop.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import torch

from sparring.policy_server.policies._lerobot.episode_rng import EpisodeRng
from sparring.policy_server.policies._lerobot.module_state import Changes, ModuleState
from sparring.policy_server.policies._lerobot.own_loop import OwnLoop, Show
from sparring.policy_server.policies._lerobot.trial import Trial
from sparring.policy_server.policies.torch_batch import Batch
from sparring.protos.advice import Hint

ACTION: Final = "action"
IMAGES: Final = "observation.images"
_QUEUES: Final = "_queues"
_ACTION_QUEUE: Final = "_action_queue"
_ENSEMBLER: Final = "temporal_ensembler"


class Remembering(Protocol):
    """A policy with what it remembers of each session; `Memory` and `OwnLoop` are the two ways.

    Attributes:
        chunk_length: How many actions an answer has.
        history: How many observations, the newest among them, it looks at.
        rows_at_once: How many rows it takes in one forward pass; 0: any number.
    """

    @property
    def chunk_length(self) -> int: ...

    @property
    def history(self) -> int: ...

    @property
    def rows_at_once(self) -> int: ...

    def actions(self, show: Show, batch: Batch, rng: EpisodeRng) -> Any:
        """Returns what is played, of shape (rows, chunk_length, action_dim), for what is shown."""


def memory_of(
    policy: Any, inner: Any, trial: Trial, *, warn: Callable[[str], None], own_loop: bool = False
) -> Remembering:
    """Chooses how to keep a policy's sessions apart: by its queues if it has nothing else, else through its own loop.

    Args:
        policy: The LeRobot policy, on its device, before it is called for the first time.
        inner: The same, without the PEFT adapter around it.
        trial: Of its own loop, to see what it leaves behind.
        warn: Says what whoever evaluates the policy should know.
        own_loop: Do not look, take its own loop.
    """
    state = ModuleState(inner)  # before it is tried, which no session may remember
    why = "as own_loop=true asks for it" if own_loop else _why_own_loop(policy, inner, trial, warn)
    if not why:
        inner.reset()
        return Memory(policy, inner)
    warn(
        f"a LeRobot policy of type {inner.config.type!r} is driven through its own select_action, {why}: it is shown "
        "every step, which is rendered for it, and rows are computed one by one (docs/lerobot.md)."
    )
    if state.shared:
        warn(f"if {state.shared} remember anything of an episode, episodes mix: no copies can be made.")
    return OwnLoop(policy, inner, state)


def _why_own_loop(policy: Any, inner: Any, trial: Trial, warn: Callable[[str], None]) -> str:
    """Returns why a policy is not asked for chunks; nothing, if it can be."""
    known = {_QUEUES, _ACTION_QUEUE}
    if strange := _attributes_of_reset(inner) - known:
        return f"as it keeps {', '.join(sorted(strange))} from step to step"
    if not _queues_actions(inner):
        return "as it does not predict chunks of actions"
    memory = Memory(policy, inner)
    changes, differs = Changes(inner), False
    try:
        trial.run(memory.chunk_length)
        if strange := changes.names() - known - {_ENSEMBLER}:
            return f"as it keeps {', '.join(sorted(strange))} from step to step"
        # An average over chunks is known, and is not what the policy predicts.
        differs = not memory.averages and trial.differs(memory)
    except Exception as error:  # noqa: BLE001  # a policy may want more than what is made up: a sentence it knows
        warn(
            f"whether a LeRobot policy of type {inner.config.type!r} remembers more than its queues could not be tried "
            f"out: it does not answer to an observation that was made up ({type(error).__name__}: {error}). If it "
            f"does, episodes mix; {Hint('policy_arg', 'own_loop', True)} keeps them apart (docs/lerobot.md)."
        )
    return "as what it answers depends on what it saw before" if differs else ""


def _queues_actions(inner: Any) -> bool:
    if getattr(inner, _ENSEMBLER, None) is not None:
        return True
    queue = (getattr(inner, _QUEUES, None) or {}).get(ACTION, getattr(inner, _ACTION_QUEUE, None))
    return getattr(queue, "maxlen", None) is not None


class Memory:
    """A policy's queues and averages, made to hold the rows of one batch and nothing from the batch before.

    Args:
        policy: The LeRobot policy.
        inner: The same, without the PEFT adapter around it.
    """

    rows_at_once = 0

    def __init__(self, policy: Any, inner: Any) -> None:
        self._policy = policy
        self._module = inner
        queues = getattr(inner, _QUEUES, None) or {}
        self._observed = [key for key in queues if key != ACTION]
        self._ensembler: Any = getattr(inner, _ENSEMBLER, None)
        self.history = int(inner.config.n_obs_steps) if self._observed else 1
        # As many actions of a chunk are played as LeRobot's own queue of them holds.
        queue: Any = queues.get(ACTION, getattr(inner, _ACTION_QUEUE, None))
        self.chunk_length = 1 if self._ensembler is not None else int(queue.maxlen)
        self.averages = self._ensembler is not None

    def actions(self, show: Show, batch: Batch, rng: EpisodeRng) -> Any:
        """Returns the actions that are played, of shape (rows, chunk_length, action_dim).

        Args:
            show: Makes the processed observations of the batch, oldest first; called for every pass, as policies may
                change what they are given.
            batch: Where the sessions' memory is.
            rng: For what the policy draws.

        Raises:
            Unsplittable: If the policy draws in a way that makes it run row by row.
        """
        chunk = rng.run(lambda: self._policy.predict_action_chunk(self.fill(show())), batch.generators)
        return self.played(chunk, batch)

    def fill(self, frames: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Makes the policy's queues those of a batch, and returns what `predict_action_chunk` wants to be called with.

        Args:
            frames: The processed observations of the batch, oldest first.
        """
        self._module.reset()
        # Pre-processors add an action that is None; policies with queues would take it for one.
        seen = [{key: value for key, value in frame.items() if key != ACTION} for frame in frames]
        if not self._observed:
            return seen[-1]
        if IMAGES in self._observed and self._module.config.image_features:
            for frame in seen:
                cameras = [frame[key] for key in self._module.config.image_features]
                frame[IMAGES] = torch.stack(cameras, dim=-4)
        queues = getattr(self._module, _QUEUES)
        for frame in seen:
            for key in self._observed:
                if key in frame:
                    queues[key].append(frame[key])
        return seen[-1]

    def played(self, chunk: Any, batch: Batch) -> Any:
        """Returns what is played of a predicted chunk: its beginning, or an average over chunks that overlap."""
        if self._ensembler is None:
            return chunk[:, : self.chunk_length]
        return self._averaged(chunk, batch)[:, None]

    def _averaged(self, chunk: Any, batch: Batch) -> Any:
        """Averages chunks as ACT's temporal ensembling does, for rows that are at different steps of their episodes.

        The arithmetic is LeRobot's, operation by operation, so that the numbers are, too.
        """
        weights = self._ensembler.ensemble_weights.to(chunk.device)
        sums = self._ensembler.ensemble_weights_cumsum.to(chunk.device)
        length = chunk.shape[1]
        ones = torch.ones((length, 1), dtype=torch.long, device=chunk.device)
        averages, counts = [], []
        for new, average, count in zip(chunk, batch.recalled("average"), batch.recalled("count"), strict=True):
            if average is None:
                averages.append(new)
                counts.append(ones)
                continue
            mixed = average * sums[count - 1]
            mixed += new[:-1] * weights[count]
            mixed /= sums[count]
            averages.append(torch.cat([mixed, new[-1:]]))
            counts.append(torch.cat([torch.clamp(count + 1, max=length), ones[:1]]))
        batch.remember("average", [average[1:] for average in averages])
        batch.remember("count", [count[1:] for count in counts])
        return torch.stack([average[0] for average in averages])


def _attributes_of_reset(module: Any) -> set[str]:
    """Returns what a policy's reset() puts on the policy object: that is its memory of an episode."""
    kind: Any = type(module)
    assigned: set[str] = set()

    def spy(self: Any, name: str, value: Any) -> None:
        assigned.add(name)
        kind.__setattr__(self, name, value)

    # Through a class of its own, and not by comparing before and after: None is often followed by None.
    namespace = {"__setattr__": spy, "config_class": kind.config_class, "name": kind.name}
    module.__class__ = type(kind.__name__, (kind,), namespace)
    try:
        module.reset()
    finally:
        object.__setattr__(module, "__class__", kind)
    return assigned
