"""The actions that were executed in an episode: with its seed and index, all that it takes to play it again."""

from __future__ import annotations

import numpy as np

from sparring.env_worker.benchmark import Step
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.protos.action_list import MOST_BYTES, pack
from sparring.protos.advice import Hint
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array


class KeptActions(EpisodeObserver):
    """Keeps what was executed, to the bit. Actions that are too many are given up: the episode counts, without them.

    Args:
        most: How many bytes they may have, packed.
    """

    def __init__(self, *, most: int = MOST_BYTES) -> None:
        self.content = b""
        """The packed actions, when the episode has ended; empty if there are none."""
        self.missing = ""
        """Why there are none, in a sentence."""
        self._most = most
        self._actions: list[Array] = []

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self._actions.append(np.array(action))

    def on_end(self, record: EpisodeRecord) -> None:
        content = pack(np.stack(self._actions))
        if len(content) > self._most:
            self.missing = (
                f"they have {len(content):,} bytes, and {self._most:,} are the most: the episode cannot be played "
                f"again. Say that they are not wanted with {Hint('actions', value=False)}."
            )
            return
        self.content = content
