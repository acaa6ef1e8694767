"""Plays back recorded actions: `--policy replay --policy-arg file=PATH`.

PATH is a folder that `sparring run --record` wrote, or an .npz archive with one array of shape (steps, action_dim) per
episode, named `<benchmark>/<task>/<index>`, for example `metaworld/reach-v3/0`. Arrays are read without pickle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sparring.policy_server.policies.archives import check_archive
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from sparring.protos import unreadable
from sparring.protos.advice import Hint, together
from sparring.protos.conditions import Conditions
from sparring.protos.errors import UsageError

_MOST_BYTES: Final = 1 << 30
"""Of the actions in one file: some ten million steps."""
_MOST_WARNINGS: Final = 5


@dataclass
class _Tape:
    actions: Array
    seed: int | None = None
    """Of the episode that was recorded, if that is known."""
    conditions: Conditions | None = None
    """By what it was played, if that is known."""


class ReplayPolicy(Policy):
    """Answers step k of an episode with the actions recorded from step k on.

    After the end of a recording, its last action is repeated. By other settings of the benchmark, other rules or
    another version of the simulator the same actions may come to another end: that is refused.

    Args:
        file: A folder of recordings, or an archive.
        chunk: Actions in one answer.
        observations: To look at.
        strict: Whether other conditions are refused; else they are a warning.
    """

    instant = True

    def __init__(self, *, file: str, chunk: int = 1, observations: Sequence[str] = (), strict: bool = True) -> None:
        path = Path(file)
        self._strict = strict
        self.warnings: list[str] = []
        if not path.exists():
            raise UsageError(
                f"there is no recording {file!r}; give a folder or an .npz file with {Hint('policy_arg', 'file')}."
            )
        try:
            self._tapes = _read_folder(path) if path.is_dir() else _read_archive(path)
        except unreadable.ARCHIVE as error:
            raise UsageError(f"{file!r} cannot be read as recordings of plain arrays: {error}") from error
        found = {name: tape.actions for name, tape in self._tapes.items()}
        self.data_sha256 = _hash(found)
        shapes = ", ".join(f"{name}: {actions.dtype} {actions.shape}" for name, actions in list(found.items())[:5])
        sizes = {actions.shape[1] if _is_recording(actions) else 0 for actions in found.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise UsageError(
                f"the arrays in {file!r} must all be numbers of shape (steps, action_dim), with one action_dim; "
                f"it has {shapes or 'none'}."
            )
        if any(tape.conditions is None for tape in self._tapes.values()):
            self.warnings.append(
                f"recordings in {file!r} do not say by what settings, rules and versions they were made: whether those "
                "are the same now cannot be checked."
            )
        self.spec = PolicySpec(observations=observations, action_dim=sizes.pop(), chunk_length=chunk)

    def check_conditions(self, benchmark: str, conditions: Conditions) -> None:
        """Refuses what none of the recordings of a benchmark was made by, before an episode is played."""
        tapes = [(n, tape) for n, tape in self._tapes.items() if n.startswith(f"{benchmark}/") and tape.conditions]
        if tapes and all(tape.conditions.differences(conditions) for _, tape in tapes if tape.conditions):
            self._check(*tapes[0], conditions)

    def _check(self, name: str, tape: _Tape, conditions: Conditions) -> None:
        found = [] if tape.conditions is None else tape.conditions.differences(conditions)
        if not found:
            return
        lines = [f"{kind} {key}: {json.dumps(there)} there, {json.dumps(now)} now" for kind, key, there, now in found]
        told = f"the recording of {name!r} was made by other conditions, by which the same actions mean something else:"
        if self._strict:
            advice = together(
                [Hint("benchmark_arg", key, there) for kind, key, there, _ in found if kind == "settings"]
                + [Hint(key, value=there) for kind, key, there, _ in found if kind == "rules"]
            )
            raise UsageError(
                "\n  ".join([told, *lines])
                + f"\nPlay it as it was recorded{f', with {advice}' if advice else ''}; to see what comes of it, give "
                f"{Hint('policy_arg', 'strict', False)}."
            )
        sentence = f"{told} {'; '.join(lines)}."
        if len(self.warnings) < _MOST_WARNINGS and sentence not in self.warnings:
            self.warnings.append(sentence)

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
        if task.conditions is not None:
            self._check(name, tape, task.conditions)
        return tape

    def act(self, observations: Sequence[Observation], states: Sequence[_Tape]) -> Sequence[Array]:
        return [self._next(o.step, s.actions) for o, s in zip(observations, states, strict=True)]

    def _next(self, step: int, actions: Array) -> Array:
        start = min(step, len(actions) - 1)
        return actions[start : start + self.spec.chunk_length]


def _hash(actions: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(actions.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


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
            if name in tapes:
                raise UsageError(
                    f"{str(folder)!r} has two recordings of the episode {name!r}, of different evaluations or runs; "
                    "give the folder of one of them."
                )
            said = about.get("conditions")
            conditions = None if said is None else Conditions.from_json(said)
            tapes[name] = _Tape(np.asarray(episode["actions"]), about["seed"], conditions)
    return tapes
