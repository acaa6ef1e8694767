"""Rules of the numbers that a policy is shown: each for one row of them, held against what it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from sparring.orchestrator.preflight.evidence import Evidence
from sparring.orchestrator.preflight.facts import OBJECTS, Feature
from sparring.protos.advice import Hint
from sparring.protos.rules import NotApplicable, broken, expect
from sparring.protos.tensor import Array

_NEEDED: Final = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
_CONSTANT: Final = 1e-6
_FAR: Final = 8.0
"""Standard deviations from the mean of training beyond which no beginning of an episode is."""
_BEGINS_FAR: Final = 2.5
"""Standard deviations of training between where episodes began then and begin now."""
_SPREADS: Final = 6.0
"""How many times as far as the beginnings in training are from each other."""
_FITS: Final = 1.0
_FEW: Final = 5
"""Episodes of a data set."""
_BEYOND: Final = 0.25
"""The part of training's range by which a beginning may lie outside of it."""
_UNITS: Final = {
    np.pi / 180: "degrees for radians",
    180 / np.pi: "radians for degrees",
    0.001: "millimetres for metres",
    1000.0: "metres for millimetres",
}


def can_be_normalised(evidence: Evidence, name: str) -> None:
    """There are statistics to normalise it with."""
    feature = evidence.in_checkpoint(name)
    if feature is None or not feature.normalisation:
        raise NotApplicable(
            "how the policy normalises it is not known: it is no LeRobot checkpoint, or calls it otherwise."
        )
    if feature.normalisation == "IDENTITY":
        return
    needed = _NEEDED.get(feature.normalisation, ())
    missing = [statistic for statistic in needed if statistic not in feature.statistics]
    expect(
        not missing,
        f"the checkpoint says {feature.normalisation}, and has no {' and no '.join(missing)} of {feature.name!r}: "
        "LeRobot then shows it to the network as it is, without a word. Save its processors with the statistics of "
        "its data set.",
    )
    for statistic in needed:
        values = feature.statistics[statistic]
        expect(
            np.all(np.isfinite(values)),
            f"{statistic} of {feature.name!r} is not finite: {values.tolist()}. Save its processors with the "
            "statistics of its data set.",
        )
    for number, width in enumerate(_width(feature)):
        if width < _CONSTANT:
            moved = np.abs(evidence.seen(name)[:, number] - _middle(feature)[number]).max()
            expect(
                moved < 10 * _CONSTANT,
                f"its number {number} was always {_middle(feature)[number]:.4g} in training, and differs by "
                f"{moved:.3g} here: normalised, that is a huge number. Train it on what this benchmark shows, "
                "or without this number.",
            )


def begins_as_in_training(evidence: Evidence, name: str) -> None:
    """It begins as in training: same numbers, same order, signs and units."""
    known = _known(evidence, name)
    shown = np.mean(evidence.first(name), axis=0).astype(np.float64)
    off = known.off(shown)
    if off.max(initial=0.0) <= 1.0:
        return
    worst = [int(number) for number in np.argsort(-off) if off[number] > 1.0]
    which = "; ".join(f"number {n} is {shown[n]:.4g} and was {known.said(n)}" for n in worst[:4])
    more = f"; and {len(worst) - 4} more" if len(worst) > 4 else ""
    explained = next((how for how, other in _other_ways(shown) if known.off(other).max() <= _FITS), "")
    broken(
        f"by {known.source}, {which}{more}.{f' It would fit {explained}.' if explained else ''} "
        f"{_other_numbers(evidence, name, known)}"
    )


@dataclass(frozen=True)
class _Known:
    """Says where episodes began in training, as far as that is known."""

    source: str
    middle: Array
    allowed: Array
    low: Array
    high: Array

    def off(self, shown: Array) -> Array:
        """Returns how far off each number is; more than 1 is too far."""
        found: Array = np.abs(shown - self.middle) / self.allowed
        return found

    def said(self, number: int) -> str:
        return f"{self.low[number]:.4g} to {self.high[number]:.4g}"


