"""What a LeRobot policy remembers between steps: on the policy object there, in the session here.

Three kinds are known: a queue of actions (played in the worker, as a chunk), queues of the last observations (sent by
the worker, as a history), and ACT's running average over overlapping chunks. A policy that keeps anything else on
itself would mix the episodes of different sessions, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from policy_server.policies.torch_batch import Batch
from protos.errors import UsageError

ACTION: Final = "action"
IMAGES: Final = "observation.images"
_QUEUES: Final = "_queues"
_ACTION_QUEUE: Final = "_action_queue"


class Memory:
    """A policy's queues and averages, made to hold the rows of one batch and nothing from the batch before.

    Args:
        module: The LeRobot policy.

    Raises:
        UsageError: If it keeps something between steps that is not known here.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        kept = _attributes_of_reset(module)
        strange = sorted(kept - {_QUEUES, _ACTION_QUEUE})
        if strange:
            raise UsageError(
                f"a LeRobot policy of type {module.config.type!r} keeps {', '.join(strange)} on the policy object from "
                "step to step, where the episodes of different sessions would mix; it cannot be served."
            )
        queues = getattr(module, _QUEUES, None) or {}
        self._observed = [key for key in queues if key != ACTION]
        self._ensembler: Any = getattr(module, "temporal_ensembler", None)
        self.history = int(module.config.n_obs_steps) if self._observed else 1
        self.chunk_length = self._played(queues)

    def _played(self, queues: Mapping[str, Any]) -> int:
        """How many actions of a chunk are played: as many as LeRobot's own queue of them holds."""
        if self._ensembler is not None:
            return 1
        queue = queues.get(ACTION, getattr(self._module, _ACTION_QUEUE, None))
        if queue is None or queue.maxlen is None:
            raise UsageError(
                f"a LeRobot policy of type {self._module.config.type!r} does not predict chunks of actions."
            )
        return int(queue.maxlen)

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
        """The part of a predicted chunk that is played: its beginning, or the average over chunks that overlap."""
        if self._ensembler is None:
            return chunk[:, : self.chunk_length]
        return self._averaged(chunk, batch)[:, None]

    def _averaged(self, chunk: Any, batch: Batch) -> Any:
        """ACT's temporal ensembling, for rows that are at different steps of their episodes.

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
    """What a policy's reset() puts on the policy object: that is its memory of an episode."""
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
