"""What model servers of vla-eval 0.8.0 ask of LIBERO: their benchmark, made by their harness, shows what ours does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bridges.served import LIBERO, Telling, serving
from bridges.telling import OFFER, SIZE, actions_for, made_up
from foreign.test_vla_eval import model_server
from vla_eval.benchmarks.libero import LIBEROBenchmark
from vla_eval.connection import Connection
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.orchestrator import _merge_observation_params
from vla_eval.specs import GRIPPER_CLOSE_NEG, ROTATION_EULER

from sparring.policy_server.errors import PolicyFailed, PolicyRefused
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.spec import Offer, TensorSpec

SENTENCE = "put the bowl on the stove"
PARTS = {**OFFER.observations, "robot0_eef_mat": TensorSpec("float64", (3, 3))}
# As they are among the model servers of the package: OpenVLA-OFT's, pi0's, X-VLA's, OpenVLA's.
ASKING = {
    "oft": {"env_seed": 0, "quat_no_antipodal": True, "send_wrist_image": True, "send_state": True},
    "pi0": {"send_wrist_image": True, "send_state": True},
    "xvla": {"send_wrist_image": True, "send_state": True, "absolute_action": True},
    "openvla": {"seed": 0},
}


class Asking(PredictModelServer):
    """A model server that says what it wants, and keeps what it is shown."""

    def __init__(self, asked: dict[str, Any], **specs: Any) -> None:
        super().__init__()
        self.asked, self.specs, self.seen = asked, specs, []

    def get_observation_params(self) -> dict[str, Any]:
        return self.asked

    def get_action_spec(self) -> dict[str, Any]:
        return self.specs

    def get_observation_spec(self) -> dict[str, Any]:
        return {}

    def predict(self, obs: dict[str, Any], ctx: Any) -> dict[str, Any]:
        self.seen.append(obs)
        return {"actions": actions_for({}, size=SIZE)[0]}


def episode(seed: int) -> dict[str, Any]:
    """What a simulator shows, with a hand that is turned by more than half a turn."""
    ours = made_up(seed)
    ours["robot0_eef_quat"] *= -np.sign(ours["robot0_eef_quat"][3])
    turned, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return {**ours, "robot0_eef_mat": turned * np.sign(np.linalg.det(turned))}


def by_their_benchmark(asked: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What their LIBERO shows of it, made as their harness makes it for such a server."""
    benchmark = LIBEROBenchmark(**_merge_observation_params(LIBEROBenchmark, {}, asked))
    # In place of a simulator: all that it is asked for beside the sensors.
    controller = SimpleNamespace(ee_pos=ours["robot0_eef_pos"], ee_ori_mat=ours["robot0_eef_mat"])
    benchmark._env = SimpleNamespace(robots=[SimpleNamespace(controller=controller)])
    images = {"agentview_image": "observation.images.image", "robot0_eye_in_hand_image": "observation.images.image2"}
    raw = {**ours, **{name: ours[mine][::-1, ::-1] for name, mine in images.items()}}
    return dict(benchmark.make_obs(raw, {"name": SENTENCE}))


def session_with(port: int, control: str, given: dict[str, Any] | None = None) -> Any:
    return policy_at(port, given or {}).open(
        Offer(PARTS, OFFER.action_low, OFFER.action_high, control=control), benchmark="libero"
    )


def look(session: Any) -> None:
    session.act({name: array for name, array in episode(1).items() if name in session.needs.named}, step=0)


def policy_at(port: int, given: dict[str, Any]) -> LocalPolicy:
    address = f"vla-eval://127.0.0.1:{port}"
    return LocalPolicy(lambda: load_policy(address, {"timeout": 20, **given}), name=address)


@pytest.mark.parametrize("kind", ASKING)
def test_what_it_asks_for_is_what_it_is_shown(kind: str) -> None:
    server = Asking(ASKING[kind])
    with model_server(server) as port:
        session = session_with(port, "absolute" if kind == "xvla" else "relative")
        session.start(task="libero_goal/1", instruction=SENTENCE, seed=0)
        look(session)
    (seen,) = server.seen
    theirs = by_their_benchmark(ASKING[kind], episode(1))
    assert seen["images"].keys() == theirs["images"].keys()
    assert list(seen["images"]) == list(theirs["images"]), "some servers take the first for the main camera"
    for name, image in theirs["images"].items():
        assert np.array_equal(seen["images"][name], image), name
    assert {name for name in seen if "states" in name} == {name for name in theirs if "states" in name}
    for name in (name for name in theirs if "states" in name):
        # Their rotations are in single precision, and by another way from a matrix.
        assert np.allclose(seen[name], theirs[name], rtol=0, atol=2e-6), name
    assert seen["task_description"] == theirs["task_description"]


