"""Rules about what a simulator shows and takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator
from sparring.env_worker.compliance.subject import Subject, actions, bounds, fingerprint
from sparring.protos.rules import NotApplicable, broken, expect
from sparring.protos.spec import TensorSpec, spec_of

_FEW: Final = 3
"""Steps that are enough to see a type or a shape."""


def the_offer_is_definite(subject: Subject) -> None:
    """The offer is definite: types and shapes of what is shown, bounds of actions, a control rate."""
    with subject.simulator() as simulator:
        offers = simulator.offers
    expect(offers.observations, "nothing is offered.")
    for name, spec in offers.observations.items():
        expect(spec.definite, f"{name!r} is offered as {spec}: type and shape must be said.")
    low, high = np.array(offers.action_low), np.array(offers.action_high)
    expect(low.shape == high.shape, f"there are {len(low)} lower bounds of actions and {len(high)} upper ones.")
    expect(len(low) > 0, "actions have no size.")
    expect(not (np.isnan(low).any() or np.isnan(high).any()), "a bound of actions is not a number.")
    expect((low < high).all(), f"the bounds of actions are {offers.action_low} and {offers.action_high}.")
    hz = offers.control_hz
    expect(math.isfinite(hz) and hz > 0, f"the control rate is {hz} Hz.")


def observations_are_as_offered(subject: Subject) -> None:
    """What is looked at comes as it is offered: those names, types and shapes, and no others."""
    with subject.simulator() as simulator:
        names = simulator.offers.observations
        for look in (frozenset(names), *(frozenset([name]) for name in names)):
            for number, observation in enumerate(_looks(subject, simulator, look)):
                when = f"looking at {', '.join(sorted(look))} {_after(number)}"
                _as_offered(observation, look, simulator.offers.observations, when)


def nothing_is_made_unseen(subject: Subject) -> None:
    """What nobody looks at is not made: no observations, no images."""
    with subject.simulator() as simulator:
        before = simulator.meter.renders
        for number, observation in enumerate(_looks(subject, simulator, NOTHING)):
            expect(not observation, f"{', '.join(observation)} came {_after(number)}, at which nobody looked.")
        made = simulator.meter.renders - before
        expect(not made, f"{made} images were made in {_FEW} steps, at which nobody looked.")


def the_camera_is_an_image(subject: Subject) -> None:
    """The camera, if one is named, is offered, or one of `cameras`: uint8 of height × width × 3."""
    with subject.simulator() as simulator:
        camera, offered = simulator.camera, simulator.offers.observations
        if camera is None:
            raise NotApplicable("no camera is named.")
        if camera in simulator.cameras:
            episode = subject.episodes[0]
            simulator.reset(seed=episode.seed, index=episode.index, look=NOTHING)
            spec = spec_of(simulator.picture(camera))
        elif camera in offered:
            spec = offered[camera]
        else:
            there = ", ".join([*offered, *simulator.cameras])
            broken(f"the camera {camera!r} is not among what is offered, nor among its cameras: {there}.")
    right = spec.dtype == "uint8" and spec.shape is not None and len(spec.shape) == 3 and spec.shape[2] == 3
    expect(right, f"the camera {camera!r} is {spec}.")


def images_are_counted(subject: Subject) -> None:
    """Images are counted: `meter.renders` goes up with every look at the camera, and with every picture."""
    with subject.simulator() as simulator:
        camera = simulator.camera
        if camera is None:
            raise NotApplicable("no camera is named.")
        pictured = camera not in simulator.offers.observations
        before = simulator.meter.renders
        for number, _ in enumerate(_looks(subject, simulator, NOTHING if pictured else frozenset([camera]))):
            if pictured:
                simulator.picture(camera)
            now = simulator.meter.renders
            expect(now > before, f"meter.renders stayed at {before} {_after(number)}, looking at {camera!r}.")
            before = now


def observations_stay_as_they_were(subject: Subject) -> None:
    """What was shown stays as it was: later steps do not write into it. Workers keep it for policies with a history."""
    with subject.simulator() as simulator:
        kept: list[tuple[Observation, dict[str, str]]] = []
        for observation in _looks(subject, simulator, frozenset(simulator.offers.observations)):
            kept.append((observation, {name: fingerprint(array) for name, array in observation.items()}))
        episode = subject.episodes[-1]
        simulator.reset(seed=episode.seed + 1, index=episode.index, look=frozenset(simulator.offers.observations))
        for number, (observation, then) in enumerate(kept):
            for name, array in observation.items():
                expect(
                    fingerprint(array) == then[name], f"{name!r}, as shown {_after(number)}, was changed afterwards."
                )


def actions_stay_as_they_were(subject: Subject) -> None:
    """An action is read and not written to, and any within the bounds is taken."""
    with subject.simulator() as simulator:
        episode = subject.episodes[0]
        for action in (*bounds(simulator.offers), *actions(simulator.offers, episode.seed, 1)):
            simulator.reset(seed=episode.seed, index=episode.index, look=NOTHING)
            given = action.copy()
            simulator.step(given, look=NOTHING)
            expect(np.array_equal(given, action), f"the action {action.tolist()} was changed to {given.tolist()}.")


RULES: Final = (
    the_offer_is_definite,
    observations_are_as_offered,
    nothing_is_made_unseen,
    the_camera_is_an_image,
    images_are_counted,
    observations_stay_as_they_were,
    actions_stay_as_they_were,
)


def _looks(subject: Subject, simulator: Simulator, look: Names) -> Iterable[Observation]:
    """What is seen after a reset and after a few steps."""
    episode = subject.episodes[0]
    yield simulator.reset(seed=episode.seed, index=episode.index, look=look)
    for action in actions(simulator.offers, episode.seed, _FEW):
        step = simulator.step(action, look=look)
        yield step.observation
        if step.terminated or step.truncated:
            return


def _as_offered(observation: Observation, look: Names, offered: Mapping[str, TensorSpec], when: str) -> None:
    expect(
        set(observation) == look,
        f"{when}, these came: {', '.join(sorted(observation)) or 'none'}.",
    )
    for name, array in observation.items():
        spec = offered[name]
        expect(isinstance(array, np.ndarray), f"{when}, {name!r} is a {type(array).__name__}, not a numpy array.")
        got = f"{array.dtype} {array.shape}"
        expect(
            array.dtype == spec.dtype and array.shape == spec.shape, f"{when}, {name!r} is {got}, offered as {spec}."
        )


def _after(number: int) -> str:
    return "after reset" if number == 0 else f"at step {number}"
