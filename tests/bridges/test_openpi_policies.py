"""`--policy openpi://`: a server of openpi's wire as a policy of ours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bridges import foreign_servers as servers
from bridges.foreign_servers import OpenpiServer, RoboArenaServer, StarVlaServer, listening
from bridges.telling import OFFER, SIZE, actions_for, made_up

from sparring.policy_server.errors import PolicyFailed, PolicyRefused, PolicyUnreachable
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer, TensorSpec


@pytest.fixture
def server() -> Iterator[OpenpiServer]:
    openpi = OpenpiServer()
    with listening(openpi.handle) as port:
        openpi.port = port  # type: ignore[attr-defined]
        yield openpi


def session_with(server: OpenpiServer, **arguments: Any) -> Any:
    arguments = {"timeout": 30.0, **arguments}
    address = f"openpi://127.0.0.1:{server.port}"  # type: ignore[attr-defined]
    policy = LocalPolicy(lambda: load_policy(address, arguments), name=address, arguments=arguments)
    return policy.open(OFFER, benchmark="libero")


def by_openpis_loop(ours: dict[str, Any], instruction: str) -> dict[str, Any]:
    """What openpi's LIBERO client would send, computed as it does; images at 224 need no scaling."""
    quaternion = ours["robot0_eef_quat"]
    angle = 2.0 * math.acos(quaternion[3])
    rotation = quaternion[:3] * angle / math.sqrt(1.0 - quaternion[3] ** 2)
    return {
        "observation/image": ours["observation.images.image"],
        "observation/wrist_image": ours["observation.images.image2"],
        "observation/state": np.concatenate((ours["robot0_eef_pos"], rotation, ours["robot0_gripper_qpos"])),
        "prompt": instruction,
    }


def test_it_sees_what_openpis_own_loop_would_show_and_its_first_five_actions_are_played(server: OpenpiServer) -> None:
    session = session_with(server, side=256)
    session.start(task="libero_goal/1", instruction="put the bowl on the stove", seed=3)

    for step in (0, 5):
        ours = made_up(step)
        chunk = session.act(ours, step=step)
        expected = by_openpis_loop(ours, "put the bowl on the stove")
        assert server.seen[-1].keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, np.ndarray):
                assert server.seen[-1][name].dtype == value.dtype, name
                np.testing.assert_allclose(server.seen[-1][name], value, rtol=1e-14, err_msg=name)
        assert np.array_equal(chunk.actions, actions_for(server.seen[-1], size=SIZE)[:5])


def test_by_default_images_are_scaled_to_224(server: OpenpiServer) -> None:
    session = session_with(server)
    session.start(instruction="go", seed=0)
    session.act(made_up(0), step=0)
    assert server.seen[-1]["observation/image"].shape == (224, 224, 3)


def test_each_episode_has_a_connection_of_its_own(server: OpenpiServer) -> None:
    session = session_with(server)
    before = server.connections
    for seed in range(3):
        session.start(instruction="go", seed=seed)
        session.act(made_up(seed), step=0)
    assert server.connections == before + 3


def test_fewer_actions_than_are_played_are_played(server: OpenpiServer) -> None:
    server.horizon = 2
    session = session_with(server)
    session.start(instruction="go", seed=0)
    assert len(session.act(made_up(0), step=0).actions) == 2


@pytest.mark.parametrize(
    ("misbehaviour", "kind", "said"),
    [
        (servers.says_a_traceback, PolicyFailed, "out of memory on cuda"),
        (servers.goes_away, PolicyUnreachable, "went away in the middle of an episode"),
        (servers.says_nothing, PolicyFailed, r"did not answer within 1 s"),
        (servers.says_garbage, PolicyFailed, "a message that this wire does not have"),
        (servers.says_no_actions, PolicyFailed, "a map without actions"),
        (servers.says_objects, PolicyFailed, "which is not of numbers"),
        (servers.says_too_few_bytes, PolicyFailed, "8 bytes for an array"),
        (servers.says_nan, PolicyFailed, "nan in dimension 0"),
    ],
)
def test_a_server_that_misbehaves_is_told_in_a_sentence(
    server: OpenpiServer, misbehaviour: servers.Answering, kind: type[Exception], said: str
) -> None:
    server.answer = misbehaviour
    session = session_with(server, timeout=1.0 if misbehaviour is servers.says_nothing else 30.0)
    session.start(instruction="go", seed=0)
    with pytest.raises(kind, match=said):
        session.act(made_up(0), step=0)


