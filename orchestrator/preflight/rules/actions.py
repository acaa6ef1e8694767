"""Rules of what a policy does: its actions, and what they do in the simulator, against what they did in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparring.orchestrator.preflight.evidence import Evidence, is_picture
from sparring.orchestrator.preflight.facts import ACTION, OBJECTS
from sparring.orchestrator.preflight.script import GRIPPER_STEPS, Script
from sparring.protos.advice import Hint
from sparring.protos.rules import NotApplicable, broken, expect
from sparring.protos.tensor import Array

_HARDLY: Final = 0.01
"""The part of the action space that is no movement."""
_TINY, _HUGE = 0.1, 30.0
"""Training's actions against the action space: metres for parts of a step, or degrees and pixels."""
_FACTOR: Final = 3.0
"""How much more, or less, an action may do in the simulator than it did in training."""
_OPPOSITE, _ALIKE = -0.4, 0.4
"""Correlations of movements, here and in training."""
_FELT: Final = 0.3
"""The part of the usual movement that is no noise."""
_GRIPPED: Final = 0.1
"""Deviations of training that a gripper must move by to be seen."""
_CERTAIN: Final = 3.0
"""Standard errors."""
_EXPLAINED: Final = 0.05
"""The part of a gripper's movements that its action must explain in training."""
_LATER: Final = 4
"""Steps after which it is looked what a gripper has done: it takes its time."""
_LEVEL: Final = 0.95
_FEWEST: Final = 4
"""Looks, at least, that something is said of."""
_ON_THE_WAY: Final = 2
"""Looks until a robot that is told where to be is there, wherever it began: until then, it shows where that was."""
_ELSEWHERE: Final = 0.5
"""Deviations of training from where it was then: it is not there."""
_AWAY: Final = 2.0
"""How many times as far from there as at first: it has gone the other way."""


def moves(evidence: Evidence) -> None:
    """The policy moves the robot."""
    half = _half(evidence)
    most = np.abs(evidence.actions - _middle(evidence)).max(axis=0) / half
    moving = most[:-1] if len(most) > 2 else most  # the last one is a gripper, mostly
    expect(
        moving.max() > _HARDLY,
        f"in {len(evidence.actions)} steps no action was larger than {moving.max():.2g} of the action space: the "
        "robot does not move. Bring actions to the action space in the policy: undo the normalisation of its training.",
    )
    expect(
        moving.min() < 1 / _HARDLY,
        f"every number of an action was up to {moving.min():.3g} times as large as the action space: other units, or "
        "still normalised. Bring them to the action space in the policy.",
    )


def were_of_the_space(evidence: Evidence) -> None:
    """The training set's actions have the range of the action space."""
    low, high = _statistics(evidence)
    half, middle = _half(evidence), _middle(evidence)
    if low.shape != half.shape:
        raise NotApplicable(f"actions had {low.size} numbers in training, and have {half.size} here.")
    reach = np.maximum(np.abs(low - middle), np.abs(high - middle)) / half
    moving = reach[:-1] if len(reach) > 2 else reach
    advice = " Scale them in the policy."
    expect(
        moving.max() >= _TINY,
        f"no action of training was larger than {moving.max():.2g} of the action space: other units, such as metres "
        f"where parts of the largest step are meant.{advice}",
    )
    expect(
        moving.max() <= _HUGE,
        f"actions of training were up to {moving.max():.3g} times as large as the action space: other units, "
        f"such as degrees or pixels.{advice}",
    )
    space = evidence.action_space
    assert space is not None
    last = len(low) - 1
    if last > 2 and space.low[last] < 0 < space.high[last] and abs(low[last]) < 0.02 and 0.98 < high[last] < 1.02:
        raise NotApplicable(
            f"the last number, mostly a gripper, went from {low[last]:.2g} to {high[last]:.2g} in training, and goes "
            f"from {space.low[last]:g} to {space.high[last]:g} here. If 0 meant open, or closed, it never is here."
        )


