"""openpi's own client (openpi-client 0.1.2) and our server, both ways: a server of its codec is a policy of ours.

openpi's server is not on PyPI: it is written here after what it does, with the client package's own `msgpack_numpy`.
"""

from __future__ import annotations

import threading
import traceback
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from bridges.foreign_servers import listening
from bridges.served import Telling, serving
from bridges.telling import OFFER, SIZE, actions_for, made_up
from openpi_client import msgpack_numpy
from openpi_client.image_tools import resize_with_pad
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.sync.server import ServerConnection

from sparring.policy_server.bridges.layout import scaled
from sparring.policy_server.bridges.rotations import axis_angle
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy


def test_this_is_the_version() -> None:
    assert version("openpi-client") == "0.1.2"


def shown(seed: int, sentence: str = "put the bowl on the stove") -> dict[str, Any]:
    """As openpi's LIBERO loop shows it."""
    ours = made_up(seed)
    return {
        "observation/image": resize_with_pad(ours["observation.images.image"], 224, 224),
        "observation/wrist_image": resize_with_pad(ours["observation.images.image2"], 224, 224),
        "observation/state": np.random.default_rng(seed).normal(size=8),
        "prompt": sentence,
    }


def as_ours(seen: dict[str, Any]) -> dict[str, Any]:
    return {
        "observation.images.image": seen["observation/image"],
        "observation.images.image2": seen["observation/wrist_image"],
        "observation.state": seen["observation/state"].astype(np.float32),
    }


def test_it_gets_the_policys_answers_to_what_it_shows() -> None:
    policy = Telling()
    with serving(policy, "openpi:0/libero") as (port,):
        client = WebsocketClientPolicy("127.0.0.1", port)
        assert client.get_server_metadata()["server"] == "sparring"
        for times, sentence in [(1, "a"), (2, "a"), (1, "b"), (2, "b")]:
            seen = shown(times, sentence)
            answer = client.infer(seen)["actions"]
            assert np.array_equal(answer, policy.tell(as_ours(seen), sentence, times))


def test_many_clients_are_answered_in_batches_each_its_own() -> None:
    policy = Telling()
    wrong: list[int] = []

    def play(number: int, port: int) -> None:
        client = WebsocketClientPolicy("127.0.0.1", port)
        for times in range(1, 21):
            seen = shown(100 * number + times)
            answer = client.infer(seen)["actions"]
            if not np.array_equal(answer, policy.tell(as_ours(seen), seen["prompt"], times)):
                wrong.append(number)

    with serving(policy, "openpi:0/libero") as (port,):
        threads = [threading.Thread(target=play, args=(number, port)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong
    assert sum(policy.batches) == 120
    assert max(policy.batches) > 1


def test_a_failure_is_told_as_openpis_server_tells_it() -> None:
    policy = Telling()
    policy.fails = True
    with serving(policy, "openpi:0/libero") as (port,):
        client = WebsocketClientPolicy("127.0.0.1", port)
        with pytest.raises(RuntimeError, match="out of memory"):
            client.infer(shown(0))


def test_its_api_key_is_our_token() -> None:
    token = "a-token-of-more-than-16-characters"
    policy = Telling()
    with serving(policy, "openpi:0/libero", token=token) as (port,):
        with pytest.raises(Exception, match="401"):
            WebsocketClientPolicy("127.0.0.1", port)
        with pytest.raises(Exception, match="401"):
            WebsocketClientPolicy("127.0.0.1", port, api_key="another-token-of-16-characters")
        client = WebsocketClientPolicy("127.0.0.1", port, api_key=token)
        assert client.infer(shown(0))["actions"].shape == (3, 7)


@pytest.mark.parametrize("shape", [(256, 256, 3), (120, 200, 3), (333, 100, 3)])
def test_images_are_scaled_as_openpi_scales_them(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert np.array_equal(scaled(image, 224), resize_with_pad(image, 224, 224))


class Server:
    """Answers by all that it is shown, and notes it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.connections = 0
        self.fails = False

    def handle(self, connection: ServerConnection) -> None:
        self.connections += 1
        packer = msgpack_numpy.Packer()
        connection.send(packer.pack({"reset_pose": np.zeros(7)}))
        for message in connection:
            self.seen.append(msgpack_numpy.unpackb(message))
            try:
                answer = {"actions": self.tell(self.seen[-1]), "policy_timing": {"infer_ms": np.float64(1.5)}}
                connection.send(packer.pack({**answer, "server_timing": {"infer_ms": 2.0}}))
            except Exception:
                connection.send(traceback.format_exc())
                connection.close(1011, "Internal server error. Traceback included in previous frame.")
                raise

    def tell(self, seen: dict[str, Any]) -> Any:
        if self.fails:
            raise RuntimeError("CUDA error: out of memory")
        return actions_for(seen, size=SIZE, horizon=10).astype(np.float64)


def test_a_server_of_its_codec_is_a_policy_of_ours() -> None:
    server = Server()
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}"
        session = LocalPolicy(lambda: load_policy(address, {"timeout": 10}), name=address).open(
            OFFER, benchmark="libero"
        )
        before = server.connections
        for episode in range(2):
            session.start(task="libero_goal/1", instruction=f"do {episode}", seed=episode)
            for look in range(3):
                ours = made_up(3 * episode + look)
                chunk = session.act(ours, step=5 * look)
                state = [ours["robot0_eef_pos"], axis_angle(ours["robot0_eef_quat"]), ours["robot0_gripper_qpos"]]
                expected = {
                    "observation/image": resize_with_pad(ours["observation.images.image"], 224, 224),
                    "observation/wrist_image": resize_with_pad(ours["observation.images.image2"], 224, 224),
                    "observation/state": np.concatenate(state),
                    "prompt": f"do {episode}",
                }
                seen = server.seen[-1]
                assert seen.keys() == expected.keys()
                assert all(np.array_equal(seen[name], value) for name, value in expected.items())
                assert seen["observation/state"].dtype == np.float64
                assert np.array_equal(chunk.actions, server.tell(expected)[:5])
        assert server.connections == before + 2, "one for each episode: its server may remember something for it"
        server.fails = True
        with pytest.raises(PolicyFailed, match="failed: RuntimeError: CUDA error: out of memory"):
            session.act(made_up(9), step=15)
