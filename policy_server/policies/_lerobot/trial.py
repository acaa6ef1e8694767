"""Whether asking a policy for chunks gives what its own loop gives: tried once, when it is loaded.

A memory may be anywhere: in a part of the network, behind a closure, in a library. What can be seen from outside is
what it does: in the policy's own loop, a second chunk depends on it; asked for that chunk alone, the policy has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from typing import Any, Final, Protocol

import torch

from sparring.policy_server.policies._lerobot.episode_rng import EpisodeRng

_SAME: Final = 1e-3
_SAME_HALF: Final = 2e-2
"""In half precision. The same forward pass twice differs by less on any device, where it differs at all; taken for a
memory, that would cost the policy its batches. A memory that makes no more of a difference is none."""

Look = Callable[[int], Mapping[str, Any]]
"""Makes a processed observation of one row, of any content: the same one for the same number."""


class Fills(Protocol):
    """What is known about the policy's queues; `Memory` is."""

    chunk_length: int
    history: int

    def fill(self, frames: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Makes the queues those of a row, and returns what `predict_action_chunk` wants to be called with."""


class Trial:
    """A policy's own loop over made-up observations, to the first action of its second chunk.

    Args:
        policy: The LeRobot policy.
        device: It is on.
        look: Makes observations.
        computing: What a forward pass is made in.
    """

    def __init__(
        self, policy: Any, device: Any, look: Look, computing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._policy = policy
        self._device = device
        self._look = look
        self._computing = computing
        self._rng = EpisodeRng(device)
        self._rng.row_by_row = True
        self.has_run = False
        """Whether the policy has answered, so that nothing is left to be warmed up."""
        self._later: Any = None
        self._action: Any = None

    def run(self, chunk_length: int) -> None:
        """Plays the loop; raises what the policy raises."""
        generator = torch.Generator().manual_seed(0)
        with self._computing():
            first = self._look(0)  # to make one up takes longer than to copy it, and a chunk may have a hundred steps
            for _ in range(chunk_length):
                self._rng.run(partial(self._policy.select_action, _copied(first)), [generator])
            self._later = generator.get_state()
            self._action = self._rng.run(partial(self._policy.select_action, self._look(1)), [generator])
        self.has_run = True

    def differs(self, memory: Fills) -> bool:
        """Returns whether that action is not the one that the policy gives when asked for its second chunk alone."""
        generator = torch.Generator()
        generator.set_state(self._later)
        with self._computing():
            frames = [*(self._look(0) for _ in range(memory.history - 1)), self._look(1)]
            chunk = self._rng.run(lambda: self._policy.predict_action_chunk(memory.fill(frames)), [generator])
            same = _SAME_HALF if self._in_half_precision() else _SAME
        return not torch.allclose(chunk[:, 0].float(), self._action.float(), rtol=same, atol=same, equal_nan=True)

    def _in_half_precision(self) -> bool:
        halves = (torch.bfloat16, torch.float16)
        return torch.is_autocast_enabled(self._device.type) or any(p.dtype in halves for p in self._policy.parameters())


def _copied(look: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an observation that a policy may write on."""
    return {name: value.clone() if isinstance(value, torch.Tensor) else copy(value) for name, value in look.items()}
