"""The gRPC server around a policy: sessions, health, reflection, graceful drain."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from policy_server.authentication import TokenCheck
from policy_server.batcher import Batcher, EpisodeInterrupted, PolicyFailed, QueueFull
from policy_server.policies.base import Policy, spec_on
from policy_server.session import Draining, OutOfOrder, Session
from protos import PROTOCOL_VERSION
from protos import policy_pb2 as pb
from protos.errors import SparringError
from protos.rpc import SERVER_OPTIONS, bind
from protos.spec import SpecMismatch
from protos.tensor import TensorError

log = logging.getLogger(__name__)

_LONGEST_DETAILS: Final = 1500
"""Characters. Non-ASCII ones take up to nine bytes on the wire, and headers hold about eight kilobytes."""

_FAREWELL_SECONDS: Final = 1.0
"""How long a stream that is cut off has to take its status with it."""

SERVICE: Final = "sparring.policy.v1.Policy"

_STATUS: Final[dict[type[SparringError], grpc.StatusCode]] = {
    OutOfOrder: grpc.StatusCode.FAILED_PRECONDITION,
    SpecMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    TensorError: grpc.StatusCode.INVALID_ARGUMENT,
    PolicyFailed: grpc.StatusCode.ABORTED,
    EpisodeInterrupted: grpc.StatusCode.UNAVAILABLE,
    Draining: grpc.StatusCode.UNAVAILABLE,
    QueueFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class _Servicer:
    def __init__(self, description: pb.PolicyDescription, policy: Policy, batcher: Batcher, max_sessions: int) -> None:
        self._description = description
        self._policy = policy
        self._batcher = batcher
        self._max_sessions = max_sessions
        self._numbers = itertools.count(1)
        self.sessions: dict[Session, asyncio.Task[Any] | None] = {}
        self.draining = False
        self._cut_off = False

    async def Describe(
        self, request: pb.DescribeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.PolicyDescription:
        return self._description

    async def Rollout(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if self.draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the policy server is shutting down.")
        if len(self.sessions) >= self._max_sessions:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the policy server holds {self._max_sessions} sessions and takes no more; raise --max-sessions.",
            )
        session = Session(
            f"session-{next(self._numbers)}", self._description, partial(spec_on, self._policy), self._batcher
        )
        self.sessions[session] = asyncio.current_task()
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                await context.write(await session.answer_bytes(request))
        except asyncio.CancelledError:
            if not self._cut_off:
                raise
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "the policy server shut down before the episode ended; raise --grace."
            )
        except SparringError as error:
            log.warning("%s ended: %s", session.name, error)
            await context.abort(_STATUS.get(type(error), grpc.StatusCode.INTERNAL), _details(str(error)))
        finally:
            self.sessions.pop(session)

    def drain(self) -> None:
        """No new sessions, and no new episodes in those that are open."""
        self.draining = True
        for session in self.sessions:
            session.draining = True

    def cut_off(self) -> None:
        """Ends what is still open, with a status: gRPC's own way of doing it may print a traceback."""
        self._cut_off = True
        for task in self.sessions.values():
            if task is not None:
                task.cancel()


def _handlers(servicer: _Servicer) -> grpc.GenericRpcHandler:
    """As generated, but that Rollout gets messages as they arrived: observations are read without protobuf's copies."""
    methods = {
        "Describe": grpc.unary_unary_rpc_method_handler(
            servicer.Describe,
            request_deserializer=pb.DescribeRequest.FromString,
            response_serializer=pb.PolicyDescription.SerializeToString,
        ),
        "Rollout": grpc.stream_stream_rpc_method_handler(
            servicer.Rollout, response_serializer=pb.RolloutResponse.SerializeToString
        ),
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


class PolicyServer:
    """Hosts one policy at one or more addresses.

    Args:
        policy: To host.
        name: Under which it was asked for.
        arguments: It was made with.
        max_batch: The most rows in one forward pass.
        max_sessions: The most sessions at once.
        token: Every caller must bring this secret; empty: all are welcome.
        credentials: Certificate and key for connections over TCP; None: they are not encrypted.
        checkpoint_sha256: Hash of the weights, where the policy's own word for it is not to be taken.

    Attributes:
        description: What clients are told about it.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        max_batch: int = 64,
        max_sessions: int = 256,
        token: str = "",
        credentials: grpc.ServerCredentials | None = None,
        checkpoint_sha256: str | None = None,
    ) -> None:
        self._policy = policy
        self._token = token
        self._credentials = credentials
        self._max_batch = max_batch
        self._max_sessions = max_sessions
        if checkpoint_sha256 is None:
            checkpoint_sha256 = getattr(policy, "checkpoint_sha256", "")
        self.description = pb.PolicyDescription(
            name=name,
            arguments={k: json.dumps(v, sort_keys=True) for k, v in (arguments or {}).items()},
            checkpoint_sha256=checkpoint_sha256,
            server_version=_version(),
            protocol=PROTOCOL_VERSION,
            needs=policy.spec.to_message(),
        )
        self._server: grpc.aio.Server | None = None

    async def start(self, addresses: Sequence[str]) -> list[str]:
        """Listens at the addresses and returns them with port 0 replaced by the port that was taken.

        Raises:
            UsageError: If an address cannot be listened at.
        """
        self._batcher = Batcher(self._policy, max_batch=self._max_batch, max_queue=self._max_sessions)
        self._servicer = _Servicer(self.description, self._policy, self._batcher, self._max_sessions)
        self._health = health.aio.HealthServicer()
        guards = [TokenCheck(self._token)] if self._token else []
        self._server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=guards)
        self._server.add_generic_rpc_handlers((_handlers(self._servicer),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        bound = [bind(self._server, address, self._credentials) for address in addresses]
        await self._server.start()
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return bound

    async def drain(self, grace: float) -> None:
        """Starts nothing new, lets running episodes end for up to `grace` seconds, then stops."""
        assert self._server is not None, "start() comes first"
        await self._health.enter_graceful_shutdown()
        self._servicer.drain()
        stopping = asyncio.ensure_future(self._server.stop(grace + _FAREWELL_SECONDS))
        done, _ = await asyncio.wait({stopping}, timeout=grace)
        if not done:
            self._servicer.cut_off()
        await stopping
        await self._batcher.close()


def _details(sentence: str) -> str:
    """A status message as HTTP/2 can carry it: a few kilobytes, in characters that have a UTF-8 form."""
    clean = sentence.encode("utf-8", "replace").decode("utf-8").replace("\x00", "?")
    return (
        clean
        if len(clean) <= _LONGEST_DETAILS
        else f"{clean[:_LONGEST_DETAILS]} ... (cut; the server's log has it all)"
    )


def _version() -> str:
    try:
        return version("sparring")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0+unknown"


async def serve_until(server: PolicyServer, stop: asyncio.Event, *, grace: float) -> None:
    """Serves until `stop` is set, then drains."""
    await stop.wait()
    log.info("draining: no new episodes, running ones have %.0f s", grace)
    await server.drain(grace)
