"""Answers that somebody made up, where LeRobot's policy server was expected: a sentence, and little memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from bridges.telling import OFFER, SIZE, made_up

from sparring.policy_server.bridges import lerobot_async as wire
from sparring.policy_server.bridges.clients import lerobot_async as client
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.policy_server.bridges.pickles.writing import TensorOf, pickled
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy

PLAY = 3
GOOD = TensorOf(np.ones(SIZE, np.float32))


class Answering:
    """Speaks the wire, and answers with the actions that it is told to."""

    def __init__(self) -> None:
        self.actions: list[Any] = []
        self.more: dict[str, Any] = {}
        self.asked: Any = None

    def observations(self, pieces: Iterator[bytes], context: Any) -> bytes:
        whole = wire.Pieces(1 << 26)
        for piece in pieces:
            if (data := whole.add(piece)) is not None:
                self.asked = wire.made(wire.READER.read(data), wire.OBSERVATION)
        return wire.NOTHING

    def answer(self, request: bytes, context: Any) -> bytes:
        moment, step = self.asked["timestamp"], self.asked["timestep"]
        timed = [{"timestamp": moment, "timestep": step + n, "action": a} for n, a in enumerate(self.actions)]
        return wire.carrying(pickled([Made(wire.ACTION, {**action, **self.more}) for action in timed]))


@contextmanager
def asking() -> Iterator[tuple[Answering, Any]]:
    told = Answering()
    nothing = grpc.unary_unary_rpc_method_handler(lambda request, context: wire.NOTHING)
    methods: dict[str, Any] = {
        wire.READY: nothing,
        wire.INSTRUCTIONS: nothing,
        wire.OBSERVATIONS: grpc.stream_unary_rpc_method_handler(told.observations),
        wire.ACTIONS: grpc.unary_unary_rpc_method_handler(told.answer),
    }
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(wire.SERVICE, methods)])
    address = f"lerobot-async://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    given = {"unpickle": True, "checkpoint": "x", "policy_type": "act", "play": PLAY, "timeout": 10, "dtype": "float32"}
    given |= {"states": {"observation.state": ["robot0_eef_pos"]}, "images": {}, "instruction": "task"}
    session = LocalPolicy(lambda: load_policy(address, given), name=address).open(OFFER, benchmark="mine")

    def ask() -> Any:
        session.start(instruction="go", seed=0)
        return session.act({name: made_up(0)[name] for name in session.needs.named}, step=0).actions

    try:
        yield told, ask
    finally:
        server.stop(None).wait(10)


def test_what_is_no_answer_is_told_before_anything_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    stacked: list[int] = []
    stack = np.stack
    monkeypatch.setattr(client.np, "stack", lambda arrays: stacked.append(len(arrays)) or stack(arrays))
    steps = TensorOf(np.ones(2, np.int64))
    with asking() as (told, ask):
        for actions, more, said in (
            ([GOOD] * (PLAY + 1), {}, "4 actions, where at most 3 were asked for"),
            ([TensorOf(np.ones(1 << 20, np.float32))], {}, "an action of 1048576 numbers, where 7 were due"),
            ([GOOD, TensorOf(np.ones(SIZE + 1, np.float32))], {}, "an action of 8 numbers, where 7 were due"),
            ([1.0], {}, "an action of 1 numbers, where 7 were due"),
            ([[1.0] * SIZE], {}, "list, where the numbers of an action were due"),
            (["x"], {}, "str, where the numbers of an action were due"),
            ([None], {}, "NoneType, where the numbers of an action were due"),
            ([GOOD], {"timestep": steps}, "actions with a timestep that is no number"),
            ([GOOD], {"timestamp": steps}, "actions with a timestamp that is no number"),
        ):
            told.actions, told.more = actions, more
            with pytest.raises(PolicyFailed, match=said):
                ask()
        assert not stacked
        told.actions, told.more = [GOOD] * PLAY, {}
        assert np.array_equal(ask(), np.ones((PLAY, SIZE)))
    assert stacked == [PLAY]
