"""Recordings of episodes: what the policy saw, what it did and what came of it, in one compressed file each."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sparring.protos.tensor import Array

FORMAT: Final = 1


class Recording:
    """Collects an episode; docs/recordings.md describes the file."""

    def __init__(self) -> None:
        self._looks: list[int] = []
        self._seen: dict[str, list[Array]] = {}
        self._actions: list[Array] = []
        self._rewards: list[float] = []

    def look(self, step: int, tensors: Mapping[str, Array]) -> None:
        """The policy looked, before the action of this step."""
        self._looks.append(step)
        for name, array in tensors.items():
            self._seen.setdefault(name, []).append(np.array(array))

    def act(self, action: Array, reward: float) -> None:
        """An action was executed."""
        self._actions.append(np.array(action))
        self._rewards.append(reward)

    def finish(self, about: Mapping[str, Any]) -> bytes:
        """The file: an .npz archive of plain arrays.

        Args:
            about: The episode's identity and outcome, kept as JSON.
        """
        text = json.dumps({"format": FORMAT, **about}).encode()
        arrays: dict[str, Any] = {f"observations/{name}": np.stack(seen) for name, seen in self._seen.items()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            about=np.frombuffer(text, np.uint8),
            actions=np.stack(self._actions),
            rewards=np.array(self._rewards),
            looks=np.array(self._looks),
            **arrays,
        )
        return buffer.getvalue()
