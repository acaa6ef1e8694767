"""The policy protocol as a state machine, against a real server: messages in any order, spoilt, huge, of wrong numbers.

Whatever is sent, the server answers as the contract says or ends that stream with a status and a sentence; it never
hangs, others are not disturbed, and its memory stays. SPARRING_FUZZ=N plays N games instead of a few, never the same.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

sys.path.append(str(Path(__file__).parent))  # for helpers, whatever pytest's import mode
sys.path.append(str(Path(__file__).parent.parent / "policy_server"))

import made_up
from policy_serving import Server

from sparring.policy_server.client import Offer, PolicyClient, RemoteSession
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.limits import MAX_HELLO_BYTES
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import encode

DEADLINE = 30.0
STATE = "state"
OFFER = Offer({STATE: TensorSpec("float32", (2,))}, action_low=(-1.0,), action_high=(1.0,))
SEEN = {STATE: np.ones(2, np.float32)}
REFUSALS = {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT}
GAMES = int(os.environ.get("SPARRING_FUZZ", "0"))
MOST_GROWTH = 256.0
"""MiB. The largest message that is sent here has 8."""


class Stream:
    """A stream in bytes, and what the contract says of where it is."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        outgoing: Iterator[bytes] = iter(self._requests.get, None)
        self.call: Any = channel.stream_stream("/sparring.policy.v1.Policy/Rollout")(outgoing, timeout=DEADLINE)
        self.greeted = False
        self.episode = 0
        self.playing = False
        self.step = -1

    def ask(self, data: bytes) -> pb.RolloutResponse | None:
        """The answer to a message; None if the stream ended instead, which must be with a refusal in words."""
        self._requests.put(data)
        try:
            return pb.RolloutResponse.FromString(next(self.call))
        except grpc.RpcError as error:
            ended = error
        code, details = ended.code(), ended.details()
        assert code in REFUSALS, f"{code}: {details}"
        assert details.strip()
        assert "Traceback" not in details
        return None

    def close(self) -> None:
        self._requests.put(None)
        self.call.cancel()


class Protocol(RuleBasedStateMachine):
    """Several clients of one server, and one that only wants to be left alone."""

    server: Server
    bystander: RemoteSession
    steps = 0
    sent = 0

    def __init__(self) -> None:
        super().__init__()
        self.channel = grpc.insecure_channel(self.server.address, options=[("grpc.max_send_message_length", -1)])
        self.streams: list[Stream] = []

    def teardown(self) -> None:
        for stream in self.streams:
            stream.close()
        self.channel.close()

    def _ask(self, stream: Stream, request: pb.RolloutRequest | bytes) -> pb.RolloutResponse | None:
        type(self).sent += 1
        data = request if isinstance(request, bytes) else request.SerializeToString()
        answer = stream.ask(data)
        if answer is None:
            stream.close()
            self.streams.remove(stream)
        return answer

    @precondition(lambda self: len(self.streams) < 4)
    @rule()
    def open(self) -> None:
        self.streams.append(Stream(self.channel))

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def say_hello(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        hello = pb.Hello(protocol=PROTOCOL_VERSION, offer=OFFER.to_message())
        answer = self._ask(stream, pb.RolloutRequest(hello=hello))
        assert (answer is not None) == (not stream.greeted), "a stream has one hello"
        if answer is not None:
            assert answer.welcome.needs.action_dim == 1
            stream.greeted = True

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), number=st.integers(0, 4))
    def start(self, data: st.DataObject, number: int) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        answer = self._ask(stream, pb.RolloutRequest(episode_start=pb.EpisodeStart(number=number)))
        assert (answer is not None) == (stream.greeted and number > stream.episode)
        if answer is not None:
            assert answer.episode_started.number == number
            stream.episode, stream.playing, stream.step = number, True, -1

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), near=st.integers(-1, 1), step=st.integers(0, 6), right=st.booleans())
    def observe(self, data: st.DataObject, near: int, step: int, right: bool) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        tensor = encode(np.ones(2 if right else 3, np.float32))
        episode = max(0, stream.episode + near)
        message = pb.Observation(episode=episode, step=step, tensors={STATE: tensor})
        answer = self._ask(stream, pb.RolloutRequest(observation=message))
        allowed = stream.playing and episode == stream.episode and step > stream.step and right
        assert (answer is not None) == allowed
        if answer is not None:
            assert (answer.chunk.episode, answer.chunk.step) == (episode, step)
            stream.step = step

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), request=made_up.REQUESTS)
    def say_anything(self, data: st.DataObject, request: pb.RolloutRequest) -> None:
        """What it means is for other rules to say; here, that it is answered at all, or refused in words."""
        stream = data.draw(st.sampled_from(self.streams))
        answer = self._ask(stream, request)
        if answer is not None:  # by accident it was right: this stream's state is not followed any more
            stream.close()
            self.streams.remove(stream)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), garbage=st.binary(min_size=1, max_size=64))
    def send_garbage(self, data: st.DataObject, garbage: bytes) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        if self._ask(stream, garbage) is not None:
            stream.close()
            self.streams.remove(stream)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), size=st.sampled_from([MAX_HELLO_BYTES + 1, 1 << 20, 8 << 20]))
    def send_too_much(self, data: st.DataObject, size: int) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        flood = pb.Hello(protocol=PROTOCOL_VERSION, client="x" * size)
        assert self._ask(stream, pb.RolloutRequest(hello=flood)) is None

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        stream.close()
        self.streams.remove(stream)

    @invariant()
    def others_are_not_disturbed(self) -> None:
        cls = type(self)
        cls.steps += 1
        assert self.bystander.act(SEEN, step=cls.steps).actions.shape == (1, 1)


def resident(server: Server) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@pytest.mark.processes
def test_a_server_is_not_shaken() -> None:
    server = Server("--policy=zero", f"--policy-args={json.dumps({'observations': [STATE]})}", "--max-sessions=64")
    try:
        with PolicyClient(server.address, timeout=DEADLINE) as client, client.open(OFFER) as bystander:
            bystander.start()
            before = resident(server)
            machine = type("Playing", (Protocol,), {"server": server, "bystander": bystander})
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=GAMES or 20,
                    stateful_step_count=25,
                    derandomize=not GAMES,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
            if GAMES:
                sys.stderr.write(f"{machine.sent} messages\n")
            assert machine.sent > 100
            assert resident(server) - before < MOST_GROWTH
        assert server.process.poll() is None, server.log
        assert "Traceback" not in server.log
    finally:
        server.close()
