"""Plays back recorded actions: `--policy replay --policy-arg file=PATH`.

PATH is a folder that `sparring run --record` wrote, or an .npz archive with one array of shape (steps, action_dim) per
episode, named `<benchmark>/<task>/<index>`, for example `metaworld/reach-v3/0`. Arrays are read without pickle.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sparring.policy_server.policies.archives import check_archive
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

_MOST_BYTES: Final = 1 << 30
"""Of the actions in one file: some ten million steps."""


@dataclass
class _Tape:
    actions: Array
    seed: int | None = None
    """Of the episode that was recorded, if that is known."""


class ReplayPolicy(Policy):
    """Answers step k of an episode with the actions recorded from step k on.

    After the end of a recording, its last action is repeated.
    """

    instant = True

    def __init__(self, *, file: str, chunk: int = 1, observations: Sequence[str] = ()) -> None:
        path = Path(file)
        if not path.exists():
            raise UsageError(
                f"there is no recording {file!r}; give a folder or an .npz file with {Hint('policy_arg', 'file')}."
            )
        try:
            self._tapes = _read_folder(path) if path.is_dir() else _read_archive(path)
        except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
            raise UsageError(f"{file!r} cannot be read as recordings of plain arrays: {error}") from error
        found = {name: tape.actions for name, tape in self._tapes.items()}
        shapes = ", ".join(f"{name}: {actions.dtype} {actions.shape}" for name, actions in list(found.items())[:5])
        sizes = {actions.shape[1] if _is_recording(actions) else 0 for actions in found.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise UsageError(
                f"the arrays in {file!r} must all be numbers of shape (steps, action_dim), with one action_dim; "
                f"it has {shapes or 'none'}."
            )
        self.spec = PolicySpec(observations=observations, action_dim=sizes.pop(), chunk_length=chunk)

    def new_session(self, task: Instruction, seed: int) -> _Tape:
        name = f"{task.benchmark}/{task.name}/{task.episode}"
        if name not in self._tapes:
            raise UsageError(f"the recording has no actions for the episode {name!r}.")
        tape = self._tapes[name]
        if tape.seed is not None and tape.seed != seed:
            # Played in another episode, the same actions mean nothing: a silent failure.
            raise UsageError(
                f"the recording of {name!r} is of an episode with the seed {tape.seed}, and this one has {seed}; run "
                f"with the seed that it was recorded with: "
                f"{Hint('seed', value=tape.seed - task.episode)}."
            )
        return tape

    def act(self, observations: Sequence[Observation], states: Sequence[_Tape]) -> Sequence[Array]:
        return [self._next(o.step, s.actions) for o, s in zip(observations, states, strict=True)]

    def _next(self, step: int, actions: Array) -> Array:
        start = min(step, len(actions) - 1)
        return actions[start : start + self.spec.chunk_length]


def _is_recording(actions: Array) -> bool:
    return actions.ndim == 2 and actions.size > 0 and actions.dtype.kind in "fiub"


def _read_archive(path: Path) -> dict[str, _Tape]:
    check_archive(path, _MOST_BYTES)
    with np.load(path, allow_pickle=False) as archive:
        return {name: _Tape(np.asarray(archive[name])) for name in archive.files}


def _read_folder(folder: Path) -> dict[str, _Tape]:
    tapes: dict[str, _Tape] = {}
    for path in sorted(folder.rglob("*.npz")):
        check_archive(path, _MOST_BYTES, ("about.npy", "actions.npy"))
        with np.load(path, allow_pickle=False) as episode:
            about = json.loads(episode["about"].tobytes())
            name = f"{about['benchmark']}/{about['task']}/{about['index']}"
            tapes[name] = _Tape(np.asarray(episode["actions"]), about["seed"])
    return tapes
