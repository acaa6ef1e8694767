"""`--policy vla-eval://`, `gr00t://` and `http://`: policies behind those wires."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bridges.foreign_servers import ActServer, GrootServer, VlaEvalServer, listening
from bridges.telling import OFFER, SIZE, actions_for, made_up

from sparring.policy_server.bridges.rotations import axis_angle
from sparring.policy_server.errors import PolicyFailed, PolicyRefused
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer, TensorSpec, spec_of


def session_with(address: str, **arguments: Any) -> Any:
    arguments = {"timeout": 30.0, **arguments}
    policy = LocalPolicy(lambda: load_policy(address, arguments), name=address, arguments=arguments)
    return policy.open(OFFER, benchmark="libero")


@pytest.fixture
def vla_eval() -> Iterator[tuple[VlaEvalServer, str]]:
    server = VlaEvalServer()
    with listening(server.handle) as port:
        yield server, f"vla-eval://127.0.0.1:{port}"


def test_a_model_server_of_vla_eval_sees_what_its_own_harness_would_show(vla_eval: tuple[VlaEvalServer, str]) -> None:
    server, address = vla_eval
    session = session_with(address)
    session.start(task="libero_goal/1", instruction="put the bowl on the stove", seed=3, index=4)
    for step in range(3):
        ours = made_up(step)
        chunk = session.act(ours, step=step)
        seen = server.seen[-1]
        assert seen.keys() == {"images", "states", "task_description"}
        assert np.array_equal(seen["images"]["agentview"], ours["observation.images.image"])
        assert np.array_equal(seen["images"]["wrist"], ours["observation.images.image2"])
        state = [ours["robot0_eef_pos"], axis_angle(ours["robot0_eef_quat"]), ours["robot0_gripper_qpos"]]
        assert np.array_equal(seen["states"], np.concatenate(state))
        assert seen["task_description"] == "put the bowl on the stove"
        expected = server.tell(seen)
        expected[-1] = -1.0 if expected[-1] < 0 else 1.0
        assert np.array_equal(chunk.actions, expected[None])
    assert [start["task"]["episode_idx"] for start in server.started] == [4]


def test_an_answer_to_an_earlier_question_is_not_taken_for_this_one(vla_eval: tuple[VlaEvalServer, str]) -> None:
    server, address = vla_eval
    server.answers_earlier = True
    session = session_with(address)
    session.start(instruction="go", seed=0)
    chunk = session.act(made_up(0), step=0)
    assert np.array_equal(chunk.actions[0, :-1], server.tell(server.seen[-1])[:-1])


@pytest.mark.parametrize(("fault", "said"), [("refuses_to_start", "no such task"), ("raises", "out of memory")])
def test_what_a_model_server_says_went_wrong_is_told(
    vla_eval: tuple[VlaEvalServer, str], fault: str, said: str
) -> None:
    server, address = vla_eval
    setattr(server, fault, True)
    session = session_with(address)
    session.start(instruction="go", seed=0)
    with pytest.raises(PolicyFailed, match=said):
        session.act(made_up(0), step=0)


def test_a_groot_server_gets_batches_of_one_and_its_gripper_is_turned_round() -> None:
    with GrootServer() as server:
        session = session_with(f"gr00t://127.0.0.1:{server.port}")
        session.start(instruction="put the bowl on the stove", seed=0)
        ours = made_up(0)
        chunk = session.act(ours, step=0)
        seen = server.seen[-1]
        assert seen["video.image"].shape == (1, 1, 256, 256, 3)
        assert np.array_equal(seen["video.wrist_image"][0, 0], ours["observation.images.image2"])
        position, rotation = ours["robot0_eef_pos"], axis_angle(ours["robot0_eef_quat"])
        pose = dict(zip(("x", "y", "z", "roll", "pitch", "yaw"), [*position, *rotation], strict=True))
        for name, value in pose.items():
            assert seen[f"state.{name}"].dtype == np.float32
            assert seen[f"state.{name}"].shape == (1, 1, 1)
            assert seen[f"state.{name}"][0, 0, 0] == np.float32(value), name
        assert seen["state.gripper"].shape == (1, 1, 2)
        assert seen["annotation.human.action.task_description"] == ["put the bowl on the stove"]
        whole = actions_for(seen, size=SIZE, horizon=16)[:8]
        assert np.array_equal(chunk.actions[:, :-1], whole[:, :-1])
        assert np.array_equal(chunk.actions[:, -1], -np.sign(2 * whole[:, -1] - 1))
        assert "reset" in server.called
        assert "kill" not in server.called


def enveloped(said: dict[str, Any], *, as_text: bool) -> dict[str, Any]:
    """As GR00T N1.7 writes it, or N1.6."""
    return {"__ModalityConfig_class__": True, "as_json": json.dumps(said) if as_text else said}


@pytest.mark.parametrize("as_text", [True, False])
def test_what_a_groot_server_looks_at_and_is_not_shown_is_said(as_text: bool) -> None:
    pose = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]
    right = {
        "video": {"modality_keys": ["image", "wrist_image"], "delta_indices": [0]},
        "state": {"modality_keys": pose, "delta_indices": [0]},
        "action": {"modality_keys": pose, "delta_indices": list(range(16))},
        "language": {"modality_keys": ["annotation.human.action.task_description"], "delta_indices": [0]},
    }
    other = {
        "video": {"modality_keys": ["image", "left_view"], "delta_indices": [-1, 0]},
        "action": {"modality_keys": pose[:-1], "delta_indices": list(range(16))},
        "language": {"modality_keys": ["annotation.human.coarse_action"], "delta_indices": [0]},
    }
    with GrootServer() as server:
        told = []
        for said in (right, other):
            server.modalities = {kind: enveloped(found, as_text=as_text) for kind, found in said.items()}
            policy: Any = load_policy(f"gr00t://127.0.0.1:{server.port}", {"timeout": 30.0})
            policy.warm_up()
            policy.spec_for("libero")
            told.append([sentence.partition(" ")[2] for sentence in policy.warnings[1:]])
        # Of languages it takes the names as they are.
        server.modalities = {"language": enveloped({"modality_keys": ["task"]}, as_text=as_text)}
        policy = load_policy(f"gr00t://127.0.0.1:{server.port}", {"timeout": 30.0, "instruction": "task"})
        policy.warm_up()
        policy.spec_for("libero")
        assert len(policy.warnings) == 1, policy.warnings
    assert told == [
        [],
        [
            "looks at video.left_view, by its modality config, and is not shown that.",
            "looks at 2 moments of video at once, by its modality config, and is shown one.",
            "looks at annotation.human.coarse_action, by its modality config, and is not shown that.",
            "answers without action.gripper, by its modality config, which an action here is made of.",
        ],
    ]


@pytest.mark.parametrize("said", [{"video": "[" * 5000}, {"video": {"as_json": "no"}}, {"video": {"modality_keys": 3}}])
def test_a_groot_server_that_says_nonsense_of_itself_is_played_all_the_same(said: dict[str, Any]) -> None:
    with GrootServer() as server:
        server.modalities = said
        session = session_with(f"gr00t://127.0.0.1:{server.port}")
        session.start(instruction="go", seed=0)
        assert len(session.act(made_up(0), step=0).actions) == 8


def test_a_groot_server_that_asks_for_a_token_gets_it_from_a_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a-secret-of-more-than-sixteen-characters")
    key.chmod(0o600)
    with GrootServer() as server:
        server.token = key.read_text()
        with pytest.raises(UsageError, match="Invalid API token"):
            session_with(f"gr00t://127.0.0.1:{server.port}")
        session = session_with(f"gr00t://127.0.0.1:{server.port}", key_file=str(key))
        session.start(instruction="go", seed=0)
        assert len(session.act(made_up(0), step=0).actions) == 8


def test_a_groot_server_that_fails_says_so() -> None:
    with GrootServer() as server:
        server.error = "CUDA error: device-side assert triggered"
        session = session_with(f"gr00t://127.0.0.1:{server.port}")
        session.start(instruction="go", seed=0)
        with pytest.raises(PolicyFailed, match="device-side assert"):
            session.act(made_up(0), step=0)


def test_nobody_at_a_groot_address_is_told_in_time() -> None:
    with pytest.raises(UsageError, match="no gr00t server answers"):
        session_with("gr00t://127.0.0.1:1", timeout=0.3)


def test_openvlas_form_of_act() -> None:
    with ActServer("openvla") as server:
        session = session_with(f"http://127.0.0.1:{server.port}/act", form="openvla", side=256)
        session.start(instruction="put the bowl on the stove", seed=0)
        ours = {name: array for name, array in made_up(0).items() if name in session.needs.named}
        chunk = session.act(ours, step=0)
        seen = server.seen[-1]
        assert seen.pop("path") == "/act"
        assert seen.keys() == {"image", "instruction"}
        assert np.array_equal(seen["image"], ours["observation.images.image"])
        expected = actions_for(seen, size=SIZE)[0]
        assert np.array_equal(chunk.actions[0, :-1], expected[:-1])


def test_a_connection_that_an_act_server_has_ended_between_two_looks_is_made_again() -> None:
    """As most web servers do after some seconds, which the actions in between may take."""
    with ActServer("openvla", idle=0.2) as server:
        session = session_with(f"http://127.0.0.1:{server.port}/act", form="openvla", side=256)
        session.start(instruction="go", seed=0)
        ours = {name: array for name, array in made_up(0).items() if name in session.needs.named}
        first = session.act(ours, step=0).actions
        time.sleep(1.0)
        assert np.array_equal(session.act(ours, step=1).actions, first)
        assert len(server.seen) == 2


def test_openvla_ofts_answers_have_an_array_for_each_action() -> None:
    looks = {"full_image": "observation.images.image", "wrist_image": "observation.images.image2"}
    state = {"state": ["robot0_eef_pos", "robot0_eef_quat:axis-angle", "robot0_gripper_qpos"]}
    with ActServer("openvla") as server:
        server.one_by_one = True
        address = f"http://127.0.0.1:{server.port}/act"
        session = session_with(address, form="openvla", side=0, images=looks, states=state, play=4)
        session.start(instruction="put the bowl on the stove", seed=0)
        ours = made_up(0)
        chunk = session.act({name: ours[name] for name in session.needs.named}, step=0)
        seen = server.seen[-1]
        del seen["path"]
        assert seen.keys() == {"full_image", "wrist_image", "state", "instruction"}
        assert np.array_equal(seen["wrist_image"], ours["observation.images.image2"])
        assert np.array_equal(chunk.actions[:, :-1], actions_for(seen, size=SIZE)[:4, :-1])
        server.content = json.dumps([ActServer.written(np.zeros(7)), {"a": 1}]).encode()
        with pytest.raises(PolicyFailed, match="no chunk of actions"):
            session.act({name: ours[name] for name in session.needs.named}, step=4)


def test_xvlas_form_of_act() -> None:
    offer = Offer(
        {"observation.image": TensorSpec("uint8", (48, 48, 3)), "observation.state": TensorSpec("float32", (4,))},
        (-1.0,) * SIZE,
        (1.0,) * SIZE,
    )
    ours = {"observation.image": np.full((48, 48, 3), 7, np.uint8), "observation.state": np.arange(4, dtype=np.float32)}
    with ActServer("xvla") as server:
        address = f"http://127.0.0.1:{server.port}/act"
        policy = LocalPolicy(lambda: load_policy(address, {"form": "xvla", "timeout": 30}), name=address)
        session = policy.open(offer, benchmark="metaworld")
        session.start(instruction="reach", seed=0)
        chunk = session.act(ours, step=0)
        seen = server.seen[-1]
        del seen["path"]
        assert seen.keys() == {"image0", "proprio", "language_instruction", "domain_id", "steps"}
        assert np.array_equal(seen["proprio"], ours["observation.state"])
        assert np.array_equal(chunk.actions, actions_for(seen, size=SIZE))
        server.status = 400
        with pytest.raises(PolicyFailed, match="HTTP 400: language_instruction is missing"):
            session.act(ours, step=10)


def test_http_must_say_its_form() -> None:
    with pytest.raises(UsageError, match="which form of /act"):
        load_policy("http://127.0.0.1:1/act", {})


def test_xvla_on_libero_is_shown_the_controllers_pose_and_its_poses_are_turned_into_axis_angles() -> None:
    from scipy.spatial.transform import Rotation

    turn = Rotation.from_rotvec([0.3, -1.2, 2.0])
    ours = {
        **made_up(0),
        "robot0_eye_in_hand_image": made_up(1)["observation.images.image2"],
        "robot0_eef_mat": turn.as_matrix(),
    }
    named = {**OFFER.observations, **{name: spec_of(ours[name]) for name in ours}}
    offer = Offer(named, (-7.0,) * 7, (7.0,) * 7, control="absolute")
    with ActServer("xvla") as server:
        server.size = 20
        address = f"http://127.0.0.1:{server.port}/act"
        policy = LocalPolicy(lambda: load_policy(address, {"form": "xvla", "timeout": 5}), name=address)
        session = policy.open(offer, benchmark="libero")
        session.start(instruction="go", seed=0)
        chunk = session.act({name: ours[name] for name in session.needs.named}, step=0)
        seen = server.seen[-1]
        del seen["path"]
        assert seen["domain_id"] == 3
        assert np.array_equal(seen["image0"], ours["observation.images.image"])
        assert np.array_equal(seen["image1"], ours["robot0_eye_in_hand_image"])
        columns = turn.as_matrix()[:, :2].T.ravel()
        assert np.array_equal(seen["proprio"], [*ours["robot0_eef_pos"], *columns, *[0.0] * 11])
        for given, played in zip(actions_for(seen, size=20), chunk.actions, strict=True):
            first, second = given[3:6], given[6:9] - given[3:6] * (given[3:6] @ given[6:9]) / (given[3:6] @ given[3:6])
            whole = np.stack([first / np.linalg.norm(first), second / np.linalg.norm(second)])
            expected = Rotation.from_matrix(np.vstack([whole, np.cross(*whole)]).T).as_rotvec()
            assert np.array_equal(played[:3], given[:3])
            assert np.allclose(played[3:6], expected, atol=1e-4)
            assert played[6] == (1.0 if given[9] > 0.5 else -1.0)
    with pytest.raises(PolicyRefused, match=r'its actions are absolute, so give .*"control": "absolute"'):
        policy.open(Offer(named, (-1.0,) * 7, (1.0,) * 7, control="relative"), benchmark="libero")
