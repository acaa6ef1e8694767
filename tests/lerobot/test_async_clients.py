"""LeRobot's own robot client (of LeRobot 0.6.1 and 0.4.4) and our server with `--also lerobot-async`."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from async_servers import policy_server
from bridges.served import serving
from support import wait_for

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec

MOTORS = ("shoulder.pos", "elbow.pos", "gripper.pos")
IMAGE, STATE = "observation.images.front", "observation.state"
SIDES = (24, 32, 3)
HORIZON = 8
TOKEN = "a-token-of-more-than-16-characters"


def test_this_is_the_version() -> None:
    assert version("lerobot") in ("0.4.4", "0.6.1")


class Telling(Policy):
    """Answers with random numbers that are kept, and keeps what it was shown."""

    def __init__(self, shape: tuple[int, ...] = SIDES) -> None:
        self.spec = PolicySpec(
            {IMAGE: TensorSpec("uint8", shape), STATE: TensorSpec("float32", (3,))}, action_dim=3, chunk_length=HORIZON
        )
        self.seen: list[dict[str, Array]] = []
        self.sentences: list[str] = []
        self.chunks: list[Array] = []
        self.sessions = 0

    def new_session(self, task: Instruction, seed: int) -> None:
        self.sessions += 1

    def act(self, observations: Sequence[Observation], states: Sequence[None]) -> list[Array]:
        for observation in observations:
            self.seen.append({name: np.array(array) for name, array in observation.items()})
            self.sentences.append(str(observation.task))
            self.chunks.append(np.random.default_rng(len(self.chunks)).random((HORIZON, 3), np.float32))
        return self.chunks[-len(observations) :]


class Robot:
    """In the place of LeRobot's robots, which are hardware: moves by a lot each time, and keeps what it is told."""

    def __init__(self) -> None:
        self.observation_features = {**dict.fromkeys(MOTORS, float), "front": SIDES}
        self.action_features = dict.fromkeys(MOTORS, float)
        self.given: list[dict[str, Any]] = []
        self.told: list[list[float]] = []

    def connect(self) -> None:
        pass

    disconnect = connect

    def get_observation(self) -> dict[str, Any]:
        random = np.random.default_rng(len(self.given))
        joints = {name: float(value) for name, value in zip(MOTORS, 10 * random.random(3), strict=True)}
        self.given.append({**joints, "front": random.integers(0, 256, SIDES, np.uint8)})
        return dict(self.given[-1])

    def send_action(self, action: dict[str, float]) -> dict[str, float]:
        self.told.append([action[name] for name in MOTORS])
        return action


@contextmanager
def client(port: int, folder: Path, checkpoint: str = "telling", actions: int = 5) -> Iterator[Any]:
    """LeRobot's client, with a robot of ours."""
    before = Path.cwd()
    os.chdir(folder)  # it makes logs/ where it is imported
    try:
        from lerobot.async_inference import robot_client
        from lerobot.async_inference.configs import RobotClientConfig
        from lerobot.robots.config import RobotConfig
    finally:
        os.chdir(before)

    class OurRobot(RobotConfig):
        pass

    robot = Robot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robot_client, "make_robot_from_config", lambda config: robot)
        made = robot_client.RobotClient(
            RobotClientConfig(
                policy_type="act",
                pretrained_name_or_path=checkpoint,
                robot=OurRobot(),
                actions_per_chunk=actions,
                server_address=f"127.0.0.1:{port}",
                aggregate_fn_name="latest_only",
                fps=60,
            )
        )
    try:
        yield made
    finally:
        made.stop()


def play(made: Any, until: Any) -> None:
    receiving = threading.Thread(target=made.receive_actions)
    playing = threading.Thread(target=made.control_loop, args=("pick it up",))
    receiving.start()
    playing.start()
    wait_for(until)
    made.shutdown_event.set()
    playing.join(20)
    receiving.join(20)
    assert not playing.is_alive()
    assert not receiving.is_alive()


def test_its_robot_plays_our_policys_answers_to_what_it_has_seen(tmp_path: Path) -> None:
    policy = Telling()
    with serving(policy, "lerobot-async:0") as (port,), client(port, tmp_path) as made:
        assert made.start()
        play(made, lambda: len(made.robot.told) >= 40)
        robot = made.robot
    assert set(policy.sentences) == {"pick it up"}
    for seen in policy.seen:
        (given,) = [given for given in robot.given if np.array_equal(given["front"], seen[IMAGE])]
        assert np.array_equal(seen[STATE], np.float32([given[name] for name in MOTORS]))
    answers = np.stack(policy.chunks)[:, :5]  # of each answer as many as it has asked for
    for told in robot.told:
        assert (np.float32(told) == answers).all(axis=2).any()
    assert len({tuple(told) for told in robot.told}) == len(robot.told), "an action that was played twice"


