"""Forms of openpi's wire that others have made: what their servers say of themselves, and how they answer.

RoboArena's server and evaluation client, starVLA's server and vLLM-Omni's robot endpoint as their sources and pages
had them in 2026; these are not on PyPI.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bridges.foreign_servers import RoboArenaServer, StarVlaServer, VllmOmniServer, listening
from bridges.telling import OFFER, SIZE, actions_for, made_up

from sparring.policy_server.bridges.clients import openpi
from sparring.policy_server.bridges.layout import BridgeLayout
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.advice import FLAGS, render
from sparring.protos.spec import Offer, TensorSpec

JOINTS = {"robot0_joint_pos": TensorSpec("float64", (7,))}
ROBOARENAS = Offer({**OFFER.observations, **JOINTS}, OFFER.action_low, OFFER.action_high)
PATH = "/v1/realtime/robot/openpi"


def shown(seed: int) -> dict[str, Any]:
    return {**made_up(seed), "robot0_joint_pos": np.arange(7.0) + seed}


def session_with(address: str, form: str, **arguments: Any) -> Any:
    given = {"form": form, "timeout": 10, **arguments}
    return LocalPolicy(lambda: load_policy(address, given), name=address).open(ROBOARENAS, benchmark="libero")


def act(session: Any, seed: int, step: int) -> np.ndarray:
    ours = shown(seed)
    return np.asarray(session.act({name: ours[name] for name in session.needs.named}, step=step).actions)


def first_answer(session: Any) -> np.ndarray:
    session.start(instruction="go", seed=0)
    return act(session, 0, 0)


def told_by(address: str, form: str, **arguments: Any) -> list[str]:
    """What a run is told before it begins, but for the layout itself."""
    policy: Any = load_policy(address, {"form": form, "timeout": 10, **arguments})
    policy.warm_up()
    policy.spec_for("libero")
    return [render(sentence.partition(" ")[2], FLAGS) for sentence in policy.warnings[1:]]


def test_vllm_omnis_servers_answer_with_maps_and_with_batches_of_one() -> None:
    server = VllmOmniServer()
    with listening(server.handle) as port:
        session = session_with(f"openpi://127.0.0.1:{port}{PATH}", "roboarena")
        for episode in range(2):
            session.start(instruction=f"do {episode}", seed=episode)
            for look in range(2):
                actions = act(session, 2 * episode + look, 16 * look)
                assert np.array_equal(actions, actions_for(server.seen[-1], size=SIZE, horizon=16))
            assert server.seen[-1]["prompt"] == f"do {episode}"
    assert set(server.paths) == {PATH}
    assert server.resets == 2
    # What its models remember, they remember by this name, over all connections.
    names = [seen["session_id"] for seen in server.seen]
    assert names[0] == names[1] != names[2] == names[3]


def test_an_actions_parts_are_put_together_in_the_order_that_is_given() -> None:
    server = VllmOmniServer()
    server.parts = {"hand": slice(0, 6), "gripper": slice(6, 7)}
    server.said["action_keys"] = ["gripper", "hand"]
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}{PATH}"
        session = session_with(address, "roboarena", actions=["hand", "gripper"])
        assert np.array_equal(first_answer(session), actions_for(server.seen[-1], size=SIZE, horizon=16))
        assert told_by(address, "roboarena", actions=["hand", "gripper"]) == []

        (sentence,) = told_by(address, "roboarena")
        assert sentence.startswith("answers with gripper, hand, each by itself")
        session = session_with(address, "roboarena")
        with pytest.raises(PolicyFailed, match=r"without actions: \['gripper', 'hand'\].*argument `actions`"):
            first_answer(session)

        session = session_with(address, "roboarena", actions=["hand", "fingers"])
        with pytest.raises(PolicyFailed, match="actions without fingers; it has hand, gripper"):
            first_answer(session)


@pytest.mark.parametrize("endpoint", ["reset", "infer"])
def test_what_vllm_omni_says_went_wrong_is_told(endpoint: str) -> None:
    server = VllmOmniServer()
    server.fails_at = endpoint
    with listening(server.handle) as port:
        session = session_with(f"openpi://127.0.0.1:{port}{PATH}", "roboarena")
        with pytest.raises(PolicyFailed, match="Internal inference error"):
            first_answer(session)


@pytest.mark.parametrize("answer", [{"status": 3}, {}, [1], {"status": "no such endpoint"}])
def test_a_reset_that_is_answered_otherwise_begins_no_episode(answer: Any) -> None:
    server = VllmOmniServer()
    server.reset_answer = answer
    with listening(server.handle) as port:
        session = session_with(f"openpi://127.0.0.1:{port}", "roboarena")
        with pytest.raises(PolicyFailed, match=r"what became of its reset|no such endpoint"):
            first_answer(session)


def test_the_name_of_a_session_is_for_servers_that_ask_for_it() -> None:
    server = VllmOmniServer()
    with listening(server.handle) as port:
        session = session_with(f"openpi://127.0.0.1:{port}", "roboarena")
        first_answer(session)
    assert "session_id" not in server.seen[-1]


@pytest.mark.parametrize(
    ("said", "images"),
    [
        ({"needs_wrist_camera": False}, {"observation/exterior_image_0_left"}),
        ({"n_external_cameras": 0}, {"observation/wrist_image_left"}),
        ({}, {"observation/exterior_image_0_left", "observation/wrist_image_left"}),
    ],
)
def test_a_roboarena_server_is_shown_the_cameras_that_it_asks_for(said: dict[str, Any], images: set[str]) -> None:
    server = RoboArenaServer()
    server.said |= said
    with listening(server.handle) as port:
        session = session_with(f"openpi://127.0.0.1:{port}", "roboarena")
        assert len(first_answer(session)) == 24, "all that it answers is played, as RoboArena's own client does"
    assert {name for name in server.seen[-1] if "image" in name} == images


def test_what_a_roboarena_server_wants_and_cannot_have_is_told_before_a_run() -> None:
    server = RoboArenaServer()
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}"
        assert told_by(address, "roboarena") == []
        server.said |= {"n_external_cameras": 2, "needs_stereo_camera": True, "action_space": "joint_position"}
        told = told_by(address, "roboarena")
    assert told[:2] == [
        "looks at 2 cameras beside the wrist's, and is shown 1.",
        "looks at both images of stereo cameras, and is shown one.",
    ]
    assert told[2].startswith("says that its actions are joint_position, and libero takes what RoboArena calls")
    assert len(told) == 3


@pytest.mark.parametrize(("chunk", "played"), [(4, 4), (10, 10), (None, 8), (0, 8), (True, 8), (10**9, 8), ("9", 8)])
def test_as_many_actions_of_a_starvla_server_are_played_as_it_says(chunk: Any, played: int) -> None:
    server = StarVlaServer()
    server.said["action_chunk_size"] = chunk
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}"
        session = session_with(address, "starvla")
        assert len(first_answer(session)) == played
        session = session_with(address, "starvla", play=3)
        assert len(first_answer(session)) == 3, "what a user gives comes first"


@pytest.mark.parametrize(
    ("said", "given", "words"),
    [
        ({"available_unnorm_keys": ["franka", "widowx"], "default_unnorm_key": None}, {}, "is not told whose to use"),
        ({"available_unnorm_keys": ["franka", "widowx"], "default_unnorm_key": "franka"}, {}, ""),
        ({"available_unnorm_keys": ["franka", "widowx"]}, {"unnorm_key": "widowx"}, ""),
        ({"available_unnorm_keys": ["franka"]}, {}, ""),
        ({"available_unnorm_keys": ["franka"]}, {"unnorm_key": "widowx"}, "has no statistics of 'widowx'"),
        ({"available_unnorm_keys": "all"}, {}, ""),
    ],
)
def test_whose_statistics_a_starvla_server_has_is_known_before_a_run(
    said: dict[str, Any], given: dict[str, str], words: str
) -> None:
    server = StarVlaServer()
    server.said |= said
    with listening(server.handle) as port:
        told = told_by(f"openpi://127.0.0.1:{port}", "starvla", constants=given)
    assert [words in sentence for sentence in told] == ([True] if words else [])


def test_how_many_actions_a_starvla_server_may_say() -> None:
    most = openpi._LONGEST_CHUNK
    for said, played in ((most, most), (most + 1, 8)):
        layout = openpi.StarVlaPeer.as_asked(BridgeLayout(play=8), "libero", {"action_chunk_size": said})
        assert layout.play == played


def test_how_much_is_told_of_what_a_server_calls_things() -> None:
    most = openpi._LONGEST_NAMES
    for said, told in (("x" * most, "x" * most), ("x" * (most + 1), "x" * most + " ...")):
        asked = {"action_space": said}
        (sentence,) = openpi.RoboArenaPeer.not_met(BridgeLayout(), "libero", asked, frozenset())
        assert sentence.startswith(f"says that its actions are {told}, and libero takes")
