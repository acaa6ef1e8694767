"""GR00T's wire by an independent peer (pyzmq, msgpack-numpy 0.4.8), both ways: a policy server of it, and a client.

GR00T itself is not on PyPI. What the peer reads and writes is msgpack-numpy's, and nothing of ours.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import msgpack_numpy
import numpy as np
import pytest
import zmq
from bridges.served import Telling, serving
from bridges.telling import OFFER, SIZE, actions_for, made_up

from sparring.policy_server.bridges.rotations import axis_angle
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy

NAMES = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
LANGUAGE = "annotation.human.action.task_description"


def test_this_is_the_version() -> None:
    assert version("msgpack-numpy") == "0.4.8"


class Server:
    """Answers by all that it is shown; `answer` may be replaced by what misbehaves."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.fails = ""

    def serve(self, socket: zmq.Socket[bytes], stop: threading.Event) -> None:
        while not stop.is_set():
            if socket.poll(50):
                request = msgpack_numpy.unpackb(socket.recv())
                socket.send(msgpack_numpy.packb(self.answer(request)))

    def answer(self, request: dict[str, Any]) -> Any:
        if request["endpoint"] == "ping":
            return {"status": "ok", "message": "Server is running"}
        if request["endpoint"] in ("reset", "get_modality_config"):
            return {}
        assert request["endpoint"] == "get_action"
        if self.fails:
            return {"error": self.fails}
        self.seen.append(request["data"]["observation"])
        whole = actions_for(self.seen[-1], size=SIZE, horizon=16)
        return [{f"action.{name}": whole[None, :, i : i + 1] for i, name in enumerate(NAMES)}, {}]


@contextmanager
def served(server: Server) -> Iterator[str]:
    stop = threading.Event()
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        thread = threading.Thread(target=server.serve, args=(socket, stop))
        thread.start()
        try:
            yield f"gr00t://127.0.0.1:{port}"
        finally:
            stop.set()
            thread.join(60)
            assert not thread.is_alive()


def test_its_server_is_a_policy_of_ours() -> None:
    server = Server()
    with served(server) as address:
        policy = LocalPolicy(lambda: load_policy(address, {"timeout": 10}), name=address)
        session = policy.open(OFFER, benchmark="libero")
        for episode in range(2):
            session.start(task="libero_goal/1", instruction=f"do {episode}", seed=episode)
            for look in range(2):
                ours = made_up(2 * episode + look)
                chunk = session.act(ours, step=8 * look)
                pose = [*ours["robot0_eef_pos"], *axis_angle(ours["robot0_eef_quat"])]
                numbers = {f"state.{name}": np.float32(value) for name, value in zip(NAMES, pose, strict=False)}
                (seen,) = server.seen[-1:]
                assert seen.keys() == {
                    *("video.image", "video.wrist_image", "state.gripper", LANGUAGE),
                    *numbers,
                }
                assert np.array_equal(seen["video.image"], ours["observation.images.image"][None, None])
                assert np.array_equal(seen["video.wrist_image"], ours["observation.images.image2"][None, None])
                gripper = ours["robot0_gripper_qpos"].astype(np.float32)
                assert np.array_equal(seen["state.gripper"], gripper[None, None])
                for name, value in numbers.items():
                    assert (seen[name].dtype, seen[name].shape) == (np.float32, (1, 1, 1)), name
                    assert seen[name] == value, name
                assert seen[LANGUAGE] == [f"do {episode}"]
                whole = actions_for(seen, size=SIZE, horizon=16)[:8]
                assert np.array_equal(chunk.actions[:, :-1], whole[:, :-1])
                assert np.array_equal(chunk.actions[:, -1], -np.sign(2 * whole[:, -1] - 1))
        server.fails = "CUDA error: out of memory"
        with pytest.raises(PolicyFailed, match="out of memory"):
            session.act(made_up(4), step=16)


@contextmanager
def client(port: int) -> Iterator[Any]:
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 60_000)
        socket.connect(f"tcp://127.0.0.1:{port}")

        def ask(endpoint: str, **data: Any) -> Any:
            socket.send(msgpack_numpy.packb({"endpoint": endpoint, "data": data}))
            return msgpack_numpy.unpackb(socket.recv())

        yield ask


def shown(seed: int, sentence: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What its client shows, and what our policy is to see of it."""
    ours = made_up(seed)
    state = np.random.default_rng(seed).normal(size=8).astype(np.float32)
    observation: dict[str, Any] = {
        "video.image": ours["observation.images.image"][None, None],
        "video.wrist_image": ours["observation.images.image2"][None, None],
        **{f"state.{name}": state[i : i + 1][None, None] for i, name in enumerate(NAMES[:-1])},
        "state.gripper": state[6:][None, None],
        LANGUAGE: [sentence],
    }
    images = {name: ours[name] for name in ("observation.images.image", "observation.images.image2")}
    return observation, {**images, "observation.state": state}


def test_many_clients_are_answered_in_batches_each_its_own() -> None:
    policy = Telling(horizon=3)
    policy.takes = 0.02
    wrong: list[int] = []

    def play(number: int, port: int) -> None:
        with client(port) as ask:
            ask("reset", options={})
            for times in range(1, 6):
                observation, seen = shown(100 * number + times, f"do {number}")
                action, _ = ask("get_action", observation=observation, options={})
                if not np.array_equal(action["action.x"][0, :, 0], policy.tell(seen, f"do {number}", times)[:, 0]):
                    wrong.append(number)

    with serving(policy, "gr00t:0/libero") as (port,):
        threads = [threading.Thread(target=play, args=(number, port)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong
    assert sum(policy.batches) == 30
    assert max(policy.batches) > 1


def test_its_client_gets_our_policys_answers() -> None:
    policy = Telling(horizon=3)
    with serving(policy, "gr00t:0/libero") as (port,), client(port) as ask:
        assert ask("ping")["status"] == "ok"
        for episode in range(2):
            assert ask("reset", options={}) == {}
            for times in (1, 2):
                observation, seen = shown(2 * episode + times, f"do {episode}")
                action, _ = ask("get_action", observation=observation, options={"a": np.float32(1)})
                whole = policy.tell(seen, f"do {episode}", times)
                for i, name in enumerate(NAMES[:-1]):
                    assert action[f"action.{name}"].dtype == np.float32
                    assert np.array_equal(action[f"action.{name}"], whole[None, :, i : i + 1]), name
                np.testing.assert_allclose(1 - 2 * action["action.gripper"][0, :, 0], whole[:, 6], atol=1e-6)
        assert "no endpoint 'kill'" in ask("kill")["error"]
        assert "batches of one" in ask("get_action", observation={"state.x": np.zeros((2, 1, 1), "f4")})["error"]
        assert ask("ping")["status"] == "ok"
