"""Recordings of episodes that nobody played, for tests of what is made of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sparring.env_worker.benchmark import Step
from sparring.env_worker.episode.recording import Recording
from sparring.protos.record import EpisodeRecord

CAMERA, STATE = "observation.image", "observation.state"


def scenes(steps: int, *, height: int, width: int, seed: int) -> np.ndarray[Any, Any]:
    """Images that are different at each step and in each episode, and smooth, as those of simulators mostly are."""
    rows, columns = np.mgrid[0:height, 0:width]
    shift = np.random.default_rng(seed).uniform(0, 6)
    moved = rows / 15 + columns / 20 + shift + 0.3 * np.arange(steps)[:, None, None]
    waves = [np.sin(moved + channel) for channel in range(3)]
    return (127.5 + 120 * np.stack(waves, axis=-1)).astype(np.uint8)


def record(
    folder: Path,
    *,
    task: str = "reach",
    index: int = 0,
    steps: int = 12,
    size: tuple[int, int] = (32, 48),
    every: int = 1,
    history: int = 1,
    name: str = "",
    **said: Any,
) -> Path:
    """Writes a recording as a worker does, or under another name, and returns where it is."""
    seed = 1000 + index
    rng = np.random.default_rng(seed)
    images = scenes(steps, height=size[0], width=size[1], seed=seed)
    states = rng.normal(size=(steps, 4)).astype(np.float32)
    success = said.pop("success", True)
    about = {
        "benchmark": "made",
        "task": task,
        "index": index,
        "seed": seed,
        "instruction": f"Do {task}, please",
        "control_hz": 20.0,
        "history": history,
        **said,
    }
    recording = Recording({name: value for name, value in about.items() if value is not ...})
    for step in range(steps):
        if step % every == 0:
            seen = {CAMERA: images, STATE: states}
            shown = {
                name: array[step]
                if history == 1
                else np.stack([array[max(0, step - back)] for back in reversed(range(history))])
                for name, array in seen.items()
            }
            recording.on_look(step, shown)
        recording.on_step(step + 1, rng.normal(size=2), Step({}, float(rng.normal()), False, False, False))
    recording.on_end(EpisodeRecord(outcome="played" if success is None else "success" if success else "failure"))
    assert recording.file is not None
    recording.file.seek(0)
    path = folder / f"{name or f'made/{task}/{index:04d}'}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(recording.file.read())
    recording.close()
    return path
