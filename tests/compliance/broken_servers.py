"""Policy servers that break the rules, each in its own way: what the suite must find.

None of them shares a line with our own server. `Careless` answers whatever it is asked, and so breaks every rule that
wants something refused; the others break those that want an answer.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.policy_pb2_grpc import PolicyServicer, add_PolicyServicer_to_server

ACTION_DIM, CHUNK = 3, 2


class Careless(PolicyServicer):
    """Refuses nothing, checks nothing, and has neither health nor reflection."""

    def __init__(self) -> None:
        self.sessions = itertools.count(1)
        self.asked = itertools.count(1)

    def description(self) -> pb.PolicyDescription:
        camera = pb.TensorSpec(name="camera", dtype=pb.DTYPE_UINT8, shape=[4, 4, 3])
        needs = pb.Needs(observations=[camera], action_dim=ACTION_DIM, chunk_length=CHUNK, history=1)
        return pb.PolicyDescription(name="careless", protocol=PROTOCOL_VERSION, server_version="0", needs=needs)

    def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.PolicyDescription:
        return self.description()

    def Stats(self, request: pb.StatsRequest, context: Any) -> pb.ServerStats:
        return pb.ServerStats()

    def Rollout(self, requests: Iterator[pb.RolloutRequest], context: Any) -> Iterator[pb.RolloutResponse]:
        for request in requests:
            yield self.answer(request, context)

    def answer(self, request: pb.RolloutRequest, context: Any) -> pb.RolloutResponse:
        kind = request.WhichOneof("message")
        if kind == "hello":
            return self.welcome()
        if kind == "episode_start":
            return pb.RolloutResponse(episode_started=pb.EpisodeStarted(number=request.episode_start.number))
        return self.chunk(request.observation.episode, request.observation.step)

    def welcome(self) -> pb.RolloutResponse:
        description = self.description()
        welcome = pb.Welcome(policy=description, needs=description.needs, session=f"s{next(self.sessions)}")
        return pb.RolloutResponse(welcome=welcome)

    def chunk(self, episode: int, step: int) -> pb.RolloutResponse:
        raw = struct.pack(f"<{CHUNK * ACTION_DIM}f", *[0.0] * CHUNK * ACTION_DIM)
        actions = pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[CHUNK, ACTION_DIM], raw=raw)
        return pb.RolloutResponse(chunk=pb.Chunk(episode=episode, step=step, actions=actions, batch_size=1))


class Refuser(Careless):
    """Refuses everything, and with a traceback."""

    def Rollout(self, requests: Iterator[pb.RolloutRequest], context: Any) -> Iterator[pb.RolloutResponse]:
        context.abort(grpc.StatusCode.INTERNAL, 'Traceback (most recent call last): File "server.py"')
        yield from ()


class SameSession(Careless):
    """Calls every session the same."""

    def welcome(self) -> pb.RolloutResponse:
        answer = super().welcome()
        answer.welcome.session = "session"
        return answer


class Greedy(Careless):
    """Asks for more than its policy needs."""

    def welcome(self) -> pb.RolloutResponse:
        answer = super().welcome()
        answer.welcome.needs.observations.add(name="compliance.unheard_of", dtype=pb.DTYPE_UINT8, shape=[2, 2])
        return answer


class OneStepLate(Careless):
    """Answers each observation with the chunk of the one before: a mixed-up action."""

    def chunk(self, episode: int, step: int) -> pb.RolloutResponse:
        return super().chunk(episode, max(0, step - 1))


class NotANumber(Careless):
    """Answers with actions that are not finite."""

    def chunk(self, episode: int, step: int) -> pb.RolloutResponse:
        answer = super().chunk(episode, step)
        answer.chunk.actions.raw = struct.pack(f"<{CHUNK * ACTION_DIM}f", *[float("nan")] * CHUNK * ACTION_DIM)
        return answer


class SharedState(Careless):
    """Lets one session's actions depend on how often all of them have asked."""

    def chunk(self, episode: int, step: int) -> pb.RolloutResponse:
        answer = super().chunk(episode, step)
        values = [float(next(self.asked))] * CHUNK * ACTION_DIM
        answer.chunk.actions.raw = struct.pack(f"<{CHUNK * ACTION_DIM}f", *values)
        return answer


class Fickle(Careless):
    """Describes itself otherwise each time, and answers to every method there is."""

    def description(self) -> pb.PolicyDescription:
        found = super().description()
        found.name = f"fickle {next(self.asked)}"
        return found


class _Everything(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


@contextmanager
def served(kind: type[Careless]) -> Iterator[str]:
    """Serves one of them in this process, and yields its address."""
    server = grpc.server(ThreadPoolExecutor(16))
    add_PolicyServicer_to_server(kind(), server)
    if kind is Fickle:
        server.add_generic_rpc_handlers((_Everything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait(10)
