"""The client's side of the contract, spoken with the generated stubs alone.

The suite must be able to find fault with a server without sharing our client's (or our codec's) idea of the rules.
"""

from __future__ import annotations

import contextlib
import math
import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import grpc

from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.net.access import Identity
from sparring.protos.net.address import Address
from sparring.protos.policy_pb2_grpc import PolicyStub
from sparring.protos.rules import expect

DEADLINE: Final = 20.0

ELEMENT_BYTES: Final[dict[int, int]] = {
    pb.DTYPE_BOOL: 1,
    pb.DTYPE_UINT8: 1,
    pb.DTYPE_UINT16: 2,
    pb.DTYPE_UINT32: 4,
    pb.DTYPE_UINT64: 8,
    pb.DTYPE_INT8: 1,
    pb.DTYPE_INT16: 2,
    pb.DTYPE_INT32: 4,
    pb.DTYPE_INT64: 8,
    pb.DTYPE_FLOAT16: 2,
    pb.DTYPE_FLOAT32: 4,
    pb.DTYPE_FLOAT64: 8,
}
FLOATS: Final[dict[int, str]] = {pb.DTYPE_FLOAT16: "e", pb.DTYPE_FLOAT32: "f", pb.DTYPE_FLOAT64: "d"}
"""How the struct module names them."""


Message = pb.Hello | pb.EpisodeStart | pb.Observation


@dataclass(frozen=True)
class Ended:
    """How a stream ended, and every answer that came before that."""

    answers: Sequence[pb.RolloutResponse]
    code: grpc.StatusCode
    details: str

    @property
    def kinds(self) -> list[str | None]:
        """What the answers were."""
        return [answer.WhichOneof("message") for answer in self.answers]


class Stream:
    """One Rollout stream, message by message."""

    def __init__(self, stub: PolicyStub, deadline: float) -> None:
        self._requests: queue.SimpleQueue[pb.RolloutRequest | None] = queue.SimpleQueue()
        outgoing: Iterator[pb.RolloutRequest] = iter(self._requests.get, None)
        self._call: Any = stub.Rollout(outgoing, timeout=deadline)

    def send(self, *messages: Message) -> None:
        """Sends messages, waiting for nothing."""
        for message in messages:
            self._requests.put(_request(message))

    def receive(self) -> pb.RolloutResponse:
        """Waits for one answer."""
        response: pb.RolloutResponse = next(self._call)
        return response

    def ask(self, message: Message) -> pb.RolloutResponse:
        """Sends a message and waits for its answer."""
        self.send(message)
        return self.receive()

    def finish(self) -> Ended:
        """Sends no more and reads to the end."""
        self._requests.put(None)
        return self.end()

    def end(self) -> Ended:
        """Reads until the server has ended the stream."""
        answers: list[pb.RolloutResponse] = []
        with contextlib.suppress(grpc.RpcError):
            answers.extend(self._call)
        return Ended(answers, self._call.code(), self._call.details() or "")

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.put(None)
        self._call.cancel()


class _WithToken(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds the header that a server with a token wants to every call."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _call(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(metadata=[*(details.metadata or ()), self._header]), request)

    intercept_unary_unary = _call  # type: ignore[assignment]
    intercept_stream_stream = _call  # type: ignore[assignment]


@dataclass(frozen=True)
class Way:
    """How the server under test is reached.

    Attributes:
        address: As a person writes it.
        token: Secret that it wants; empty: none.
        ca: PEM certificates to trust there; turns TLS on, as tls:// does.
        identity: To show there.
        deadline: Seconds for everything that one stream asks, hundreds of observations in some rules; a server that
            takes longer has failed.
    """

    address: str
    token: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)
    deadline: float = DEADLINE
    identity: Identity | None = field(default=None, repr=False)

    @contextlib.contextmanager
    def connect(self) -> Iterator[grpc.Channel]:
        """Opens a channel that brings the token with every call."""
        address = Address.parse(self.address)
        if self.ca or address.is_encrypted:
            cert, key = (self.identity.cert, self.identity.key) if self.identity else (None, None)
            credentials = grpc.ssl_channel_credentials(self.ca.encode() or None, key, cert)
            channel = grpc.secure_channel(address.target, credentials)
        else:
            channel = grpc.insecure_channel(address.target)
        with channel:
            yield grpc.intercept_channel(channel, _WithToken(self.token)) if self.token else channel


