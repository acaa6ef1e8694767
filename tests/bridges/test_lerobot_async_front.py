"""Messages that somebody made up, at the front for LeRobot's clients: a sentence, and no error of ours."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import numpy as np
import pytest
from bridges.served import Telling, serving
from support import wait_for

from sparring.policy_server.bridges import lerobot_async as wire
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.policy_server.bridges.pickles.writing import pickled
from sparring.policy_server.bridges.servers import lerobot_async
from sparring.policy_server.limits import Limits
from sparring.protos.spec import TensorSpec

STATE = "observation.state"
FEATURES = {STATE: {"dtype": "float32", "shape": (2,), "names": ["a", "b"]}}
NUMBERS = {"a": 1.0, "b": 2.0}
SEEN: dict[str, Any] = {"timestamp": 1.0, "timestep": 1, "observation": NUMBERS, "must_go": True}


class Caller:
    """Speaks the wire, whatever it is told to say."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def ask(self, method: str, request: bytes = wire.NOTHING) -> bytes:
        answer: bytes = self._channel.unary_unary(f"/{wire.SERVICE}/{method}")(request, timeout=20)
        return answer

    def instruct(self, features: Any = FEATURES, **more: Any) -> None:
        said = {"lerobot_features": features, "actions_per_chunk": 3, "pretrained_name_or_path": "telling", **more}
        self.ask(wire.INSTRUCTIONS, wire.carrying(pickled(Made(wire.POLICY, said))))

    def show(self, raw: Any = NUMBERS, **more: Any) -> None:
        said = {"timestamp": 1.0, "timestep": 1, "observation": raw, "must_go": True, **more}
        self.send(wire.pieces(pickled(Made(wire.OBSERVATION, said))))

    def converse(self, features: Any, raw: Any, named: Any, **more: Any) -> None:
        self.instruct(features, pretrained_name_or_path=named)
        self.show(raw, **more)
        self.ask(wire.ACTIONS)

    def send(self, pieces: Iterator[bytes]) -> None:
        self._channel.stream_unary(f"/{wire.SERVICE}/{wire.OBSERVATIONS}")(pieces, timeout=20)


def policy() -> Telling:
    return Telling(needs={STATE: TensorSpec("float32", (2,))})


