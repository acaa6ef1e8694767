"""Episodes that nobody played and data sets of them, for rules that need no simulator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparring.orchestrator.export.export import chosen_recordings, export
from sparring.orchestrator.export.formats import ExportOptions
from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.preflight.data_set import DataSet

SENTENCE = "Put the bowl on the plate"
SIDE, STEPS = 48, 12


def scene(seed: int, *, symmetric: bool = False) -> np.ndarray[Any, Any]:
    """A picture of some coloured boxes, no two of which hang alike; or one that is the same mirrored."""
    rng = np.random.default_rng(seed)
    image = np.full((SIDE, SIDE, 3), 90, np.uint8)
    for _ in range(6):
        top, left = rng.integers(0, SIDE - 12, 2)
        image[top : top + 12, left : left + 12] = rng.integers(0, 256, 3)
    return np.maximum(image, image[:, ::-1]) if symmetric else image


def recorded(
    folder: Path,
    index: int,
    seen: Mapping[str, np.ndarray[Any, Any]],
    actions: np.ndarray[Any, Any] | None = None,
    *,
    instruction: str = SENTENCE,
    action_space: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the recording of an episode: what is seen is the same at every step, unless it has an axis for them."""
    rng = np.random.default_rng(index)
    done = rng.uniform(-1, 1, (STEPS, 4)) if actions is None else actions
    about = {
        **{"format": 4, "benchmark": "made", "task": "bowl", "index": index, "seed": index, "success": None},
        **{"instruction": instruction, "control_hz": 20.0, "history": 1},
        "action_space": action_space or {"low": [-1.0] * 4, "high": [1.0] * 4, "control": ""},
    }
    arrays = {f"observations/{name}": array for name, array in seen.items()}
    path = folder / f"made/bowl/{index:04d}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(
            file,
            about=np.frombuffer(json.dumps(about).encode(), np.uint8),
            actions=done,
            rewards=np.zeros(len(done)),
            looks=np.arange(len(done)),
            **arrays,
        )
    return path


def still(array: np.ndarray[Any, Any], steps: int = STEPS) -> np.ndarray[Any, Any]:
    """An observation that does not change."""
    return np.repeat(array[None], steps, axis=0)


def episodes(folder: Path, seen: Sequence[Mapping[str, Any]], **more: Any) -> list[RecordedEpisode]:
    return [RecordedEpisode(recorded(folder, index, one, **more)) for index, one in enumerate(seen)]


def data_set(folder: Path, seen: Sequence[Mapping[str, Any]], **more: Any) -> DataSet:
    for index, one in enumerate(seen):
        recorded(folder / "recordings", index, one, **more)
    export(chosen_recordings(folder / "recordings"), folder / "set", "lerobot", ExportOptions())
    return DataSet(folder / "set")
