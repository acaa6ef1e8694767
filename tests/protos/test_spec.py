from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparring.protos import policy_pb2 as pb
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer, PolicySpec, SpecMismatch, TensorSpec, spec_of

OFFER = Offer(
    observations={
        "observation.image": TensorSpec("uint8", (480, 480, 3)),
        "observation.state": TensorSpec("float32", (4,)),
        "environment_state": TensorSpec("float64", (39,)),
    },
    action_low=(-1.0, -2.0, -3.0, -4.0),
    action_high=(1.0, 2.0, 3.0, 4.0),
    control_hz=80.0,
)


def refusal(spec: PolicySpec, offer: Offer = OFFER) -> str:
    with pytest.raises(SpecMismatch) as caught:
        spec.settle(offer)
    return caught.value.told(FLAGS)


@pytest.mark.parametrize(
    ("need", "fits"),
    [
        (TensorSpec(), True),
        (TensorSpec("uint8"), True),
        (TensorSpec("int8"), False),
        (TensorSpec(shape=(480, 480, 3)), True),
        (TensorSpec("uint8", (480, 480, 3)), True),
        (TensorSpec("uint8", (-1, -1, 3)), True),
        (TensorSpec("uint8", (-1, -1, 4)), False),
        (TensorSpec("uint8", (480, 640, 3)), False),
        (TensorSpec("uint8", (480, 480)), False),
        (TensorSpec("uint8", (1, 480, 480, 3)), False),
        (TensorSpec("uint8", (-1, -1)), False),
        (TensorSpec("uint8", ()), False),
        (TensorSpec("float32", (480, 480, 3)), False),
    ],
    ids=str,
)
def test_a_need_accepts_what_fits_and_nothing_else(need: TensorSpec, fits: bool) -> None:
    assert need.accepts(TensorSpec("uint8", (480, 480, 3))) is fits


def test_a_scalar_need_is_not_an_open_shape() -> None:
    assert TensorSpec("float32", ()).accepts(TensorSpec("float32", ()))
    assert not TensorSpec("float32", ()).accepts(TensorSpec("float32", (1,)))
    assert not TensorSpec("float32", (1,)).accepts(TensorSpec("float32", ()))


def test_type_names_are_told_apart_by_meaning_not_by_spelling() -> None:
    assert TensorSpec(">f4") == TensorSpec("float32") == TensorSpec("single")
    assert TensorSpec("?") == TensorSpec("bool")


def test_a_type_that_cannot_be_sent_cannot_be_needed() -> None:
    with pytest.raises(SparringError):
        TensorSpec("complex64")
    with pytest.raises((SparringError, TypeError)):
        TensorSpec("floaty")


def test_settling_fills_in_what_was_open_and_only_that() -> None:
    spec = PolicySpec(
        observations={"observation.image": TensorSpec("uint8", (-1, -1, 3)), "environment_state": TensorSpec()},
        chunk_length=10,
        history=3,
    )
    assert spec.settle(OFFER) == PolicySpec(
        observations={
            "observation.image": TensorSpec("uint8", (480, 480, 3)),
            "environment_state": TensorSpec("float64", (39,)),
        },
        action_dim=4,
        chunk_length=10,
        history=3,
    )


def test_settling_does_not_change_the_policy_s_own_spec() -> None:
    spec = PolicySpec(["environment_state"])
    spec.settle(OFFER)
    assert spec == PolicySpec(["environment_state"])
    assert spec.action_dim is None


def test_a_policy_that_looks_at_nothing_fits_everything() -> None:
    assert PolicySpec().settle(OFFER) == PolicySpec({}, action_dim=4)


def test_a_missing_observation_is_shown_with_all_that_is_offered_instead() -> None:
    message = refusal(PolicySpec({"observation.images.top": TensorSpec("uint8", (224, 224, 3))}, action_dim=4))
    lines = [line.split() for line in message.splitlines()[1:]]
    assert lines[0] == ["policy", "needs", "benchmark", "offers"]
    assert lines[1] == ["observation.images.top", "uint8", "(224,", "224,", "3)", "-", "not", "offered"]
    assert lines[2] == ["action", "4", "4"]
    assert ["observation.image", "-", "uint8", "(480,", "480,", "3)"] in lines
    assert ["environment_state", "-", "float64", "(39,)"] in lines


def test_each_difference_is_marked_and_what_fits_is_not() -> None:
    message = refusal(
        PolicySpec(
            {"observation.image": TensorSpec("uint8", (224, 224, 3)), "observation.state": TensorSpec("float32", (4,))},
            action_dim=7,
        )
    )
    rows = {line.split()[0]: line for line in message.splitlines()[2:]}
    assert rows["observation.image"].endswith("differs")
    assert "(224, 224, 3)" in rows["observation.image"]
    assert "(480, 480, 3)" in rows["observation.image"]
    assert rows["action"].split() == ["action", "7", "4", "differs"]
    assert "differs" not in rows["observation.state"]


def test_the_table_is_aligned() -> None:
    message = refusal(PolicySpec({"a": TensorSpec(), "a.much.longer.name": TensorSpec("uint8", (-1, 2))}))
    header, *rows = message.splitlines()[1:]
    column = header.index("benchmark offers")
    assert all(row[column - 1] == " " != row[column] for row in rows)
    assert "any type any shape" in message
    assert "(any, 2)" in message


@pytest.mark.parametrize("size", [3, 5])
def test_a_wrong_action_size_is_refused(size: int) -> None:
    assert f"{size}" in refusal(PolicySpec(action_dim=size))


