"""Recordings of episodes: what the policy saw, what it did and what came of it, in one compressed file each."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sparring.env_worker.benchmark import Step
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array

FORMAT: Final = 1


class Recording(EpisodeObserver):
    """Collects an episode; docs/recordings.md describes the file.

    Args:
        about: The episode's identity, kept as JSON.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.npz = b""
        """The file, when the episode has ended: an .npz archive of plain arrays."""
        self._about = about
        self._looks: list[int] = []
        self._seen: dict[str, list[Array]] = {}
        self._actions: list[Array] = []
        self._rewards: list[float] = []

    def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
        self._looks.append(step)
        for name, array in seen.items():
            self._seen.setdefault(name, []).append(np.array(array))

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self._actions.append(np.array(action))
        self._rewards.append(result.reward)

    def on_end(self, record: EpisodeRecord) -> None:
        about = json.dumps({"format": FORMAT, **self._about, "success": record.outcome == "success"}).encode()
        arrays: dict[str, Any] = {f"observations/{name}": np.stack(seen) for name, seen in self._seen.items()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            about=np.frombuffer(about, np.uint8),
            actions=np.stack(self._actions),
            rewards=np.array(self._rewards),
            looks=np.array(self._looks),
            **arrays,
        )
        self.npz = buffer.getvalue()