def test_the_hand_is_turned_so_far_that_the_two_ways_to_write_it_differ() -> None:
    long, short = (by_their_benchmark(ASKING[kind], episode(1))["states"] for kind in ("oft", "pi0"))
    assert np.linalg.norm(long[3:6]) > np.pi > np.linalg.norm(short[3:6])


def test_absolute_actions_are_not_played_as_relative_ones() -> None:
    with model_server(Asking(ASKING["xvla"])) as port, pytest.raises(PolicyRefused, match="its actions are absolute"):
        session_with(port, "relative")


def test_what_a_user_gives_comes_before_what_a_server_asks_for() -> None:
    server = Asking(ASKING["xvla"])
    with model_server(server) as port:
        mine = {"states": "robot0_gripper_qpos"}
        session = session_with(port, "relative", {"states": mine, "control": "relative"})
        session.start(instruction=SENTENCE, seed=0)
        look(session)
    (seen,) = server.seen
    assert np.array_equal(seen["states"], episode(1)["robot0_gripper_qpos"])
    assert "controller_states" not in seen
    assert "wrist" in seen["images"]


def test_what_cannot_be_done_for_it_is_said() -> None:
    server = Asking(ASKING["oft"], gripper=GRIPPER_CLOSE_NEG, rotation=ROTATION_EULER)
    with model_server(server) as port:
        policy = load_policy(f"vla-eval://127.0.0.1:{port}", {"timeout": 20})
        policy.warm_up()  # type: ignore[attr-defined]
        policy.spec_for("libero")
        said = " ".join(policy.warnings)
        assert "env_seed = 0, which is a rule of the evaluation" in said
        assert "the gripper of its actions is binary_close_negative, and LIBERO takes binary_close_positive" in said
        assert "the rotation of its actions is euler_xyz" in said
        assert "quat_no_antipodal" not in said


def test_another_model_at_the_same_address_is_not_taken_for_the_first() -> None:
    server = Asking(ASKING["oft"])
    with model_server(server) as port:
        session = session_with(port, "relative")
        session.start(instruction=SENTENCE, seed=0)
        server.asked = ASKING["openvla"]
        with pytest.raises(PolicyFailed, match="wants to be shown something else than when it was first asked"):
            session.start(instruction=SENTENCE, seed=0)


@pytest.mark.parametrize(
    ("looks_at", "made"),
    [
        (("image",), (False, False)),
        (("image", "image2"), (True, False)),
        (("image", "image2", "state"), (True, True)),
    ],
)
def test_our_server_asks_their_harness_for_what_the_policy_looks_at(
    looks_at: tuple[str, ...], made: tuple[bool, bool]
) -> None:
    policy = Telling(needs={name: spec for name, spec in LIBERO.items() if name.rpartition(".")[2] in looks_at})

    async def play(port: int) -> Any:
        async with Connection(f"ws://127.0.0.1:{port}", timeout=60) as connection:
            await connection.connect()
            asked = connection.server_info.get("observation_params") or {}
            benchmark = LIBEROBenchmark(**_merge_observation_params(LIBEROBenchmark, {}, asked))
            assert (benchmark.send_wrist_image, benchmark.send_state) == made
            assert not benchmark.absolute_action
            shown = by_their_benchmark(asked, episode(1))
            await connection.start_episode({"task": {"name": SENTENCE}})
            return shown, (await connection.act(shown))["actions"]

    with serving(policy, "vla-eval:0/libero") as (port,):
        shown, action = asyncio.run(play(port))
    seen = {"observation.images.image": shown["images"]["agentview"]}
    seen |= {"observation.images.image2": shown["images"]["wrist"]} if made[0] else {}
    seen |= {"observation.state": shown["states"].astype(np.float32)} if made[1] else {}
    assert np.array_equal(action, policy.tell(seen, SENTENCE, 1)[0])
    if made[1]:
        assert np.linalg.norm(shown["states"][3:6]) > np.pi, "as in LeRobot's data sets"
