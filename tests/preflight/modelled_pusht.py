"""PushT's disc without its simulator: gym-pusht's gains and rates, demonstrations that begin anywhere, and probes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from preflight.made_evidence import data_set, recorded

from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.preflight.data_set import DataSet
from sparring.orchestrator.preflight.evidence import Evidence, PolicyNames
from sparring.orchestrator.preflight.script import EVERY, Script

STATE, OBJECTS = "observation.state", "observation.environment_state"
STEPS, BOARD = 48, 512.0
Rows = np.ndarray[Any, Any]


def followed(actions: Rows, start: Rows, *, relative: bool = False) -> Rows:
    """Returns where the disc is after each action; first, where it starts. With `relative` it is told how far to go."""
    place, speed, places = start.astype(float), np.zeros(2), [start.astype(float)]
    for action in actions:
        target = np.clip(place + action - BOARD / 2, 0, BOARD) if relative else action
        for _ in range(10):
            speed = speed + (100 * (target - place) - 20 * speed) * 0.01
            place = place + speed * 0.01
        places.append(place)
    return np.stack(places)


def demonstrated(rng: np.random.Generator, steps: int = 100) -> tuple[Rows, Rows]:
    """Returns what a hand with a mouse has done, and the disc's places: from somewhere to one place after the other."""
    start = rng.uniform(50, 450, 2)
    place, rows, goal = start, [], rng.uniform(80, 430, 2)
    for _ in range(steps):
        if np.linalg.norm(goal - place) < 20:
            goal = rng.uniform(80, 430, 2)
        place = place + (goal - place) / np.linalg.norm(goal - place) * min(18.0, float(np.linalg.norm(goal - place)))
        rows.append(place + rng.normal(0, 2, 2))
    actions = np.stack(rows)
    return actions, followed(actions, start)[:-1]


def demonstrations(folder: Path, seed: int, *, episodes: int = 8, **more: Any) -> DataSet:
    rng = np.random.default_rng(seed)
    for index in range(episodes):
        actions, places = demonstrated(rng)
        pushed = places.astype(np.float32) + 20  # all along, as if the disc had begun beside it
        seen = {STATE: places.astype(np.float32), OBJECTS: pushed}
        recorded(folder / "recordings", index, seen, actions, **space(**more))
    return data_set(folder, [])


def space(control: str = "absolute") -> dict[str, Any]:
    return {"action_space": {"low": [0.0, 0.0], "high": [BOARD, BOARD], "control": control}}


def probed(known: DataSet, folder: Path, start: Rows, *, control: str = "absolute", **more: Any) -> Evidence:
    """What is seen when training's actions are played from another start."""
    script = Script.of(known, "", STEPS)
    assert script is not None
    still = np.tile(start, (12, 1))
    first = RecordedEpisode(recorded(folder, 0, {STATE: still, OBJECTS: still}, still, **space(control)))
    assert first.about.action_space is not None
    actions = script.played(first.about.action_space, STEPS)
    assert actions is not None
    places = followed(actions, start, **more)[::EVERY].astype(np.float32)
    missed = np.tile(np.float32(300), places.shape)  # the object lies elsewhere, and nobody pushes it
    probe = RecordedEpisode(recorded(folder, 1, {STATE: places, OBJECTS: missed}, actions, **space(control)))
    return Evidence(PolicyNames("mine:Policy"), [first], probe=probe, script=script, data_set=known)
