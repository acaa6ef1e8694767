"""Our policy server with other wires in front, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from bridges.telling import SIZE, actions_for

from sparring.policy_server.limits import Limits
from sparring.policy_server.options import ServerOptions
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.policy_server.server import PolicyServer

LIBERO = {
    "observation.images.image": TensorSpec("uint8", (-1, -1, 3)),
    "observation.images.image2": TensorSpec("uint8", (-1, -1, 3)),
    "observation.state": TensorSpec("float32", (8,)),
}


class Telling(Policy):
    """Answers by all that it sees, how often it was asked in the episode, and the sentence."""

    def __init__(self, horizon: int = 3, needs: Any = None) -> None:
        self.spec = PolicySpec(LIBERO if needs is None else needs, action_dim=SIZE, chunk_length=horizon)
        self.batches: list[int] = []
        self.fails = False
        self.takes = 0.0

    def new_session(self, task: Instruction, seed: int) -> list[int]:
        return [0]

    def act(self, observations: Sequence[Observation], states: Sequence[list[int]]) -> list[Array]:
        self.batches.append(len(observations))
        time.sleep(self.takes)
        if self.fails:
            raise RuntimeError("out of memory")
        answers = []
        for observation, state in zip(observations, states, strict=True):
            state[0] += 1
            answers.append(self.tell(dict(observation), str(observation.task), state[0]))
        return answers

    def tell(self, seen: dict[str, Any], sentence: str, times: int) -> Array:
        told = {**{name: np.asarray(array) for name, array in seen.items()}, "sentence": sentence, "times": times}
        return actions_for(told, size=SIZE, horizon=self.spec.chunk_length)


@contextmanager
def serving(
    policy: Policy, *also: str, token: str = "", limits: Limits | None = None, **options: Any
) -> Iterator[list[int]]:
    """The ports of the wires in front."""
    ports: list[int] = []
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        server = PolicyServer(policy, ServerOptions(policy="telling", also=also, **options), token=token, limits=limits)
        await server.start(["127.0.0.1:0"])
        ports.extend(address.port for address in server.also)
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.drain(0)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(60)
    try:
        yield ports
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