def do_as_in_training(evidence: Evidence) -> None:
    """Actions of training do in the simulator what they did then: same sign, same scale, same meaning."""
    script, levels = _script(evidence), _are_levels(evidence)
    followed = list(_followed(evidence, script, _ON_THE_WAY if levels else 0))
    opposite = [one for one in followed if one.alike < _OPPOSITE]
    strange = [one for one in followed if one.alike < _ALIKE]
    if levels and (elsewhere := [one for one in followed if one.elsewhere or one in strange]):
        _check_control(evidence, elsewhere)
    if opposite:
        broken(f"{_listed(opposite)}: the other way. {_sign_advice(evidence)}")
    if scaled := [one for one in followed if not 1 / _FACTOR < one.factor < _FACTOR]:
        broken(
            f"{_listed(scaled)}: {scaled[0].factor:.2g} times as far as in training. Scale actions (or the state) in "
            "the policy, or train it on those of this benchmark."
        )
    expect(
        len(strange) <= len(followed) / 2,
        f"{_listed(strange)}: something else than in training. The numbers of an action are in another order, or of "
        "another kind of control: put them in the benchmark's order in the policy.",
    )
    if not levels:  # of which the last one has been followed like the others
        _check_gripper(evidence, script)
    if not followed:
        raise NotApplicable("in the steps that were tried, training's actions moved nothing.")


@dataclass(frozen=True)
class _Followed:
    """How one number of a state moves under actions of training, here and there.

    Attributes:
        what: The number.
        alike: The correlation of its changes.
        factor: How much farther it moves here.
        elsewhere: Whether it does not get to where it was in training.
        away: Whether it even goes away from there.
    """

    what: str
    alike: float
    factor: float
    elsewhere: bool
    away: bool

    def __str__(self) -> str:
        return f"{self.what} (correlation {self.alike:.2f})"


def _listed(followed: Sequence[_Followed]) -> str:
    return f"training's first actions, played here, move {', '.join(map(str, followed[:4]))}"


def _check_control(evidence: Evidence, elsewhere: Sequence[_Followed]) -> None:
    """Looks whether actions that say where to be are taken for movements here.

    Raises:
        NotApplicable: If the benchmark does not say what it takes, and what is seen does not tell.
    """
    control = "" if evidence.action_space is None else evidence.action_space.control
    said = "actions of training are where the robot was to be (absolute)"
    if control == "relative":
        advice = evidence.benchmark_hint(control="absolute")
        more = f"{advice} takes them as they were" if advice else "Turn them into that in the policy"
        broken(f"{said}, and here they are by how much it moves (relative). {more}.")
    if control:
        return
    if away := [one for one in elsewhere if one.away]:
        broken(
            f"{said}, and {_listed(away)} away from there. Does the benchmark take them for how much it moves "
            "(relative)? Then turn them into that in the policy."
        )
    raise NotApplicable(f"{said}; what this benchmark takes it does not say, and {_listed(elsewhere)} otherwise.")


