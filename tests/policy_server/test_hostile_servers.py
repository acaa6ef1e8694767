"""What a client takes from a server: what was said at the hello and fits its action space, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from toy_benchmark import Toy, ToySettings

from sparring.env_worker.worker.player import Player
from sparring.policy_server.client import (
    Description,
    Offer,
    PolicyClient,
    PolicyFailed,
    PolicyRefused,
    PolicyUnreachable,
    RemoteSession,
)
from sparring.protos import PROTOCOL_VERSION, evaluation_pb2
from sparring.protos import policy_pb2 as pb
from sparring.protos.errors import SparringError
from sparring.protos.policy_pb2_grpc import PolicyServicer, add_PolicyServicer_to_server
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import encode

CAMERA = "observation.image"
OFFER = Offer({CAMERA: TensorSpec("uint8", (4, 4, 3))}, action_low=(-1.0,), action_high=(1.0,))
"""A space of one dimension."""
SEEN = {CAMERA: np.zeros((4, 4, 3), np.uint8)}
TIMEOUT = 60.0


def needs(**changed: Any) -> pb.Needs:
    camera = pb.TensorSpec(name=CAMERA, dtype=pb.DTYPE_UINT8, shape=[4, 4, 3])
    return pb.Needs(**{"observations": [camera], "action_dim": 1, "chunk_length": 3, "history": 1, **changed})


class Server(PolicyServicer):
    """Says what it is told to say, and shares no line with our own server."""

    def __init__(self) -> None:
        self.needs = needs()
        self.actions = encode(np.zeros((3, 1)))
        self.arguments: dict[str, str] = {}
        self.seconds = 0.0
        self.leaves_at = ""
        """The kind of message at which it ends the stream as if all had been said."""

    @property
    def description(self) -> pb.PolicyDescription:
        return pb.PolicyDescription(
            name="hostile", protocol=PROTOCOL_VERSION, needs=self.needs, arguments=self.arguments, server_version="0"
        )

    def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.PolicyDescription:
        return self.description

    def Rollout(self, requests: Iterator[pb.RolloutRequest], context: Any) -> Iterator[pb.RolloutResponse]:
        for request in requests:
            kind = request.WhichOneof("message")
            if kind == self.leaves_at:
                return
            if kind == "hello":
                yield pb.RolloutResponse(welcome=pb.Welcome(policy=self.description, needs=self.needs, session="s"))
            elif kind == "episode_start":
                yield pb.RolloutResponse(episode_started=pb.EpisodeStarted(number=request.episode_start.number))
            else:
                asked = request.observation
                chunk = pb.Chunk(
                    episode=asked.episode, step=asked.step, actions=self.actions, inference_seconds=self.seconds
                )
                yield pb.RolloutResponse(chunk=chunk)


@contextmanager
def served(servicer: Server) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4))
    add_PolicyServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait(TIMEOUT)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(server: Server) -> Iterator[PolicyClient]:
    with served(server) as address, PolicyClient(address, timeout=TIMEOUT) as client:
        yield client


def asked(client: PolicyClient) -> tuple[RemoteSession, Callable[[], Any]]:
    session = client.open(OFFER)
    session.start()
    return session, lambda: session.act(SEEN, step=0)


@pytest.mark.parametrize("kind", ["hello", "episode_start", "observation"])
def test_a_server_that_leaves_without_a_word_did_not_go_away_with_ok(
    server: Server, client: PolicyClient, kind: str
) -> None:
    server.leaves_at = kind
    with pytest.raises(PolicyUnreachable, match=r"ended the session without saying why\.$"):
        asked(client)[1]()


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16"])
def test_chunks_that_keep_the_word_are_taken(server: Server, client: PolicyClient, length: int, dtype: str) -> None:
    server.actions = encode(np.full((length, 1), 1, dtype))
    _, ask = asked(client)
    assert ask().actions.tolist() == [[1]] * length


RAW = struct.pack("<d", 0.0)
BAD = {
    "another size of actions": (encode(np.zeros((1, 7))), r"shape \(1, 7\).*length 1 to 3 and action_dim 1"),
    "one action without its axis": (encode(np.zeros(1)), r"shape \(1,\).*length 1 to 3 and action_dim 1"),
    "an axis too many": (encode(np.zeros((1, 1, 1))), r"shape \(1, 1, 1\).*length 1 to 3 and action_dim 1"),
    "longer than was said": (encode(np.zeros((4, 1))), r"shape \(4, 1\).*length 1 to 3 and action_dim 1"),
    "nothing": (encode(np.zeros((0, 1))), r"shape \(0, 1\).*length 1 to 3 and action_dim 1"),
    "not a number": (encode(np.array([[np.nan]])), r"nan in dimension 0 of action 0"),
    "an infinity": (encode(np.array([[0.0], [-np.inf]])), r"-inf in dimension 0 of action 1"),
    "no tensor at all": (pb.Tensor(), r"no chunk of actions: dtype number 0"),
    "a header that lies": (pb.Tensor(dtype=pb.DTYPE_FLOAT64, shape=[3, 1], raw=RAW), r"needs 24 bytes, 8 came"),
    "axes below zero": (pb.Tensor(dtype=pb.DTYPE_FLOAT64, shape=[-1, -1], raw=RAW), r"shorter than 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_chunk_that_is_not_what_was_said_is_the_policys_failure(
    server: Server, client: PolicyClient, what: str
) -> None:
    server.actions, says = BAD[what]
    _, ask = asked(client)
    with pytest.raises(PolicyFailed, match=says) as failed:
        ask()
    assert str(client.address) in str(failed.value)


def test_an_episode_with_such_chunks_is_an_error_of_the_policy_and_no_failure(server: Server) -> None:
    """Seven dimensions in a space of another size were played, and scored 0 %."""

    class Sessions:
        def session_for(self, offer: Offer) -> RemoteSession:
            return client.open(offer)

        def end(self) -> None:
            pass

    toy = Toy()
    task = toy.tasks("short")[0]
    settings = toy.read_settings({})
    assert isinstance(settings, ToySettings)
    simulator = toy.make(task, settings)
    size = simulator.offers.action_dim
    simulator.close()
    server.needs = needs(observations=[], action_dim=size)
    server.actions = encode(np.zeros((1, size + 6)))
    with served(server) as address, PolicyClient(address, timeout=TIMEOUT) as client:
        player = Player(toy, settings, Sessions())
        answer = player.play(
            evaluation_pb2.Lease(lease=1, task=task.name, seed=1), evaluation_pb2.Assignment(benchmark="toy")
        )
        player.close()
    assert answer.result.outcome == evaluation_pb2.OUTCOME_ERROR, answer
    assert answer.result.error_kind == evaluation_pb2.ERROR_KIND_POLICY
    assert f"shape (1, {size + 6})" in answer.result.error


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"action_dim": 7}, "its actions have 7 dimensions, the action space has 1"),
        ({"action_dim": 0}, "its actions have no dimensions, the action space has 1"),
        ({"chunk_length": 0}, "chunk_length must be a whole number of at least 1"),
        ({"history": 0}, "history must be a whole number of at least 1"),
        ({"history": 4097}, "the last 4097 steps; at most 4096"),
        ({"history": 2**32 - 1}, "more than a message holds"),
        (
            {"observations": [pb.TensorSpec(name="other", dtype=pb.DTYPE_UINT8, shape=[1])]},
            "asks for 'other'.*not at all",
        ),
        (
            {"observations": [pb.TensorSpec(name=CAMERA, dtype=pb.DTYPE_UINT8, shape=[8, 8, 3])]},
            r"as uint8 \(8, 8, 3\), which is offered as uint8 \(4, 4, 3\)",
        ),
        ({"observations": [pb.TensorSpec(name=CAMERA, any_shape=True)]}, "any type any shape.*offered as uint8"),
        ({"observations": [pb.TensorSpec(name=CAMERA, dtype=99)]}, "dtype number 99"),  # type: ignore[list-item]
    ],
)
def test_a_welcome_that_does_not_fit_the_offer_is_refused(
    server: Server, client: PolicyClient, changed: dict[str, Any], says: str
) -> None:
    server.needs = needs(**changed)
    with pytest.raises(PolicyRefused, match=says) as refused:
        client.open(OFFER)
    assert "answered the hello with what cannot be" in str(refused.value)
    server.needs = needs(history=4096)
    client.open(OFFER)


@pytest.mark.parametrize("text", ["not JSON", "[" * 100_000])
def test_a_description_that_cannot_be_read_is_a_sentence(server: Server, client: PolicyClient, text: str) -> None:
    server.arguments = {"chunk": text}
    for call in (client.describe, lambda: client.open(OFFER)):
        with pytest.raises(PolicyRefused, match=r"'chunk'.*which is not JSON"):
            call()
    server.arguments = {"chunk": "3"}
    assert client.describe().arguments == {"chunk": 3}
    assert client.open(OFFER).policy.arguments == {"chunk": 3}


@pytest.mark.parametrize("claimed", [1e300, -5.0])
def test_times_are_within_what_was_waited(server: Server, client: PolicyClient, claimed: float) -> None:
    server.seconds = claimed
    chunk = asked(client)[1]()
    assert 0 <= chunk.policy_seconds <= TIMEOUT
    assert 0 <= chunk.transport_seconds <= TIMEOUT


def test_an_observation_that_is_much_too_large_is_told_with_both_shapes(client: PolicyClient) -> None:
    session, _ = asked(client)
    with pytest.raises(PolicyRefused, match=r"uint8 \(480, 480, 3\).*asked for.*uint8 \(4, 4, 3\)"):
        session.act({CAMERA: np.zeros((480, 480, 3), np.uint8)}, step=0)


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        (pb.PolicyDescription(name="x" * (4 << 20)), "says of itself has 4,194,309 bytes; 4,194,304 are the most"),
        (pb.PolicyDescription(program_sha256="0" * 65), "is its program's hash"),
        (pb.PolicyDescription(program_sha256="../x"), "is its program's hash"),
    ],
)
def test_a_description_that_says_too_much_is_none(description: pb.PolicyDescription, sentence: str) -> None:
    with pytest.raises(SparringError, match=sentence):
        Description.from_message(description)
