"""vla-eval's own harness connection and model servers (vla-eval 0.8.0), and ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import anyio
import numpy as np
import pytest
from bridges.served import Telling, serving
from bridges.telling import OFFER, SIZE, actions_for, made_up
from vla_eval.connection import Connection
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.model_servers.serve import serve_async

from sparring.policy_server.bridges.rotations import axis_angle
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy


def test_this_is_the_version() -> None:
    assert version("vla-eval") == "0.8.0"


def shown(seed: int) -> dict[str, Any]:
    """As vla-eval's LIBERO benchmark shows it, with a wrist camera and the state."""
    ours = made_up(seed)
    state = [ours["robot0_eef_pos"], axis_angle(ours["robot0_eef_quat"]), ours["robot0_gripper_qpos"]]
    return {
        "images": {"agentview": ours["observation.images.image"], "wrist": ours["observation.images.image2"]},
        "task_description": "put the bowl on the stove",
        "states": np.concatenate(state),
    }


def as_ours(seen: dict[str, Any]) -> dict[str, Any]:
    return {
        "observation.images.image": seen["images"]["agentview"],
        "observation.images.image2": seen["images"]["wrist"],
        "observation.state": seen["states"].astype(np.float32),
    }


def test_its_harness_gets_our_policys_chunk_action_by_action() -> None:
    policy = Telling(horizon=3)

    async def play(port: int) -> list[tuple[dict[str, Any], Any]]:
        found = []
        async with Connection(f"ws://127.0.0.1:{port}", timeout=60) as connection:
            await connection.connect()
            for _ in range(2):
                await connection.start_episode({"task": {"name": "put the bowl on the stove"}})
                for step in range(7):
                    seen = shown(step)
                    found.append((seen, (await connection.act(seen))["actions"]))
                await connection.end_episode({"success": True})
        return found

    with serving(policy, "vla-eval:0/libero") as (port,):
        answers = asyncio.run(play(port))
    for number, (_, action) in enumerate(answers):
        step = number % 7
        looked = shown(step - step % 3)
        chunk = policy.tell(as_ours(looked), "put the bowl on the stove", step // 3 + 1)
        assert np.array_equal(action, chunk[step % 3]), number


def test_many_harnesses_are_answered_in_batches_each_its_own() -> None:
    policy = Telling(horizon=1)
    policy.takes = 0.4  # its clients make PNGs of their images meanwhile

    async def play(number: int, port: int) -> bool:
        async with Connection(f"ws://127.0.0.1:{port}", timeout=60) as connection:
            await connection.connect()
            await connection.start_episode({"task": {}})
            right = True
            for times in (1, 2):
                seen = shown(10 * number + times)
                action = (await connection.act(seen))["actions"]
                right &= np.array_equal(action, policy.tell(as_ours(seen), seen["task_description"], times)[0])
            return right

    async def play_all(port: int) -> list[bool]:
        return await asyncio.gather(*(play(number, port) for number in range(5)))

    with serving(policy, "vla-eval:0/libero") as (port,):
        assert all(asyncio.run(play_all(port)))
    assert sum(policy.batches) == 10
    assert max(policy.batches) > 1


def test_a_failure_is_an_error_of_that_observation_and_the_connection_goes_on() -> None:
    policy = Telling()

    async def play(port: int) -> None:
        async with Connection(f"ws://127.0.0.1:{port}", timeout=60) as connection:
            await connection.connect()
            await connection.start_episode({"task": {}})
            policy.fails = True
            with pytest.raises(RuntimeError, match="out of memory"):
                await connection.act(shown(0))
            policy.fails = False
            assert (await connection.act(shown(0)))["actions"].shape == (SIZE,)

    with serving(policy, "vla-eval:0/libero") as (port,):
        asyncio.run(play(port))


def test_the_token_is_in_its_address() -> None:
    """One that is not right is refused (tests/bridges); its client says after half a minute that nobody is there."""
    token = "a-token-of-more-than-16-characters"

    async def play(port: int) -> Any:
        async with Connection(f"ws://any:{token}@127.0.0.1:{port}", timeout=60) as connection:
            await connection.connect()
            await connection.start_episode({"task": {}})
            return await connection.act(shown(0))

    with serving(Telling(), "vla-eval:0/libero", token=token) as (port,):
        assert asyncio.run(play(port))["actions"].shape == (SIZE,)


class TellingServer(PredictModelServer):
    """A model server as its users write them."""

    fails = False

    def predict(self, obs: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if self.fails:
            raise RuntimeError("out of memory")
        return {"actions": self.tell(obs)}

    @staticmethod
    def tell(obs: dict[str, Any]) -> np.ndarray:
        seen = {**obs["images"], "state": obs["states"], "sentence": obs["task_description"]}
        return actions_for(seen, size=SIZE)[0]


@contextmanager
def model_server(server: PredictModelServer) -> Iterator[int]:
    ports: list[int] = []
    ready = threading.Event()
    scope: list[anyio.CancelScope] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        async with anyio.create_task_group() as group:
            scope.append(group.cancel_scope)
            loops.append(asyncio.get_running_loop())
            ports.append(await group.start(serve_async, server, "127.0.0.1", 0))
            ready.set()

    thread = threading.Thread(target=lambda: anyio.run(run))
    thread.start()
    assert ready.wait(60)
    try:
        yield ports[0]
    finally:
        loops[0].call_soon_threadsafe(scope[0].cancel)
        thread.join(60)
        assert not thread.is_alive()


def test_its_model_server_is_a_policy_of_ours() -> None:
    with model_server(TellingServer()) as port:
        address = f"vla-eval://127.0.0.1:{port}"
        session = LocalPolicy(lambda: load_policy(address, {"timeout": 10}), name=address).open(
            OFFER, benchmark="libero"
        )
        for episode in range(2):
            session.start(task="libero_goal/1", instruction="put the bowl on the stove", seed=episode)
            for step in range(5):
                chunk = session.act(made_up(step), step=step)
                expected = TellingServer.tell(shown(step))
                expected[-1] = -1.0 if expected[-1] < 0 else 1.0
                assert np.array_equal(chunk.actions, expected[None])


def test_what_its_model_server_raises_is_told() -> None:
    server = TellingServer()
    server.fails = True
    with model_server(server) as port:
        address = f"vla-eval://127.0.0.1:{port}"
        session = LocalPolicy(lambda: load_policy(address, {"timeout": 10}), name=address).open(
            OFFER, benchmark="libero"
        )
        session.start(instruction="go", seed=0)
        with pytest.raises(PolicyFailed, match="observation_failed: RuntimeError: out of memory"):
            session.act(made_up(0), step=0)