def _followed(evidence: Evidence, script: Script, skipped: int) -> Iterator[_Followed]:
    """Compares what training's actions move, number by number of the states that both sides show, from a look on."""
    assert evidence.probe is not None
    assert evidence.data_set is not None
    for name in _states(evidence):
        known = evidence.in_data_set(name)
        feature = name if known is None else known.name
        then = script.episode.columns[feature]
        here = np.stack(list(evidence.probe.seen(name))).astype(np.float64)
        steps = np.arange(len(here)) * evidence.every
        usable = int((steps <= min(script.steps, len(then) - 1)).sum())
        if here.ndim != 2 or here.shape[1] != then.shape[1] or usable - skipped < _FEWEST:
            continue
        here, then = here[:usable], then[steps[:usable]]
        changes, changes_then = (np.diff(rows[skipped:], axis=0) for rows in (here, then))
        sizes = np.sqrt((changes_then**2).mean(axis=0))
        felt = _FELT * _usual_changes(evidence, feature)
        off = np.abs(here - then)
        spread = np.concatenate([episode.columns[feature] for episode in evidence.data_set.episodes]).std(axis=0)
        elsewhere = np.sqrt((off[skipped:] ** 2).mean(axis=0)) > _ELSEWHERE * spread
        away = off[-1] > _AWAY * off[0] + felt
        for number in np.flatnonzero(sizes > felt):
            one, other = changes[:, number], changes_then[:, number]
            norm = float(np.sqrt((one**2).sum() * (other**2).sum()))
            factor = float(np.sqrt((one**2).mean()) / sizes[number])
            same = float((one * other).sum()) / norm if norm else 0.0
            places = bool(elsewhere[number]), bool(away[number])
            yield _Followed(f"number {number} of {name!r}", same, factor, *places)


def _usual_changes(evidence: Evidence, feature: str) -> Array:
    """Returns how much each number of a state changed between two looks in training: what is far less is noise."""
    assert evidence.data_set is not None
    every = evidence.every
    rows = [e.columns[feature] for e in evidence.data_set.episodes if len(e.columns[feature]) > every]
    changes = np.concatenate([one[every:] - one[:-every] for one in rows])
    usual: Array = np.sqrt((changes**2).mean(axis=0)) + 1e-5
    return usual


def _script(evidence: Evidence) -> Script:
    if evidence.data_set is None:
        raise NotApplicable(f"there is no data set to compare with: give {Hint('dataset')}.")
    if evidence.probe is None or evidence.script is None:
        raise NotApplicable(f"the data set's actions were not tried in the simulator: name it with {Hint('dataset')}.")
    return evidence.script


def _states(evidence: Evidence) -> list[str]:
    """Returns states that the data set has, too: what the policy looks at, else what is called the same there."""
    assert evidence.data_set is not None
    assert evidence.probe is not None
    found = [name for name in evidence.numbers if evidence.in_data_set(name) is not None]
    found = found or [name for name in evidence.probe.observations if name in evidence.data_set.features]
    names = [
        name
        for name in found
        if name in evidence.probe.observations
        and not is_picture(evidence.probe.observations[name])
        and OBJECTS not in name  # what is moved there is decided by where it lies
    ]
    if not names:
        raise NotApplicable("there are no numbers of the robot that both the benchmark and the data set show.")
    return names