def test_which_observations_are_answered_is_decided_as_by_its_own_server(tmp_path: Path) -> None:
    from lerobot.async_inference.helpers import TimedObservation

    steps = [  # step, how far the joints are from where they were first, whether it must be answered
        *((0, 0.0, False), (0, 5.0, False), (1, 0.2, False), (1, 2.0, False), (2, 2.2, False), (3, 2.2, True)),
        *((3, 9.0, False), (4, 9.0, False), (5, 9.3, True)),
    ]
    policy = Telling()

    def answered(port: int) -> list[bool]:
        found = []
        with client(port, tmp_path) as made:
            made.stub.Ready(services_pb2.Empty())
            if policy_of_ours:
                made.start()
            for step, moved, must in steps:
                raw = {**dict.fromkeys(MOTORS, 0.0), MOTORS[0]: moved, "front": np.zeros(SIDES, np.uint8)}
                made.send_observation(TimedObservation(1.0, step, {**raw, "task": "x"}, must))
                found.append(bool(made.stub.GetActions(services_pb2.Empty()).data))
        return found

    from lerobot.transport import services_pb2

    policy_of_ours = False
    with policy_server(tmp_path) as (servicer, port):
        servicer.lerobot_features = {STATE: {"dtype": "float32", "shape": (3,), "names": list(MOTORS)}}

        def predict(observation: Any) -> list[Any]:  # what its own does around the network
            servicer.last_processed_obs = observation
            return [observation.get_timestep()]

        servicer._predict_action_chunk = predict
        theirs = answered(port)
    policy_of_ours = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparring.policy_server.bridges.servers.lerobot_async._WAIT_SECONDS", 0.3)
        with serving(policy, "lerobot-async:0") as (port,):
            ours = answered(port)
    assert ours == theirs
    assert 3 < sum(theirs) < len(steps)


def test_pictures_are_scaled_as_its_own_server_scales_them(tmp_path: Path) -> None:
    import torch
    from lerobot.async_inference.helpers import resize_robot_observation_image

    policy = Telling((16, 16, 3))
    with serving(policy, "lerobot-async:0") as (port,), client(port, tmp_path) as made:
        assert made.start()
        play(made, lambda: len(policy.seen) >= 3)
        for seen in policy.seen:
            scaled = [
                resize_robot_observation_image(torch.tensor(given["front"]), (3, 16, 16)).permute(1, 2, 0).numpy()
                for given in made.robot.given
            ]
            assert any(np.array_equal(seen[IMAGE], picture) for picture in scaled)


def test_another_checkpoint_than_the_servers_is_refused(tmp_path: Path) -> None:
    with serving(Telling(), "lerobot-async:0") as (port,), client(port, tmp_path, "somebody/else") as made:
        assert not made.start()
        with pytest.raises(grpc.RpcError, match="this server has the policy 'telling', and loads no other"):
            made.stub.SendPolicyInstructions(setup(made.policy_config))


def test_a_client_without_the_token_is_refused(tmp_path: Path) -> None:
    with serving(Telling(), "lerobot-async:0", token=TOKEN) as (port,), client(port, tmp_path) as made:
        assert not made.start()


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", pickle.dumps({"a": 1}), pickle.dumps(Path("/")), b"\x80\x04(" * 999]
)
def test_garbage_is_refused_with_a_sentence_and_the_next_client_is_served(data: bytes, tmp_path: Path) -> None:
    from lerobot.transport import services_pb2

    with serving(Telling(), "lerobot-async:0") as (port,), client(port, tmp_path) as made:
        with pytest.raises(grpc.RpcError) as refused:
            made.stub.SendPolicyInstructions(services_pb2.PolicySetup(data=data))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        whole = services_pb2.Observation(transfer_state=3, data=data)
        with pytest.raises(grpc.RpcError):
            made.stub.SendObservations(iter([whole]))
        assert made.start()


def setup(config: Any) -> Any:
    from lerobot.transport import services_pb2

    return services_pb2.PolicySetup(data=pickle.dumps(config))