def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(server: OpenpiServer) -> None:
    def twice(connection: Any, seen: Any) -> None:
        server.tell(connection, seen)
        server.tell(connection, seen)

    server.answer = twice
    session = session_with(server)
    session.start(instruction="go", seed=0)

    def play() -> None:
        for look in range(50):  # on a busy machine, the second answer to the first may still be on its way
            session.act(made_up(look), step=5 * look)

    with pytest.raises(PolicyFailed, match="nobody had asked for"):
        play()


def test_nobody_there_is_told_at_once() -> None:
    with pytest.raises(UsageError, match=r"no openpi server answers at openpi://127.0.0.1:1: .*Is it running there"):
        LocalPolicy(lambda: load_policy("openpi://127.0.0.1:1", {}), name="x")


def test_a_benchmark_that_no_preset_is_known_for_is_refused_with_what_to_give(server: OpenpiServer) -> None:
    address = f"openpi://127.0.0.1:{server.port}"  # type: ignore[attr-defined]
    policy = LocalPolicy(lambda: load_policy(address, {}), name=address)
    known = r"no preset of openpi is known for 'mine' \(known: libero, metaworld, aloha\)"
    with pytest.raises(PolicyRefused, match=known):
        policy.open(OFFER, benchmark="mine")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"preset": "liberoo"}, "liberoo.*libero"),
        ({"sidee": 3}, "sidee.*side"),
        ({"play": 0}, "play must be a whole number of at least 1"),
        ({"gripper": "up"}, "up.*as-given"),
        ({"states": {"observation/state": ["robot0_eef_quat:euler"]}}, "euler.*axis-angle"),
        ({"states": "robot0_eef_pos"}, "must map the policy's names"),
        ({"timeout": 0}, "timeout must be seconds above 0"),
        ({"instruction": 3}, "instruction must be the policy's name for the sentence"),
        ({"channels": "middle"}, "middle.*last"),
        ({"nested": "yes"}, "nested must be true or false"),
        ({"nested": True, "images": {"a": "x", "a/b": "y"}}, "'a' cannot be a map and something else"),
        ({"nested": True, "form": "starvla"}, "starvla has no maps"),
        ({"form": "xvla"}, "openpi:// has no form .xvla.; http:// has"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_asked(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_policy("openpi://127.0.0.1:1", arguments)


def test_roboarenas_requests_name_the_session_and_say_when_an_episode_begins() -> None:
    """As its servers (RoboArena's own, vLLM-Omni's for DreamZero) take them."""
    server = RoboArenaServer()
    offer = Offer(
        {**OFFER.observations, "robot0_joint_pos": TensorSpec("float64", (7,))}, OFFER.action_low, OFFER.action_high
    )
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}"
        policy = LocalPolicy(lambda: load_policy(address, {"form": "roboarena", "timeout": 5}), name=address)
        session = policy.open(offer, benchmark="libero")
        for episode in range(2):
            session.start(instruction=f"do {episode}", seed=episode)
            ours = {**made_up(episode), "robot0_joint_pos": np.arange(7.0)}
            for look in range(2):
                chunk = session.act({name: ours[name] for name in session.needs.named}, step=24 * look)
                assert np.array_equal(chunk.actions, actions_for(server.seen[-1], size=SIZE, horizon=24))
            seen = server.seen[-1]
            assert seen["prompt"] == f"do {episode}"
            assert np.array_equal(seen["observation/joint_position"], np.arange(7.0))
            assert seen["observation/gripper_position"] == ours["robot0_gripper_qpos"][0]
            assert seen["observation/exterior_image_0_left"].shape == (180, 320, 3)
            image = scaled_by_hand(ours["observation.images.image"], 180, 320)
            assert np.array_equal(seen["observation/exterior_image_0_left"], image)
    sessions = [seen["session_id"] for seen in server.seen]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]
    assert server.resets == 2