@contextmanager
def calling(**more: Any) -> Iterator[Caller]:
    with (
        serving(policy(), "lerobot-async:0", **more) as (port,),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield Caller(channel)


def test_what_does_not_fit_is_refused_with_a_sentence_and_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    picture = {"observation.images.front": {"dtype": "image", "shape": (2, 2, 3), "names": None}}
    with calling() as caller, caplog.at_level(logging.WARNING):

        def refused(*, features: Any = FEATURES, raw: Any = NUMBERS, named: Any = "telling", **more: Any) -> None:
            with pytest.raises(grpc.RpcError) as found:
                caller.converse(features, raw, named, **more)
            assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT, found.value.details()

        refused(features={7: {"dtype": "image", "shape": (2, 2, 3), "names": None}})
        refused(features={STATE: {"dtype": "float32", "shape": (2,), "names": [("a",), "b"]}})
        refused(features=picture, raw={"front": ["x" * 100, "y"]})
        refused(named=["telling"])
        refused(raw={"a": 10**400, "b": 1.0})
        refused(raw={"a": "1.0", "b": 1.0})
        refused(raw={"a": np.zeros(3), "b": 1.0})
        refused(raw={**NUMBERS, "task": ["go"]})
        refused(must_go=np.zeros(3))
        refused(timestep=2**64)
        caller.instruct()
        caller.show({"a": np.array([1.0]), "b": 2})
        assert wire.READER.read(wire.carried(caller.ask(wire.ACTIONS)))
    assert not [record for record in caplog.records if record.exc_info], "a traceback, for what a stranger said"


def test_who_sends_too_slowly_is_told_that_it_took_too_long(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield next(wire.pieces(bytes(3 << 20)))
        done.wait(20)

    with calling(limits=Limits(taking_seconds=0.2)) as caller, caplog.at_level(logging.WARNING):
        caller.instruct()
        with pytest.raises(grpc.RpcError) as found:
            caller.send(slowly())
        done.set()
        assert found.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert found.value.details() == "the observation did not come in time."
    assert not [record for record in caplog.records if record.exc_info]


def test_a_message_is_as_long_as_at_lerobots_own_servers() -> None:
    most = lerobot_async._MOST_MESSAGE
    with calling() as caller:
        for size, code in ((most, grpc.StatusCode.INVALID_ARGUMENT), (most + 1, grpc.StatusCode.RESOURCE_EXHAUSTED)):
            with pytest.raises(grpc.RpcError) as found:
                caller.ask(wire.INSTRUCTIONS, bytes(size))
            assert found.value.code() is code
        caller.instruct()
        caller.send(wire.pieces(pickled(Made(wire.OBSERVATION, SEEN | {"more": np.zeros(9 << 20, np.uint8)}))))


def test_one_observation_of_a_robot_comes_in_at_a_time() -> None:
    """Each may be as large as any, and its calls would be hundreds."""
    go_on, taken = threading.Event(), threading.Event()

    def first() -> Iterator[bytes]:
        yield next(wire.pieces(bytes(3 << 20)))
        taken.set()
        go_on.wait(20)
        yield from wire.pieces(pickled(Made(wire.OBSERVATION, SEEN)))

    with calling() as caller:
        caller.instruct()
        slow = threading.Thread(target=_quietly, args=(caller, first()))
        slow.start()
        assert taken.wait(20)
        second = threading.Thread(target=caller.show)
        second.start()
        second.join(0.5)
        assert second.is_alive()
        go_on.set()
        for one in (slow, second):
            one.join(20)
            assert not one.is_alive()


def test_a_connection_has_few_calls_at_a_time() -> None:
    """The others wait at the client until one of these has ended."""
    most, stop, lock = lerobot_async._MOST_STREAMS, threading.Event(), threading.Lock()
    begun = [0]

    def endless() -> Iterator[bytes]:
        with lock:
            begun[0] += 1
        yield next(wire.pieces(bytes(3 << 20)))
        stop.wait(20)

    with calling(limits=Limits(taking_seconds=60)) as caller:
        caller.instruct()
        threads = [threading.Thread(target=_quietly, args=(caller, endless())) for _ in range(most)]
        for thread in threads:
            thread.start()
        wait_for(lambda: begun[0] == most)
        answered = threading.Event()

        def ask() -> None:
            caller.ask(wire.READY)
            answered.set()

        asking = threading.Thread(target=ask)
        asking.start()
        assert not answered.wait(0.5), "there is no place for one more"
        stop.set()
        assert answered.wait(20)
        for thread in (*threads, asking):
            thread.join(20)


def _quietly(caller: Caller, pieces: Iterator[bytes]) -> None:
    with suppress(grpc.RpcError):
        caller.send(pieces)


def test_features_that_no_robot_has_are_refused_before_they_are_looked_up_in_every_observation() -> None:
    def state(count: int, names: Any) -> dict[str, Any]:
        return {"dtype": "float32", "shape": (count,), "names": names}

    picture = {"dtype": "image", "shape": (480, 640, 3), "names": ["height", "width", "channels"]}
    with calling() as caller:
        for features, said in (
            ({f"f{n}": state(1, ["a"]) for n in range(257)}, "more than 256 features"),
            ({"f" * 257: state(1, ["a"])}, "names that are too long"),
            ({f"f{n}": state(2050, ["a"] * 2050) for n in range(2)}, "more than 4096 names"),
            ({STATE: state(1, ["a", "b"])}, "with 2 names"),
            ({STATE: state(1, ["a" * 257])}, "whose names are no names"),
            ({STATE: state(1, "a")}, "whose names are no list"),
            ({STATE: {"dtype": "float32", "shape": [np.zeros(2)], "names": ["a"]}}, "ValueError"),
        ):
            with pytest.raises(grpc.RpcError, match=said) as found:
                caller.instruct(features)
            assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        caller.instruct({f"f{n}": state(16, [f"n{m}" for m in range(16)]) for n in range(255)} | {"i": picture})
        caller.instruct({**FEATURES, "i": {**picture, "names": None}})
