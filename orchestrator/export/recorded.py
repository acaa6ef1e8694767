"""Recordings as they are read again: docs/recordings.md describes the file."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from sparring.protos import unreadable
from sparring.protos.errors import UsageError
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import Array

_OBSERVATIONS: Final = "observations/"
_MOST_BYTES: Final = 1 << 30
"""Of one array that is read as a whole: a small file may unpack to more than a machine has."""


@dataclass(frozen=True)
class ActionBounds:
    """What the actions of an episode may be.

    Attributes:
        low: The least of each number; infinite where there is no bound.
        high: The greatest.
        control: What the numbers mean, where the benchmark says so: `relative` or `absolute`.
    """

    low: Array
    high: Array
    control: str

    @classmethod
    def read(cls, said: Any) -> ActionBounds | None:
        """Reads what a recording says; None, if it does not."""
        if said is None:
            return None
        low = [-np.inf if bound is None else float(bound) for bound in said["low"]]
        high = [np.inf if bound is None else float(bound) for bound in said["high"]]
        return cls(np.array(low), np.array(high), str(said["control"]))


@dataclass(frozen=True)
class About:
    """Says which episode a recording is of, and what is known of it.

    Attributes:
        success: None: the simulator does not say.
        control_hz: Steps per simulated second; 0: the recording does not say.
        history: How many observations the policy was shown at each look, the newest last.
        provenance: Conditions and policy, as the recording has them.
        action_space: What actions may be; None: the recording does not say.
    """

    benchmark: str
    task: str
    index: int
    seed: int
    instruction: str
    success: bool | None
    control_hz: float
    history: int
    provenance: dict[str, Any]
    action_space: ActionBounds | None = None

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.task} #{self.index}"


class RecordedEpisode:
    """One recording. Arrays are read when they are asked for, images one by one.

    Args:
        path: The file.

    Raises:
        UsageError: If it is no recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reading(), zipfile.ZipFile(path) as archive:
            self._members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        self.about = self._about()

    @property
    def observations(self) -> dict[str, TensorSpec]:
        """What was seen at each look, without the history."""
        specs = {}
        for name in self._members:
            if name.startswith(_OBSERVATIONS):
                dtype, shape = self._header(name)
                specs[name.removeprefix(_OBSERVATIONS)] = TensorSpec(dtype.name, self._one(shape))
        return specs

    @property
    def actions(self) -> Array:
        """As executed, (steps, action_dim)."""
        return self._array("actions", axes=2)

    @property
    def rewards(self) -> Array:
        """Of each step."""
        return self._array("rewards", axes=1)

    @property
    def looks(self) -> Array:
        """The steps before whose action the policy looked."""
        return self._array("looks", axes=1)

    def seen(self, name: str) -> Iterator[Array]:
        """Yields an observation, look by look; one of them at a time is in memory."""
        member = _OBSERVATIONS + name
        with self._reading(), zipfile.ZipFile(self.path) as archive, archive.open(self._member(member)) as file:
            dtype, shape = _read_header(file)
            size = math.prod(shape[1:]) * dtype.itemsize
            if min(shape, default=-1) < 0 or size > _MOST_BYTES:
                raise ValueError(f"{name!r} has the shape {shape}: no observation has")
            for _ in range(shape[0]):
                content = file.read(size)
                if len(content) != size:
                    raise EOFError("it ends too early")
                array = np.frombuffer(content, dtype).reshape(shape[1:])
                yield array[-1] if self.about.history > 1 else array

    def _about(self) -> About:
        with self._reading():
            said = json.loads(self._array("about", axes=1).tobytes())
            return About(
                benchmark=str(said["benchmark"]),
                task=str(said["task"]),
                index=int(said["index"]),
                seed=int(said["seed"]),
                instruction=str(said["instruction"]),
                success=said["success"],
                control_hz=float(said.get("control_hz", 0.0)),
                history=int(said.get("history", 1)),
                provenance={name: said.get(name) for name in ("settings", "conditions", "policy")},
                action_space=ActionBounds.read(said.get("action_space")),
            )

    def _one(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[2:] if self.about.history > 1 else shape[1:]

    def _array(self, name: str, *, axes: int) -> Array:
        with self._reading():
            if self._member(name).file_size > _MOST_BYTES:
                raise ValueError(f"{name!r} would unpack to {self._member(name).file_size} bytes")
            with zipfile.ZipFile(self.path) as archive, archive.open(self._member(name)) as file:
                array: Array = np.lib.format.read_array(file, allow_pickle=False)
            if array.ndim != axes or array.dtype.kind not in "fiub":
                raise ValueError(f"{name!r} is {array.dtype} {array.shape}, and not numbers along {axes} axes")
        return array

    def _header(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        with self._reading(), zipfile.ZipFile(self.path) as archive, archive.open(self._member(name)) as file:
            return _read_header(file)

    def _member(self, name: str) -> zipfile.ZipInfo:
        return self._members[name]

    def _reading(self) -> _Reading:
        return _Reading(self.path)


@dataclass(frozen=True)
class _Reading:
    """Says which file it is that cannot be read."""

    path: Path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, unreadable.ARCHIVE):
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise UsageError(f"{str(self.path)!r} cannot be read as a recording: {why}.") from error


def recordings_in(folder: Path) -> Sequence[RecordedEpisode]:
    """Opens all recordings below a folder, by benchmark, task and index.

    Raises:
        UsageError: If there are none, one cannot be read, or two are of the same episode.
    """
    found = [RecordedEpisode(path) for path in sorted(folder.rglob("*.npz"))]
    if not found:
        raise UsageError(
            f"there is nothing to export in {str(folder)!r}: it is neither the output folder of a run nor does it hold "
            "recordings."
        )
    known: dict[str, Path] = {}
    for episode in found:
        if other := known.get(str(episode.about)):
            raise UsageError(
                f"{str(folder)!r} has two recordings of {episode.about}: {str(other)!r} and {str(episode.path)!r}. "
                "Give the folder of one run."
            )
        known[str(episode.about)] = episode.path
    return sorted(found, key=lambda one: (one.about.benchmark, one.about.task, one.about.index))


def _read_header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, fortran_order, dtype = read(file)
    if dtype.hasobject or fortran_order:
        raise ValueError("an array in there is not plain")
    return dtype, shape