def _known(evidence: Evidence, name: str) -> _Known:
    if OBJECTS in name:
        raise NotApplicable("where objects lie, and which way round, differs from episode to episode.")
    feature = evidence.in_data_set(name)
    if feature is not None and evidence.data_set is not None:
        rows = [episode.columns[feature.name] for episode in evidence.data_set.episodes]
        begun = np.stack([episode.columns[feature.name][0] for episode in evidence.data_episodes])
        least = 1e-3 + 0.02 * np.abs(begun).max(axis=0)
        deviation, spread = np.concatenate(rows).std(axis=0), begun.std(axis=0)
        reach = np.maximum(np.maximum(_BEGINS_FAR * deviation, _SPREADS * spread), least)
        if len(begun) < _FEW:  # too few to know where something may lie that nobody has moved, such as an object
            moved = np.sqrt(np.mean([one.var(axis=0) for one in rows], axis=0))
            reach = np.where(moved < least / 10, np.inf, reach)
        return _Known("the data set's first frames", begun.mean(axis=0), reach, begun.min(axis=0), begun.max(axis=0))
    feature = evidence.in_checkpoint(name)
    if feature is None:
        raise NotApplicable(f"what it was in training is not known: {_which(evidence, name)}")
    found = feature.statistics
    if "min" in found and "max" in found:
        low, high = found["min"], found["max"]
        half = (high - low) / 2
        return _Known("the checkpoint's least and greatest", low + half, half * (1 + 2 * _BEYOND) + 1e-3, low, high)
    if "mean" in found and "std" in found:
        mean, reach = found["mean"], _FAR * found["std"] + 1e-3
        return _Known("the checkpoint's mean and deviation", mean, reach, mean - reach, mean + reach)
    raise NotApplicable(f"the checkpoint has no statistics of it. A data set would tell: {Hint('dataset')}.")


def _which(evidence: Evidence, name: str) -> str:
    if evidence.data_set is None:
        return f"{Hint('dataset')} would tell."
    size = (evidence.looked_at[name].shape or (1,))[0]
    known = ", ".join(f"{n} {list(f.shape)}" for n, f in evidence.data_set.features.items() if f.kind == "numbers")
    return f"it has {size} numbers, the data set {known or 'none'}; {Hint('dataset_feature', name)} says which it is."


def _width(feature: Feature) -> Array:
    found = feature.statistics
    if feature.normalisation == "MEAN_STD":
        return found["std"]
    low, high = _NEEDED[feature.normalisation]
    return found[high] - found[low]


def _middle(feature: Feature) -> Array:
    found = feature.statistics
    if feature.normalisation == "MEAN_STD":
        return found["mean"]
    low, high = _NEEDED[feature.normalisation]
    return (found[high] + found[low]) / 2


def _other_ways(shown: Array) -> Iterator[tuple[str, Array]]:
    """Yields rows that may have been meant, and how they are made of what is shown."""
    size = len(shown)
    for number in range(size):
        yield f"with another sign of number {number}", np.where(np.arange(size) == number, -shown, shown)
    for start, end in combinations(range(size + 1), 2):
        if end - start > 1:
            inside = (np.arange(size) >= start) & (np.arange(size) < end)
            yield f"with other signs of numbers {start} to {end - 1}", np.where(inside, -shown, shown)
    for one, other in combinations(range(size), 2):
        order = np.arange(size)
        order[[one, other]] = order[[other, one]]
        yield f"with numbers {one} and {other} exchanged", shown[order]
    for by in range(1, size):
        yield f"if it began with its number {by}", np.roll(shown, -by)
    yield "in the opposite order", shown[::-1]
    for factor, units in _UNITS.items():
        yield f"with {units}", shown * factor
        for start, end in combinations(range(size + 1), 2):
            inside = (np.arange(size) >= start) & (np.arange(size) < end)
            yield f"with {units} in numbers {start} to {end - 1}", np.where(inside, shown * factor, shown)


def _other_numbers(evidence: Evidence, name: str, known: _Known) -> str:
    """Returns which other observation of the benchmark begins as in training, as a sentence."""
    for other, array in evidence.offered.items():
        if other != name and array.shape == known.middle.shape and known.off(array.astype(np.float64)).max() <= _FITS:
            advice = evidence.advised(evidence.own_name(name), other)
            return f"{other!r} begins as in training{f': {advice}' if advice else ''}."
    if evidence.policy.is_foreign:
        return f"What its state is made of is said by {Hint('policy_arg', 'states')}."
    return "The benchmark shows nothing else that fits: put it in order in the policy, or train it on what is shown."


RULES: Final[tuple[Callable[[Evidence, str], None], ...]] = (can_be_normalised, begins_as_in_training)
