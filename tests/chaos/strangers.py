"""Workers and clients that mean harm: those without a secret, and those that have it and lie."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import grpc

from sparring.protos import PROTOCOL_VERSION, WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as work
from sparring.protos import policy_pb2 as policy
from sparring.protos.net.access import TOKEN_HEADER, token_header

_SECONDS: Final = 10.0
_LET_IN: Final = grpc.StatusCode.OK
_NOBODYS: Final = "a-token-that-is-nobodys"
_AWAY: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
"""Who does not answer, because something else was done to it."""


class _Call:
    """A stream in bytes."""

    def __init__(self, channel: grpc.Channel, method: str, token: str) -> None:
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        outgoing: Iterator[bytes] = iter(self._requests.get, None)
        metadata = ((TOKEN_HEADER, token_header(token)),) if token else ()
        self.call: Any = channel.stream_stream(method)(outgoing, timeout=_SECONDS, metadata=metadata)

    def say(self, data: bytes) -> None:
        self._requests.put(data)

    def hear(self) -> bytes | grpc.StatusCode:
        """The next message, or the status that it ended with."""
        try:
            return next(self.call)  # type: ignore[no-any-return]
        except StopIteration:
            return _LET_IN
        except grpc.RpcError as error:
            return error.code()

    def close(self) -> None:
        self._requests.put(None)
        self.call.cancel()


def forge(target: str, rng: Random, token: str = "") -> list[str]:
    """Sends results for leases that somebody else may have; returns what was wrong about the answer.

    Args:
        target: Of the work service.
        rng: For numbers.
        token: The run's own, for a worker that was let in and lies; empty: nobody's.
    """
    wrong: list[str] = []
    with grpc.insecure_channel(target) as channel:
        stream = _Call(channel, "/sparring.evaluation.v1.Work/Work", token or _NOBODYS)
        register = work.Register(protocol=WORK_PROTOCOL_VERSION, worker="forger", slots=3, benchmarks=["toy"])
        stream.say(work.WorkerMessage(register=register).SerializeToString())
        first = stream.hear()
        if token:
            if isinstance(first, bytes):
                _lie(stream, rng)
        elif isinstance(first, bytes) or first not in {grpc.StatusCode.UNAUTHENTICATED, *_AWAY}:
            wrong.append(f"a worker with nobody's token was answered with {first!r}")
        stream.close()
    return wrong


def _lie(stream: _Call, rng: Random) -> None:
    """Takes leases, says everything of those of others, and goes without a word about its own."""
    for slot in range(3):
        stream.say(work.WorkerMessage(ready=work.Ready(slot=slot)).SerializeToString())
    for _ in range(50):
        lease = 1 + rng.getrandbits(62)
        result = work.Result(lease=lease, outcome=work.OUTCOME_SUCCESS, reward_sum=999.0)
        stream.say(work.WorkerMessage(result=result).SerializeToString())
        stream.say(work.WorkerMessage(refused=work.Refused(lease=lease, reason="a lie.")).SerializeToString())
        lost = work.Lost(lease=lease, reason="a lie.", policy_unreachable=True)
        stream.say(work.WorkerMessage(lost=lost).SerializeToString())
    cannot = work.Refused(reason="a lie.", traceback="a lie.")  # as one that cannot begin
    stream.say(work.WorkerMessage(refused=cannot).SerializeToString())
    stream.say(work.WorkerMessage(ready=work.Ready(slot=rng.choice([0, 2**31]))).SerializeToString())
    stream.say(rng.randbytes(200))
    while isinstance(stream.hear(), bytes):
        continue


def pester(target: str, rng: Random, *, wants_token: bool) -> list[str]:
    """Opens sessions of a policy server and says nonsense in them; returns what was wrong about the answers."""
    wrong: list[str] = []
    hello = policy.Hello(protocol=PROTOCOL_VERSION, client="x" * rng.choice([1, 10**6]))
    with grpc.insecure_channel(target) as channel:
        streams = [_Call(channel, "/sparring.policy.v1.Policy/Rollout", _NOBODYS) for _ in range(8)]
        for number, stream in enumerate(streams):
            said = rng.randbytes(300) if number % 2 else policy.RolloutRequest(hello=hello).SerializeToString()
            stream.say(said)
        for stream in streams:
            answer = stream.hear()
            refused = {grpc.StatusCode.UNAUTHENTICATED} if wants_token else {
                grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            }  # fmt: skip
            if isinstance(answer, bytes) or answer not in {*refused, *_AWAY}:
                wrong.append(f"a client that said nonsense was answered with {answer!r}")
        for stream in streams:
            stream.close()
    return wrong
