"""Reads what `sparring run --record` or `sparring export --format npz` wrote, as arrays to train on."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Demonstrations:
    """What experts saw and did, one row per look.

    Attributes:
        observations: By name, each (rows, ...).
        actions: What was done from that look on, (rows, chunk, action_dim); the last action of an episode is repeated.
        sentences: Of the tasks, each once.
        task: Which sentence each row belongs to, an index.
        episodes: How many there are.
        seeds: Of all episodes.
    """

    observations: dict[str, np.ndarray[Any, Any]]
    actions: np.ndarray[Any, Any]
    sentences: list[str]
    task: np.ndarray[Any, Any]
    episodes: int
    seeds: frozenset[int]


def read_demonstrations(
    folder: Path, *, names: list[str], chunk: int = 1, tasks: list[str] | None = None
) -> Demonstrations:
    """All successful episodes below a folder; what failed teaches nothing.

    Args:
        folder: As given to --record, or made by `sparring export`.
        names: The observations to read.
        chunk: How many actions to learn per look.
        tasks: Only these; None for all.
    """
    seen: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in names}
    done: list[np.ndarray[Any, Any]] = []
    task: list[np.ndarray[Any, Any]] = []
    sentences: list[str] = []
    seeds = set()
    shown = set()
    if not folder.is_dir():
        raise SystemExit(
            f"there is no folder {str(folder)!r}; `sparring run --record DIR` or `sparring export` writes one."
        )
    paths = sorted(folder.rglob("*.npz"))
    for path in paths:
        with np.load(path, allow_pickle=False) as episode:
            about = json.loads(episode["about"].tobytes())
            if not about["success"] or (tasks is not None and about["task"] not in tasks):
                continue
            shown.add(about["task"])
            if about["instruction"] not in sentences:
                sentences.append(about["instruction"])
            actions = episode["actions"]
            looks = episode["looks"][episode["looks"] < len(actions)]  # a replay may be seen after its last step, too
            following = np.minimum(looks[:, None] + np.arange(chunk), len(actions) - 1)
            # Experts ask for more than the action space holds; simulators clip, so the clipped action is what was done.
            done.append(np.clip(actions[following], -1.0, 1.0))
            task.append(np.full(len(looks), sentences.index(about["instruction"])))
            seeds.add(about["seed"])
            for name in names:
                if f"observations/{name}" not in episode:
                    raise SystemExit(
                        f"{str(path)!r} has no {name!r}: the policy that was recorded did not look at it. The README "
                        "says how to record what another policy would see."
                    )
                seen[name].append(episode[f"observations/{name}"][: len(looks)])
    missing = ", ".join(name for name in tasks or () if name not in shown)
    if missing or not done:
        raise SystemExit(f"there are no successful episodes of {missing or 'any task'} in {str(folder)!r}.")
    return Demonstrations(
        {name: np.concatenate(arrays) for name, arrays in seen.items()},
        np.concatenate(done).astype(np.float32),
        sentences,
        np.concatenate(task),
        len(done),
        frozenset(seeds),
    )


def seed_everything(seed: int) -> None:
    """Makes training the same every time on the same machine."""
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