@dataclass(frozen=True)
class Target:
    """The server under test and an offer that satisfies its policy."""

    way: Way
    channel: grpc.Channel
    description: pb.PolicyDescription
    offer: pb.Offer
    task: str = ""
    benchmark: str = ""

    @property
    def stub(self) -> PolicyStub:
        """Calls of the service."""
        return PolicyStub(self.channel)

    def open(self) -> Stream:
        """Opens a stream."""
        return Stream(self.stub, self.way.deadline)

    def exchange(self, *messages: Message) -> Ended:
        """Sends everything at once, waiting for nothing, and returns all that came back."""
        with self.open() as stream:
            stream.send(*messages)
            return stream.finish()

    def hello(self, offer: pb.Offer | None = None, *, protocol: int = PROTOCOL_VERSION) -> pb.Hello:
        """A hello with an offer that fits, or another one."""
        return pb.Hello(
            protocol=protocol, client="compliance suite", benchmark=self.benchmark, offer=offer or self.offer
        )

    def start(self, number: int, *, seed: int = 7) -> pb.EpisodeStart:
        """The start of an episode."""
        return pb.EpisodeStart(number=number, task=self.task, index=0, seed=seed, instruction="do the task")

    def observation(self, episode: int, step: int) -> pb.Observation:
        """What the policy asked for: zeros, of the types and shapes that were offered."""
        history = self.description.needs.history
        offered = {spec.name: spec for spec in self.offer.observations}
        message = pb.Observation(episode=episode, step=step)
        for need in self.description.needs.observations:
            spec = offered[need.name]
            shape = (history, *spec.shape) if history > 1 else tuple(spec.shape)
            message.tensors[need.name].CopyFrom(zeros(spec.dtype, shape))
        return message

    def expect_well(self) -> None:
        """Expects that a fresh client gets a whole episode: whatever was done before has not hurt the server."""
        ended = self.exchange(self.hello(), self.start(1), self.observation(1, 0))
        expect_answers(ended, "welcome", "episode_started", "chunk", when="a fresh client, afterwards")


def _request(message: Message) -> pb.RolloutRequest:
    if isinstance(message, pb.Hello):
        return pb.RolloutRequest(hello=message)
    if isinstance(message, pb.EpisodeStart):
        return pb.RolloutRequest(episode_start=message)
    return pb.RolloutRequest(observation=message)


def zeros(dtype: int, shape: Sequence[int]) -> pb.Tensor:
    """A tensor of zeros."""
    return pb.Tensor(dtype=dtype, shape=shape, raw=bytes(math.prod(shape) * ELEMENT_BYTES[dtype]))  # type: ignore[arg-type]


def satisfying_offer(needs: pb.Needs) -> pb.Offer:
    """An offer that a policy cannot refuse: what it names, with something definite wherever it leaves a choice."""
    observations = [
        pb.TensorSpec(
            name=need.name,
            dtype=need.dtype or pb.DTYPE_FLOAT32,
            shape=(3,) if need.any_shape else [2 if length == -1 else length for length in need.shape],
        )
        for need in needs.observations
    ]
    size = needs.action_dim or 4
    return pb.Offer(
        observations=observations,
        action_low=[-1.0] * size,
        action_high=[1.0] * size,
        control_hz=10.0,
        control=needs.control,
    )


def expect_answers(ended: Ended, *kinds: str, when: str = "the stream") -> None:
    """Expects these answers and a good end."""
    expect(
        (ended.kinds, ended.code) == (list(kinds), grpc.StatusCode.OK),
        f"{when} was to be answered with {_list(kinds)}, and ended OK; it was {_told(ended)}.",
    )


def expect_refused(ended: Ended, code: grpc.StatusCode, *, after: Sequence[str] = (), when: str = "the stream") -> str:
    """Expects an end with this status, a sentence for a person, and no answer but those that were due before."""
    expect(
        (ended.kinds, ended.code) == (list(after), code),
        f"{when} was to be answered with {_list(after)}, and then refused with {code.name}; it was {_told(ended)}.",
    )
    expect_sentence(ended.details)
    return ended.details


def expect_sentence(details: str) -> None:
    """Expects a sentence, a table below it at most, and no traceback."""
    expect("Traceback" not in details and 'File "' not in details, f"a traceback crossed the wire: {details!r}")
    first, *table = details.splitlines() or [""]
    expect(first.endswith(":" if table else ".") and " " in first, f"not a sentence: {details!r}")


def expect_named(what: str, details: str) -> None:
    """Expects that a refusal names something."""
    expect(what in details, f"the refusal does not name {what!r}: {details!r}")


def _told(ended: Ended) -> str:
    said = f" ({ended.details})" if ended.details else ""
    return f"answered with {_list(ended.kinds)}, and ended {ended.code.name}{said}"


def _list(kinds: Sequence[str | None]) -> str:
    if len(kinds) > 6:
        return f"{len(kinds)} messages"
    return ", ".join(map(str, kinds)) or "nothing"