@pytest.mark.parametrize("nothing", ["", None])
def test_a_sentence_that_is_not_to_be_sent_is_not(server: OpenpiServer, nothing: Any) -> None:
    session = session_with(server, instruction=nothing)
    session.start(instruction="go", seed=0)
    session.act(made_up(0), step=0)
    assert server.seen[-1].keys() == {"observation/image", "observation/wrist_image", "observation/state"}


def test_channels_come_first_after_images_have_the_size_that_a_server_says() -> None:
    server = RoboArenaServer()
    offer = Offer({**OFFER.observations, "x": TensorSpec("float64", (1,))}, OFFER.action_low, OFFER.action_high)
    given = {"form": "roboarena", "timeout": 5, "channels": "first", "nested": True, "states": {"robot/x": "x"}}
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}"
        images = {"images/left": "observation.images.image"}
        session = LocalPolicy(lambda: load_policy(address, {**given, "images": images}), name=address).open(
            offer, benchmark="libero"
        )
        session.start(instruction="go", seed=0)
        ours = {"observation.images.image": made_up(0)["observation.images.image"], "x": np.ones(1)}
        session.act(ours, step=0)
    (seen,) = server.seen
    image = scaled_by_hand(ours["observation.images.image"], 180, 320)
    assert np.array_equal(seen["images"]["left"], np.transpose(image, (2, 0, 1)))
    assert np.array_equal(seen["robot"]["x"], [1.0])


def scaled_by_hand(image: np.ndarray, high: int, wide: int) -> np.ndarray:
    from PIL import Image

    small = np.asarray(Image.fromarray(image).resize((high, high), Image.Resampling.BILINEAR))
    whole = np.zeros((high, wide, 3), np.uint8)
    whole[:, (wide - high) // 2 : (wide - high) // 2 + high] = small
    return whole


def test_starvlas_requests_are_examples_in_an_envelope_whose_number_the_answer_has() -> None:
    server = StarVlaServer()
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}"
        given = {"form": "starvla", "timeout": 5, "constants": {"unnorm_key": "franka"}, "side": 256}
        policy = LocalPolicy(lambda: load_policy(address, given), name=address)
        session = policy.open(OFFER, benchmark="libero")
        session.start(instruction="go", seed=0)
        ours = made_up(0)
        chunk = session.act({name: ours[name] for name in session.needs.named}, step=0)
        example = server.seen[-1]["examples"][0]
        assert server.seen[-1]["unnorm_key"] == "franka"
        assert example.keys() == {"image", "lang"}
        assert np.array_equal(example["image"][0], ours["observation.images.image"])
        assert np.array_equal(example["image"][1], ours["observation.images.image2"])
        expected = server.tell(server.seen[-1])
        assert np.array_equal(chunk.actions[:, :-1], expected[:8, :-1])
        assert np.array_equal(chunk.actions[:, -1], -np.sign(2 * expected[:8, -1] - 1))
        server.fault = "error"
        with pytest.raises(PolicyFailed, match="unnorm_key franka is not known"):
            session.act({name: ours[name] for name in session.needs.named}, step=8)
        server.fault = "earlier"
        session.start(instruction="go", seed=0)
        with pytest.raises(PolicyFailed, match="no answer to the question"):
            session.act({name: ours[name] for name in session.needs.named}, step=0)


@pytest.mark.parametrize(
    ("address", "form", "said"),
    [
        ("openpi://h:1", "xvla", "openpi:// has no form 'xvla'; http:// has"),
        ("gr00t://h:1", "openpi", "gr00t:// has no form"),
        ("openpi://h:1", "roboarnea", "roboarena"),
    ],
)
def test_a_form_that_a_wire_has_not_is_refused(address: str, form: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_policy(address, {"form": form})