def test_actions_of_another_meaning_are_refused_with_the_flag_that_changes_it() -> None:
    relative, absolute = replace(OFFER, control="relative"), replace(OFFER, control="absolute")
    poses = PolicySpec(control="absolute")
    message = refusal(poses, relative)
    assert message.splitlines()[0].endswith("; its actions are absolute, so give --benchmark-arg control=absolute:")
    (row,) = (line for line in message.splitlines() if line.strip().startswith("control"))
    assert row.split() == ["control", "absolute", "relative", "differs"]
    assert "control=relative, if the benchmark has that setting" in refusal(PolicySpec(control="relative"), absolute)
    assert poses.settle(absolute).control == "absolute"
    assert PolicySpec().settle(relative).control == PolicySpec().settle(absolute).control == ""


def test_a_benchmark_that_does_not_say_what_actions_mean_is_no_place_for_a_policy_that_does() -> None:
    message = refusal(PolicySpec(control="absolute"), OFFER)
    assert "not offered" in message
    assert "--benchmark-arg" not in message


@pytest.mark.parametrize(
    "open_spec", [TensorSpec(), TensorSpec("uint8"), TensorSpec(shape=(3,)), TensorSpec("uint8", (-1, 3))], ids=str
)
def test_an_offer_that_leaves_something_open_cannot_be_settled(open_spec: TensorSpec) -> None:
    offer = Offer({"camera": open_spec}, action_low=(0.0,), action_high=(1.0,))
    assert "camera" in refusal(PolicySpec(["camera"]), offer)


def test_history_adds_a_leading_axis() -> None:
    once = PolicySpec(["environment_state"]).settle(OFFER)
    thrice = PolicySpec(["environment_state"], history=3).settle(OFFER)
    assert once.batched_shape("environment_state") == (39,)
    assert thrice.batched_shape("environment_state") == (3, 39)


@pytest.mark.parametrize(
    "spec",
    [
        PolicySpec(),
        PolicySpec(["a", "b"], chunk_length=50),
        PolicySpec({"a": TensorSpec("uint8", (-1, -1, 3)), "b": TensorSpec("float16"), "c": TensorSpec(shape=())}),
        PolicySpec({"a": TensorSpec("bool", ())}, action_dim=7, chunk_length=5, history=2),
        PolicySpec(control="absolute"),
    ],
    ids=repr,
)
def test_needs_survive_the_wire(spec: PolicySpec) -> None:
    assert PolicySpec.from_message(pb.Needs.FromString(spec.to_message().SerializeToString())) == spec


def test_an_offer_survives_the_wire() -> None:
    unbounded = Offer(OFFER.observations, action_low=(float("-inf"),), action_high=(float("inf"),))
    for offer in (OFFER, unbounded, replace(OFFER, control="relative")):
        assert Offer.from_message(pb.Offer.FromString(offer.to_message().SerializeToString())) == offer


def test_an_offer_with_uneven_bounds_is_refused() -> None:
    with pytest.raises(SpecMismatch, match="2 lower and 1 upper"):
        Offer.from_message(pb.Offer(action_low=[0, 0], action_high=[1]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_length": 0},
        {"chunk_length": -1},
        {"chunk_length": 2.5},
        {"chunk_length": "3"},
        {"history": 0},
        {"action_dim": 0},
        {"action_dim": -4},
        {"observations": "observation.image"},
    ],
    ids=str,
)
def test_a_spec_that_makes_no_sense_is_refused_with_the_value(wrong: dict[str, Any]) -> None:
    with pytest.raises(SparringError) as caught:
        PolicySpec(**wrong)
    assert repr(next(iter(wrong.values()))) in str(caught.value)


@pytest.mark.parametrize("array", [np.zeros((2, 3), ">f4"), np.float64(1.0), np.zeros(0, bool)], ids=repr)
def test_the_spec_of_an_array_accepts_it(array: Any) -> None:
    spec = spec_of(array)
    assert spec.shape == np.shape(array)
    assert spec.accepts(TensorSpec(np.asarray(array).dtype.name, np.shape(array)))


def test_a_difference_that_flags_would_mend_says_which() -> None:
    small = PolicySpec({"observation.image": TensorSpec("uint8", (96, 96, 3))})
    assert "together; if they mean the same, try --benchmark-arg resolution=96:\n" in refusal(small)
    wide = PolicySpec({"observation.image": TensorSpec("uint8", (96, 128, 3))})
    assert "--benchmark-arg" not in refusal(wide), "resolution is one number"
    top = {"observation.images.top": TensorSpec("uint8", (480, 480, 3)), "position": TensorSpec(None, (4,))}
    assert "--rename" not in refusal(PolicySpec(top)), "a policy that cannot rename is not told to"
    message = refusal(PolicySpec(top, own_names={"position": "observation.state"}))
    assert (
        "try --rename observation.images.top=observation.image --rename observation.state=observation.state:" in message
    )
    lower = PolicySpec({"top": TensorSpec("uint8", (96, 96, 3))}, own_names={})
    assert "try --rename top=observation.image --benchmark-arg resolution=96:" in refusal(lower)
    nothing = PolicySpec({"force": TensorSpec("float32", (6,))}, own_names={})
    assert "together:" in refusal(nothing), "there is nothing that could be meant"


def test_own_names_are_no_part_of_what_is_told_to_clients() -> None:
    spec = PolicySpec(["observation.state"], action_dim=2, own_names={"observation.state": "state"})
    assert PolicySpec.from_message(spec.to_message()) == spec
