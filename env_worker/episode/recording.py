"""Recordings of episodes: what the policy saw, what it did and what came of it, in one compressed file each."""

from __future__ import annotations

import fnmatch
import json
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator, Step
from sparring.env_worker.episode.array_spool import ArraySpool, temporary_file
from sparring.env_worker.episode.attachment import Attachment
from sparring.protos.errors import UsageError
from sparring.protos.pieces import MOST_BYTES, AttachmentMissing, check_size, size_of
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array

FORMAT: Final = 4
"""Of what is said about the episode: 1 did not say what it was made with, 2 not how fast it goes, 3 not what actions
may be."""


class Recording(Attachment):
    """Collects an episode in an .npz archive of plain arrays; docs/recordings.md describes it.

    A recording that becomes too large, or has no room on the disk, is given up: the episode goes on, and counts.

    Args:
        about: The episode's identity, kept as JSON.
        watched: Observations to keep of the reset and of every step, instead of what the policy looks at.
        every: After how many steps they are kept, and made, if not after each.
        most: How many bytes it may have.
    """

    def __init__(
        self, about: Mapping[str, Any], *, watched: Names = NOTHING, every: int = 1, most: int = MOST_BYTES
    ) -> None:
        super().__init__()
        self._about = about
        self._watched = watched
        self._every = every
        self._most = most
        self._looks: list[int] = []
        self._seen: ArraySpool | None = None
        self._actions: list[Array] = []
        self._rewards: list[float] = []

    def looks(self, step: int) -> Names:
        return self._watched if step % self._every == 0 else NOTHING

    def on_reset(self, observation: Observation) -> None:
        if self._watched:
            self._keep(0, {name: observation[name] for name in sorted(self._watched)})

    def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
        if not self._watched:
            self._keep(step, seen)

    def _keep(self, step: int, seen: Mapping[str, Array]) -> None:
        if self.missing:
            return
        with self._or_missing():
            self._seen = self._seen or ArraySpool()
            self._looks.append(step)
            for name, array in seen.items():
                self._seen.add(name, array)
            check_size("recording", self._seen.size, self._most)

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self._actions.append(np.array(action))
        self._rewards.append(result.reward)
        if self._watched and step % self._every == 0:
            self._keep(step, {name: result.observation[name] for name in sorted(self._watched)})

    def on_end(self, record: EpisodeRecord) -> None:
        if not self.missing:
            with self._or_missing():
                self._write(success=None if record.outcome == "played" else record.outcome == "success")
        self._drop_seen()

    def close(self) -> None:
        self._drop_seen()
        if self.file is not None:
            self.file.close()
            self.file = None

    def _write(self, *, success: bool | None) -> None:
        assert self._seen is not None
        about = json.dumps({"format": FORMAT, **self._about, "success": success}, allow_nan=False).encode()
        arrays = {
            "about": np.frombuffer(about, np.uint8),
            "actions": np.stack(self._actions),
            "rewards": np.array(self._rewards),
            "looks": np.array(self._looks),
        }
        self.file = temporary_file()
        try:
            with zipfile.ZipFile(self.file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
                for name in self._seen.names:
                    with archive.open(f"observations/{name}.npy", "w", force_zip64=True) as member:
                        self._seen.write(name, member)
        except OSError as error:
            raise AttachmentMissing(f"it could not be written on the worker: {error.strerror}.") from error
        check_size("recording", size_of(self.file), self._most)

    def _drop_seen(self) -> None:
        if self._seen is not None:
            self._seen.close()
            self._seen = None


def watched(simulator: Simulator, patterns: Iterable[str]) -> Names:
    """Returns the observations that patterns name, among those that a simulator offers.

    Raises:
        UsageError: If a pattern names none.
    """
    offered = sorted(simulator.offers.observations)
    found: set[str] = set()
    for pattern in patterns:
        names = fnmatch.filter(offered, pattern)
        if not names:
            raise UsageError(f"there is no observation {pattern!r} here. There are: {', '.join(offered)}.")
        found.update(names)
    return frozenset(found)
