"""Rules of a policy's answers to frames of its own training: what lies between the benchmark and the network.

A policy is shown frames of the data set it was trained on, by the benchmark's names, and its first action is compared
with the one in the data set. Whatever happens on the way (a layout of a bridge, a wrapper of the user's own, a server's
code, statistics of another training) happens here, too, so that what it does wrong is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparring.orchestrator.preflight.data_set import DataEpisode
from sparring.orchestrator.preflight.evidence import Evidence, is_picture
from sparring.orchestrator.preflight.pictures import AS_IT_IS, TURNS, UNDONE_BY, resized
from sparring.protos.advice import Hint
from sparring.protos.rules import NotApplicable, broken, expect
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import Array

_EPISODES, _FRAMES = 4, 16
"""Of the data set that are asked about: so many frames, of so many episodes."""
_LEARNED: Final = 0.8
"""A policy whose error is beyond this part of a constant's answer has not learned these frames."""
_CLEARLY: Final = 0.6
"""The part of the error that must be left when what is shown is changed, before that is said to be right."""
_OPPOSITE: Final = -0.5
_FOLLOWS: Final = 0.8
_FACTOR: Final = 3.0
_BGR: Final = "with red and blue exchanged"
_LIBEROS_STATE: Final[Mapping[str, Callable[[Array], Array]]] = {
    # The parts that LeRobot's state of LIBERO is made of, for policies that look at them one by one.
    "robot0_eef_pos": lambda state: state[:3],
    "robot0_eef_quat": lambda state: _quaternion(state[3:6]),
    "robot0_gripper_qpos": lambda state: state[6:8],
}


def answers_as_trained(evidence: Evidence) -> None:
    """The policy answers frames of its training as the training set does."""
    frames = list(_frames(evidence))
    known = np.stack([frame.action for frame in frames])
    deviation = known.std(axis=0)
    varied = np.flatnonzero(deviation > 1e-3 * max(1.0, float(np.abs(known).max())))
    if len(frames) < _EPISODES or not len(varied):
        raise NotApplicable("the data set has too few frames, or does the same in all of them.")

    def error(answers: Array) -> float:
        return float((np.abs(answers - known)[:, varied] / deviation[varied]).mean())

    straight = _answers(evidence, frames, lambda image: image)
    constant = error(np.tile(np.median(known, axis=0), (len(known), 1)))
    _check_outputs(evidence, straight, known, varied)
    errors = {AS_IT_IS: error(straight)}
    if evidence.images:
        changes = {**{name: TURNS[name] for name in list(TURNS)[:4]}, _BGR: lambda image: image[..., ::-1]}
        for name, change in changes.items():
            if name != AS_IT_IS:
                errors[name] = error(_answers(evidence, frames, change))
    best = min(errors, key=lambda name: errors[name])
    said = f"its error is {errors[AS_IT_IS]:.2f} deviations, that of a constant {constant:.2f}"
    if best != AS_IT_IS and errors[best] < _CLEARLY * errors[AS_IT_IS] and errors[best] < _LEARNED * constant:
        broken(
            f"{said}, and {errors[best]:.2f} with images shown {UNDONE_BY.get(best, best)}: something between the "
            f"benchmark and the network turns them. {_where(evidence)}"
        )
    if errors[AS_IT_IS] > _LEARNED * constant:
        raise NotApplicable(f"{said}: it has not learned these frames, or is shown something else than in training.")


def _check_outputs(evidence: Evidence, answers: Array, known: Array, varied: Array) -> None:
    """Compares each number of the answers with training's, over all frames."""
    last = known.shape[1] - 1
    for number in varied:
        mine, theirs = answers[:, number], known[:, number]
        if mine.std() < 1e-6:
            continue
        follows = float(np.corrcoef(mine, theirs)[0, 1])
        what = f"number {number} of its actions{', the gripper, mostly,' if number == last else ''}"
        expect(
            follows > _OPPOSITE,
            f"{what} goes the other way than in training (correlation {follows:.2f}). {_sign(evidence)}",
        )
        factor = float(mine.std() / theirs.std())
        expect(
            follows < _FOLLOWS or 1 / _FACTOR < factor < _FACTOR,
            f"{what} follows training's, and is {factor:.3g} times as large: actions are in other units, or "
            "normalised with other statistics. Give the policy the statistics of its training, or scale its answers.",
        )


