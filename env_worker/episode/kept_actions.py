"""The actions that were executed in an episode: with its seed and index, all that it takes to play it again.

Beside them the trace: what came of every step, which a replay is held against.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sparring.env_worker.benchmark import Observation, Simulator, Step
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.protos.action_list import MOST_BYTES, MOST_UNPACKED, pack
from sparring.protos.advice import Hint
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array
from sparring.protos.trace import MOST_BYTES as MOST_TRACE
from sparring.protos.trace import Trace, physics_number, success_number

_HEADER: Final = 1 << 10
"""More than a NumPy file has beside its array."""


class KeptActions(EpisodeObserver):
    """Keeps what was executed, to the bit. Actions that are too many are given up: the episode counts, without them.

    Args:
        simulator: Whose physics are traced.
        most: How many bytes they may have, packed.
        most_unpacked: The same before they are packed; what has more could not be read again.
    """

    def __init__(
        self, simulator: Simulator, *, most: int = MOST_BYTES, most_unpacked: int = MOST_UNPACKED - _HEADER
    ) -> None:
        self.content = b""
        """The packed actions, when the episode has ended; empty if there are none."""
        self.missing = ""
        """Why there are none, in a sentence."""
        self._simulator = simulator
        self._most = most
        self._most_unpacked = most_unpacked
        self._actions: list[Array] = []
        self._trace = Trace([], [], [])

    @property
    def trace(self) -> bytes:
        """What has come of the steps so far, packed; empty if that is nothing, or too much."""
        content = self._trace.pack() if self._trace.rewards else b""
        return content if len(content) <= MOST_TRACE else b""

    def on_reset(self, observation: Observation) -> None:
        self._keep(0.0, None)

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self._actions.append(np.array(action))
        self._keep(result.reward, result.success)

    def on_end(self, record: EpisodeRecord) -> None:
        actions = np.stack(self._actions)
        content = pack(actions) if actions.nbytes <= self._most_unpacked else b""
        if content and len(content) <= self._most:
            self.content = content
            return
        size, most = (len(content), self._most) if content else (actions.nbytes, self._most_unpacked)
        self.missing = (
            f"they have {size:,} bytes, and {most:,} are the most: the episode cannot be played "
            f"again. Say that they are not wanted with {Hint('actions', value=False)}."
        )

    def _keep(self, reward: float, success: bool | None) -> None:
        self._trace.rewards.append(float(reward))
        self._trace.successes.append(success_number(success))
        self._trace.physics.append(physics_number(self._simulator.physics_state()))
