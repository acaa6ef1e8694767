"""Rules of what a policy sees: each for one image, held against what the policy was trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sparring.orchestrator.preflight.evidence import Evidence, is_picture
from sparring.orchestrator.preflight.facts import Feature
from sparring.orchestrator.preflight.pictures import AS_IT_IS, TURNS, UNDONE_BY, alike, by_turn, small
from sparring.protos.advice import Hint, together
from sparring.protos.rules import NotApplicable, broken, expect
from sparring.protos.spec import TensorSpec, spec_of
from sparring.protos.tensor import Array

_IMAGENET: Final = (0.485, 0.456, 0.406)
_NO_DATA_SET: Final = "there is no data set to compare with: give {}."
_FEWEST_SHADES: Final = 4
_ALIKE: Final = 0.5
"""From which correlation on two pictures are of the same scene."""
_UNLIKE: Final = 0.3
_CLEARLY: Final = 2.0
"""How many times less unlike one way to hang must be than the other before it is said to be the right one."""
_CLOSE: Final = 0.02
_COLOURED: Final = 0.02
"""How much red and blue must differ before it can be told which is which."""
_DARK, _LIGHT = 0.03, 0.15


def shows_something(evidence: Evidence, name: str) -> None:
    """The image shows something."""
    for number, image in enumerate(evidence.first(name)):
        shades = len(np.unique(image))
        expect(
            shades >= _FEWEST_SHADES and float(image.max()) > (1 if image.dtype == np.uint8 else 0),
            f"the first image of episode {number} has {shades} shades, from {image.min()} to {image.max()}: it is "
            "blank or was scaled to 0 to 1 before it was made bytes. `sparring doctor` finds what is wrong with "
            "rendering.",
        )


def has_the_range(evidence: Evidence, name: str) -> None:
    """Its values have the range that it was trained on."""
    feature = _with_mean(evidence, name)
    level, known = (
        float(np.mean([small(image) for image in evidence.first(name)])),
        float(feature.statistics["mean"].mean()),
    )
    if evidence.looked_at[name].dtype == "uint8":
        expect(
            known <= 1.5,
            f"its mean was {known:.3g} in training, by the statistics: of values from 0 to 255, and images are "
            "divided by 255 before they are normalised. Make the statistics those of values from 0 to 1.",
        )
        expect(
            level > _DARK or known < _LIGHT,
            f"its mean is {level:.3g}, between 0 and 1, and was {known:.3g} in training: nearly black. Make it of "
            "values from 0 to 255.",
        )
        return
    expect(
        (level > 1.5) == (known > 1.5),
        f"its mean is {level:.3g} and was {known:.3g} in training: one of them has values from 0 to 255, the other "
        "from 0 to 1. Divide or multiply by 255 in the benchmark or in the policy.",
    )


def has_the_size(evidence: Evidence, name: str) -> None:
    """It has the size that it was trained on."""
    feature = evidence.in_data_set(name) or evidence.in_checkpoint(name)
    if feature is None or len(feature.shape) != 3:
        raise NotApplicable(_unknown_size(evidence, name))
    shown = evidence.looked_at[name].shape
    assert shown is not None
    if tuple(shown[:2]) == feature.shape[:2]:
        return
    sizes = f"{shown[0]}×{shown[1]}, and {feature.shape[0]}×{feature.shape[1]} in training"
    if evidence.checkpoint is not None and evidence.checkpoint.resizes:
        raise NotApplicable(f"it is {sizes}; the policy brings images to a size of its own.")
    if evidence.checkpoint is not None and evidence.checkpoint.resizes is None:
        raise NotApplicable(
            f"it is {sizes}; whether this kind of policy brings images to a size of its own is not known."
        )
    if evidence.policy.is_foreign:
        raise NotApplicable(f"it is {sizes}; what its server is sent is decided by {Hint('policy_arg', 'side')}.")
    height, width, _ = feature.shape
    advice = evidence.benchmark_hint(resolution=height) if height == width else ""
    advice = advice or evidence.benchmark_hint(height=height, width=width)
    more = f"Show it what it knows: {advice}" if advice else "Bring it to that size in the policy"
    broken(f"it is {sizes}. {more}.")


def hangs_right(evidence: Evidence, name: str) -> None:
    """It hangs as in training: not upside down, not mirrored."""
    feature = _feature(evidence, name)
    shown, known = evidence.shown_picture(name), evidence.known_picture(feature.name)
    scores = by_turn(shown, known)
    if AS_IT_IS not in scores:
        raise NotApplicable("it has another number of channels than in training.")
    best = max(scores, key=lambda turn: scores[turn])
    said = f"it is like the first frames of training by {scores[AS_IT_IS]:.2f}, and {best} by {scores[best]:.2f}"
    if scores[best] < _ALIKE:
        expect(
            scores[best] >= _UNLIKE or not evidence.same_task,
            f"{said}: of this very sentence they show something else, another camera or another scene. Which camera "
            f"the policy looks at is set by {_chosen_by(evidence)}.",
        )
        raise NotApplicable(f"{said}: too little to tell.")
    if _better(scores[best], scores[AS_IT_IS]):
        turned = UNDONE_BY.get(best, best)
        broken(f"{said}: it is shown {turned}. {_other_image(evidence, name, feature, known)}")
    rivals = [turn for turn in scores if turn != AS_IT_IS and not _better(scores[AS_IT_IS], scores[turn])]
    if rivals:
        raise NotApplicable(
            f"it is like the first frames of training by {scores[AS_IT_IS]:.2f}, and nearly as much "
            f"{' and '.join(rivals)}: the scene does not tell."
        )


def is_of_the_camera(evidence: Evidence, name: str) -> None:
    """It is of the camera that it was of in training."""
    feature = _feature(evidence, name)
    assert evidence.data_set is not None
    others = [other for other in evidence.data_set.features.values() if other.kind == "image" and other != feature]
    if not others:
        raise NotApplicable("the data set has one camera.")
    shown = evidence.shown_picture(name)
    scores = {one.name: max(by_turn(shown, evidence.known_picture(one.name)).values()) for one in (feature, *others)}
    best = max(scores, key=lambda camera: scores[camera])
    if scores[best] < _ALIKE:
        raise NotApplicable("it is like none of the data set's cameras.")
    if best == feature.name or not _better(scores[best], scores[feature.name]):
        return
    there = next((other for other in evidence.images if (f := evidence.in_data_set(other)) and f.name == best), None)
    advice = together(
        [hint for hint in (evidence.advised(best, name), there and evidence.advised(feature.name, there)) if hint]
    )
    broken(
        f"the policy is shown it as {feature.name!r}, and it is like {best!r} of training, by {scores[best]:.2f} "
        f"against {scores[feature.name]:.2f}. Exchange the two{f': {advice}' if advice else ''}."
    )


def has_the_colours(evidence: Evidence, name: str) -> None:
    """Red and blue are not exchanged."""
    if evidence.looked_at[name].shape != (*(evidence.looked_at[name].shape or ())[:2], 3):
        raise NotApplicable("it has no colours.")
    if (feature := evidence.in_data_set(name)) is not None:
        _compare_colours(evidence, name, feature)
        return
    feature = _with_mean(evidence, name)
    known, shown = feature.statistics["mean"], np.mean([small(image) for image in evidence.first(name)], axis=(0, 1, 2))
    if known.size != 3 or np.allclose(known, _IMAGENET, atol=2e-3):
        raise NotApplicable(f"the statistics are ImageNet's, and not of what it saw. {_give(evidence)}")
    if min(abs(known[0] - known[2]), abs(shown[0] - shown[2])) < _COLOURED:
        raise NotApplicable(f"there is as much red as blue in it, or was in training. {_give(evidence)}")
    swapped, straight = (float(np.linalg.norm(one - known)) for one in (shown[::-1], shown))
    expect(
        swapped > straight or (known[0] - known[2]) * (shown[0] - shown[2]) > 0,
        f"it has the means {_row(shown)} of red, green and blue, and had {_row(known)} in training: it is BGR, and "
        "was RGB, or the other way round. Exchange them where it is made.",
    )


def _compare_colours(evidence: Evidence, name: str, feature: Feature) -> None:
    shown, known = evidence.shown_picture(name), evidence.known_picture(feature.name)
    scores = by_turn(shown, known)
    best = max(scores, key=lambda turn: scores[turn], default=AS_IT_IS)
    reds, known_reds = (picture[..., 0] - picture[..., 2] for picture in (TURNS[best](shown), known))
    sizes = [float(np.sqrt((one**2).mean())) for one in (reds, known_reds)]
    if min(sizes) < _COLOURED or reds.shape != known_reds.shape:
        raise NotApplicable("there is too little colour in it to tell.")
    same = float((reds * known_reds).mean() / (sizes[0] * sizes[1]))
    if abs(same) < _UNLIKE:
        raise NotApplicable(f"its colours are not those of training, whichever way round ({same:.2f}).")
    expect(
        same > 0,
        f"what is red in it was blue in training (correlation {same:.2f}): it is BGR, and was RGB, or the other way "
        "round. Exchange them where it is made.",
    )


def _better(one: float, other: float) -> bool:
    """Returns whether a way to hang is clearly the better one, however alike pictures are that hang the same way."""
    return 1.0 - other > _CLEARLY * (1.0 - one) + _CLOSE / 2 and one - other > _CLOSE


def _other_image(evidence: Evidence, name: str, feature: Feature, known: Array) -> str:
    """Returns which other observation of the benchmark hangs as in training, and what to set, as a sentence."""
    score = {}
    for other, image in evidence.offered.items():
        if other != name and is_picture(spec_of(image)) and (picture := small(image)).shape == known.shape:
            turns = by_turn(picture, known)
            if max(turns, key=lambda turn: turns[turn]) == AS_IT_IS and turns[AS_IT_IS] >= _ALIKE:
                score[other] = alike(picture, known)
    if not score:
        return (
            "The benchmark shows no other image that hangs as in training: turn it in the policy, or where it is made."
        )
    best = max(score, key=lambda other: score[other])
    advice = evidence.advised(evidence.own_name(name), best)
    if advice is None:
        return f"{best!r} hangs as in training: have the policy look at that."
    return f"{best!r} hangs as in training: {advice}."


def _chosen_by(evidence: Evidence) -> Hint:
    return Hint("policy_arg", "images") if evidence.policy.is_foreign else Hint("rename")


def _feature(evidence: Evidence, name: str) -> Feature:
    if evidence.data_set is None:
        raise NotApplicable(_NO_DATA_SET.format(Hint("dataset")))
    feature = evidence.in_data_set(name)
    if feature is None:
        known = ", ".join(n for n, f in evidence.data_set.features.items() if f.kind == "image") or "none"
        raise NotApplicable(
            f"which of the data set's images it is is not known ({known}): say so with "
            f"{Hint('dataset_feature', name, known.partition(',')[0])}."
        )
    return feature


def _with_mean(evidence: Evidence, name: str) -> Feature:
    for feature in (evidence.in_data_set(name), evidence.in_checkpoint(name)):
        if feature is not None and "mean" in feature.statistics:
            return feature
    if evidence.checkpoint is not None:
        raise NotApplicable(f"the checkpoint has no statistics of it. {_give(evidence)}")
    raise NotApplicable(_NO_DATA_SET.format(Hint("dataset")))


def _give(evidence: Evidence) -> str:
    return "" if evidence.data_set is not None else f"A data set would tell: {Hint('dataset')}."


def _unknown_size(evidence: Evidence, name: str) -> str:
    spec: TensorSpec = evidence.looked_at[name]
    return f"it is {spec}, and what it was in training is not known: {Hint('dataset')}."


def _row(numbers: Array) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


RULES: Final[tuple[Callable[[Evidence, str], None], ...]] = (
    shows_something,
    has_the_range,
    has_the_size,
    hangs_right,
    is_of_the_camera,
    has_the_colours,
)