@dataclass(frozen=True)
class _Frame:
    sentence: str
    seen: Mapping[str, Array]
    action: Array


def _frames(evidence: Evidence) -> Iterator[_Frame]:
    if evidence.ask is None:
        raise NotApplicable("the policy cannot be asked.")
    if evidence.data_set is None or not evidence.data_set.action:
        raise NotApplicable(f"there is no data set with actions to compare with: give {Hint('dataset')}.")
    if not evidence.looked_at:
        raise NotApplicable("the policy looks at nothing.")
    size = evidence.data_set.features[evidence.data_set.action].shape
    if size != (evidence.actions.shape[1],):
        raise NotApplicable(f"actions had {size} numbers in training, and have {evidence.actions.shape[1]} here.")
    every = max(1, len(evidence.data_episodes) // _EPISODES)
    chosen = evidence.data_episodes[::every][:_EPISODES]
    each = -(-_FRAMES // len(chosen))
    for episode in chosen:
        done = episode.columns[evidence.data_set.action]
        steps = sorted({int(step) for step in np.linspace(0, len(done) - 1, each + 2)[1:-1]})
        columns = {name: _column(evidence, name, spec, episode, steps) for name, spec in evidence.looked_at.items()}
        for place, step in enumerate(steps):
            if all(place < len(column) for column in columns.values()):
                seen = {name: column[place] for name, column in columns.items()}
                yield _Frame(episode.sentence or evidence.instruction, seen, done[step])


def _column(
    evidence: Evidence, name: str, spec: TensorSpec, episode: DataEpisode, steps: Sequence[int]
) -> Sequence[Array]:
    """Returns what the data set has of an observation at some steps, as the benchmark would show it."""
    assert evidence.data_set is not None
    assert spec.shape is not None
    feature = evidence.in_data_set(name)
    if is_picture(spec) and feature is not None:
        images = evidence.data_set.frames(feature.name, episode, steps)
        scale = 1.0 if spec.dtype == "uint8" else float(evidence.first(name)[0].max() <= 1.5) / 255.0 or 1.0
        return [(resized(image, *spec.shape[:2]) * scale).astype(spec.dtype) for image in images]
    if feature is not None:
        return [episode.columns[feature.name][step].astype(spec.dtype).reshape(spec.shape) for step in steps]
    state = episode.columns.get("observation.state", episode.columns.get("state"))
    if name in _LIBEROS_STATE and state is not None and state.shape[1] == 8:
        return [_LIBEROS_STATE[name](state[step]).astype(spec.dtype).reshape(spec.shape) for step in steps]
    raise NotApplicable(
        f"the policy looks at {name!r}, and which of the data set's features that is is not known: say so with "
        f"{Hint('dataset_feature', name)}."
    )


def _answers(evidence: Evidence, frames: Sequence[_Frame], change: Callable[[Array], Array]) -> Array:
    """Returns the first action of each answer, with every image changed in one way."""
    assert evidence.ask is not None
    found = []
    for frame in frames:
        seen = {}
        for name, array in frame.seen.items():
            shown = array
            if name in evidence.images and change(array).shape == array.shape:
                shown = np.ascontiguousarray(change(array))
            seen[name] = evidence.with_history(shown)
        found.append(evidence.ask(frame.sentence, seen).actions[0])
    return np.stack(found).astype(np.float64)


def _quaternion(rotation: Array) -> Array:
    """Returns the quaternion (x, y, z, w) of an axis times an angle."""
    angle = float(np.linalg.norm(rotation))
    if angle < 1e-12:
        return np.array([0.0, 0.0, 0.0, 1.0])
    return np.append(rotation / angle * np.sin(angle / 2), np.cos(angle / 2))


def _where(evidence: Evidence) -> str:
    if evidence.policy.is_foreign:
        return f"It is its server, or the layout of the bridge ({Hint('policy_arg', 'images')})."
    return "Look for it in the policy's own code, or in its processors."


def _sign(evidence: Evidence) -> str:
    if evidence.policy.is_foreign:
        return f"What is done with a gripper is said by {Hint('policy_arg', 'gripper')}."
    return "Turn it round where the policy makes its answers."


RULES: Final[tuple[Callable[[Evidence], None], ...]] = (answers_as_trained,)
