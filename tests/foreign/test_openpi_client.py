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
from openpi_client.image_tools import convert_to_uint8, resize_with_pad
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.sync.server import ServerConnection

from sparring.policy_server.bridges.layout import scaled
from sparring.policy_server.bridges.rotations import axis_angle
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.spec import Offer, TensorSpec


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


ALOHA = Offer(
    {"observation.images.top": TensorSpec("uint8", (480, 640, 3)), "observation.state": TensorSpec("float32", (14,))},
    (-1.0,) * 14,
    (1.0,) * 14,
)


def aloha(seed: int) -> dict[str, Any]:
    """What our ALOHA shows."""
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (480, 640, 3)).astype(np.uint8)
    return {"observation.images.top": image, "observation.state": random.normal(size=14).astype(np.float32)}


def by_aloha_sim(ours: dict[str, Any]) -> dict[str, Any]:
    """The same as openpi's examples/aloha_sim shows it, which says no sentence."""
    image = convert_to_uint8(resize_with_pad(ours["observation.images.top"], 224, 224))
    return {
        "state": ours["observation.state"].astype(np.float64),
        "images": {"cam_high": np.transpose(image, (2, 0, 1))},
    }


def test_the_client_of_aloha_sim_gets_the_policys_answers_to_what_it_shows() -> None:
    policy = Telling(
        needs={
            "observation.images.top": TensorSpec("uint8", (-1, -1, 3)),
            "observation.state": TensorSpec("float32", (14,)),
        }
    )
    with serving(policy, "openpi:0/aloha") as (port,):
        client = WebsocketClientPolicy("127.0.0.1", port)
        for times in (1, 2):
            seen = by_aloha_sim(aloha(times))
            shown_to_us = {
                "observation.images.top": np.transpose(seen["images"]["cam_high"], (1, 2, 0)),
                "observation.state": seen["state"].astype(np.float32),
            }
            assert np.array_equal(client.infer(seen)["actions"], policy.tell(shown_to_us, "", times))


def test_a_server_of_pi0_aloha_sim_is_shown_what_its_own_loop_shows() -> None:
    server = Server()
    server.size = 14
    with listening(server.handle) as port:
        address = f"openpi://127.0.0.1:{port}"
        session = LocalPolicy(lambda: load_policy(address, {"timeout": 10}), name=address).open(
            ALOHA, benchmark="aloha"
        )
        session.start(task="AlohaTransferCube-v0", instruction="Transfer it", seed=0)
        for look in range(2):
            chunk = session.act(aloha(look), step=10 * look)
            (seen,), expected = server.seen[-1:], by_aloha_sim(aloha(look))
            assert seen.keys() == expected.keys(), "a sentence would be played in the place of the server's own"
            assert seen["images"].keys() == {"cam_high"}
            assert np.array_equal(seen["images"]["cam_high"], expected["images"]["cam_high"])
            assert seen["state"].dtype == np.float64
            assert np.array_equal(seen["state"], expected["state"])
            assert np.array_equal(chunk.actions, server.tell(seen)[:10])


class Server:
    """Answers by all that it is shown, and notes it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.connections = 0
        self.fails = False
        self.size = SIZE

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
        flat = {**seen, **seen.get("images", {})}
        flat.pop("images", None)
        return actions_for(flat, size=self.size, horizon=20).astype(np.float64)


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