def _check_gripper(evidence: Evidence, script: Script) -> None:
    """Compares what the last number of an action does: which number of the state follows it, and which way."""
    assert evidence.probe is not None
    assert evidence.data_set is not None
    if not script.gripper:
        return
    for name in _states(evidence):
        known = evidence.in_data_set(name)
        feature = name if known is None else known.name
        here = np.stack(list(evidence.probe.seen(name))).astype(np.float64)
        begin = script.steps // evidence.every
        end = begin + 2 * (GRIPPER_STEPS // evidence.every)
        if here.ndim != 2 or end >= len(here):
            continue
        up, down = here[(begin + end) // 2] - here[begin], here[end] - here[(begin + end) // 2]
        rows = np.concatenate([episode.columns[feature] for episode in evidence.data_set.episodes])
        moved = np.abs(up - down) / (rows.std(axis=0) + 1e-9)
        slopes = [_slope(evidence, feature, number) for number in range(len(moved))]
        # What still moves from before is moved by something else: in training, the gripper did not explain it.
        number = int(np.argmax([size * found.explained for size, found in zip(moved, slopes, strict=True)]))
        slope = slopes[number]
        if moved[number] > _GRIPPED and slope.is_certain:
            expect(
                slope.value * (up - down)[number] > 0,
                f"the last number of an action, the gripper mostly, {'raises' if slope.value < 0 else 'lowers'} number "
                f"{number} of {name!r} here, and {'raised' if slope.value > 0 else 'lowered'} it in training. "
                f"{_sign_advice(evidence)}",
            )


@dataclass(frozen=True)
class _Slope:
    """Says by how much a number of an action changed one of the state in training.

    Attributes:
        value: Per unit.
        error: How uncertain that is.
        explained: The part of the changes.
    """

    value: float
    error: float
    explained: float

    @property
    def is_certain(self) -> bool:
        return abs(self.value) > _CERTAIN * self.error and self.explained > _EXPLAINED


def _slope(evidence: Evidence, feature: str, number: int) -> _Slope:
    """Compares the last number of an action with what a number of the state did in the steps after it."""
    assert evidence.data_set is not None
    actions, changes = [], []
    for episode in evidence.data_set.episodes:
        done, states = episode.columns[evidence.data_set.action], episode.columns[feature]
        if len(done) > _LATER:
            actions.append(done[:-_LATER, -1])
            changes.append(states[_LATER:, number] - states[:-_LATER, number])
    action, change = np.concatenate(actions), np.concatenate(changes)
    action, change = action - action.mean(), change - change.mean()
    size, total = float((action**2).sum()), float((change**2).sum())
    if size < 1e-9 or total < 1e-12:
        return _Slope(0.0, 1.0, 0.0)
    value = float((action * change).sum()) / size
    left = float(((change - value * action) ** 2).sum())
    # Steps that follow each other say the same: there is less to be certain of than there are rows.
    return _Slope(value, float(np.sqrt(_LATER * left / len(change) / size)), 1.0 - left / total)


def _are_levels(evidence: Evidence) -> bool:
    """Returns whether training's actions are where a state will be, and not by how much it changes."""
    assert evidence.data_set is not None
    found = 0
    for name in _states(evidence):
        known = evidence.in_data_set(name)
        feature = name if known is None else known.name
        action = np.concatenate([e.columns[evidence.data_set.action][:-1] for e in evidence.data_set.episodes])
        level = np.concatenate([e.columns[feature][1:] for e in evidence.data_set.episodes])
        for number in range(min(3, action.shape[1], level.shape[1])):
            one, other = action[:, number], level[:, number]
            if one.std() > 1e-6 and other.std() > 1e-6 and 0.5 < one.std() / other.std() < 2.0:
                found += int(np.corrcoef(one, other)[0, 1] > _LEVEL)
    return found >= 2


def _statistics(evidence: Evidence) -> tuple[Array, Array]:
    """Returns the least and the greatest of each number of an action in training."""
    if evidence.data_set is not None and (name := evidence.data_set.action):
        rows = np.concatenate([episode.columns[name] for episode in evidence.data_set.episodes])
        return rows.min(axis=0), rows.max(axis=0)
    known = None if evidence.checkpoint is None else evidence.checkpoint.features.get(ACTION)
    if known is None:
        raise NotApplicable(f"what actions were in training is not known: {Hint('dataset')} would tell.")
    if "min" not in known.statistics or "max" not in known.statistics:
        raise NotApplicable("the checkpoint has no least and greatest action.")
    return known.statistics["min"], known.statistics["max"]


def _half(evidence: Evidence) -> Array:
    space = evidence.action_space
    if space is None or not np.all(np.isfinite(space.high - space.low)):
        raise NotApplicable("the action space has no bounds, or the worker does not say them.")
    return np.maximum((space.high - space.low) / 2, 1e-9)


def _middle(evidence: Evidence) -> Array:
    space = evidence.action_space
    assert space is not None
    return (space.high + space.low) / 2


def _sign_advice(evidence: Evidence) -> str:
    if evidence.policy.is_foreign:
        return f"What is done with a gripper is said by {Hint('policy_arg', 'gripper')}."
    return "Turn it round in the policy, or train it on actions of this benchmark."


RULES: Final[tuple[Callable[[Evidence], None], ...]] = (moves, were_of_the_space, do_as_in_training)
