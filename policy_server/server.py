"""The gRPC server around a policy: sessions, health, reflection, graceful drain."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sparring.policy_server.authentication import TokenCheck, server_credentials
from sparring.policy_server.batcher import Batcher
from sparring.policy_server.errors import EpisodeInterrupted, PolicyFailed, QueueFull, status_message
from sparring.policy_server.hosted import HostedPolicy, described, warm_policy
from sparring.policy_server.metrics import MetricsServer
from sparring.policy_server.options import ServerOptions
from sparring.policy_server.policies.base import Policy
from sparring.policy_server.session import Draining, OutOfOrder, SessionHandler
from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.errors import SparringError
from sparring.protos.net.access import read_token
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import SERVER_OPTIONS, bind, discard
from sparring.protos.spec import SpecMismatch
from sparring.protos.tensor import TensorError

log = logging.getLogger(__name__)

_FAREWELL_SECONDS: Final = 1.0
"""How long a stream that is cut off has to take its status with it."""

SERVICE: Final = "sparring.policy.v1.Policy"

_STATUS: Final[dict[type[SparringError], tuple[grpc.StatusCode, str]]] = {
    OutOfOrder: (grpc.StatusCode.FAILED_PRECONDITION, "order"),
    SpecMismatch: (grpc.StatusCode.FAILED_PRECONDITION, "refused"),
    TensorError: (grpc.StatusCode.INVALID_ARGUMENT, "tensor"),
    PolicyFailed: (grpc.StatusCode.ABORTED, "policy"),
    EpisodeInterrupted: (grpc.StatusCode.UNAVAILABLE, "interrupted"),
    Draining: (grpc.StatusCode.UNAVAILABLE, "draining"),
    QueueFull: (grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
}
"""How a stream ends that failed, and what such errors are counted as."""


class _Servicer:
    def __init__(self, hosted: asyncio.Future[HostedPolicy[Batcher]], stats: StatsCounter, max_sessions: int) -> None:
        self._hosted = hosted
        self._stats = stats
        self._max_sessions = max_sessions
        self._numbers = itertools.count(1)
        self.sessions: dict[SessionHandler, asyncio.Task[Any] | None] = {}
        self.draining = False
        self._cut_off = False

    async def Describe(
        self, request: pb.DescribeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.PolicyDescription:
        return (await self._ready()).description

    async def Stats(self, request: pb.StatsRequest, context: grpc.aio.ServicerContext[Any, Any]) -> pb.ServerStats:
        return self._stats.to_message()

    async def _ready(self) -> HostedPolicy[Batcher]:
        """Waits for what is hosted until it is loaded; callers have deadlines of their own."""
        return await asyncio.shield(self._hosted)

    def playing(self) -> int:
        """Sessions with an episode that may ask for actions."""
        return sum(session.playing for session in self.sessions)

    async def Rollout(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if self.draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the policy server is shutting down.")
        hosted = await self._ready()
        if len(self.sessions) >= self._max_sessions:
            self._stats.error("full")
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the policy server holds {self._max_sessions} sessions and takes no more; "
                "`sparring serve --max-sessions` makes room for others.",
            )
        session = hosted.session(f"session-{next(self._numbers)}")
        self.sessions[session] = asyncio.current_task()
        self._stats.session(1)
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                await context.write(await session.answer_bytes(request))
        except asyncio.CancelledError:
            if not self._cut_off:
                raise
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "the policy server shut down before the episode ended; `sparring serve --grace` gives it longer.",
            )
        except SparringError as error:
            log.warning("%s ended: %s", session.name, error)
            code, kind = _STATUS.get(type(error), (grpc.StatusCode.INTERNAL, "internal"))
            self._stats.error(kind)
            await context.abort(code, status_message(error.sentence))
        finally:
            self.sessions.pop(session)
            self._stats.session(-1)

    def drain(self) -> None:
        """Refuses new sessions, and new episodes in those that are open."""
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
    """Returns the generated handlers, but that Rollout gets messages as bytes: observations are read without copies."""
    methods: dict[str, Any] = {
        "Describe": grpc.unary_unary_rpc_method_handler(
            servicer.Describe,
            request_deserializer=pb.DescribeRequest.FromString,
            response_serializer=pb.PolicyDescription.SerializeToString,
        ),
        "Rollout": grpc.stream_stream_rpc_method_handler(
            servicer.Rollout, response_serializer=pb.RolloutResponse.SerializeToString
        ),
        "Stats": grpc.unary_unary_rpc_method_handler(
            servicer.Stats,
            request_deserializer=pb.StatsRequest.FromString,
            response_serializer=pb.ServerStats.SerializeToString,
        ),
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


class PolicyServer:
    """Hosts one policy at one or more addresses.

    Args:
        policy: A policy, or a function that makes it: that is called in the thread that the policy then lives in.
        options: What it is told; the name and the arguments in there are what clients hear of the policy.
        checkpoint_sha256: Hash of the weights, where the policy's own word for it is not to be taken.

    Raises:
        UsageError: If the files of its token, certificate or key cannot be used.
    """

    def __init__(
        self,
        policy: Policy | Callable[[], Policy],
        options: ServerOptions,
        *,
        checkpoint_sha256: str | None = None,
    ) -> None:
        self._policy = policy
        self._options = options
        self._name = options.policy
        self._token = read_token(options.token_file, flag="--token-file") if options.token_file else ""
        self._credentials = server_credentials(options.tls_cert, options.tls_key)
        self._checkpoint_sha256 = checkpoint_sha256
        self.metrics: MetricsServer | None = None
        self._server: grpc.aio.Server | None = None
        self.stats = StatsCounter()

    async def start(self, addresses: Sequence[str | Address]) -> list[Address]:
        """Listens, loads the policy and warms it up; serving when it returns. Returns the addresses as `listen` does.

        Raises:
            UsageError: If an address cannot be listened at, or the policy cannot be made or warmed up.
        """
        bound = await self.listen(addresses)
        try:
            await self.load()
        except BaseException:
            await self.drain(0)
            raise
        return bound

    async def listen(self, addresses: Sequence[str | Address]) -> list[Address]:
        """Listens at the addresses and returns them with port 0 replaced by the port that was taken.

        Health is NOT_SERVING, and whoever asks for the policy waits until it is loaded.

        Raises:
            UsageError: If an address is none, or cannot be listened at.
        """
        wanted = [Address.listening(address) for address in addresses]
        self._hosted: asyncio.Future[HostedPolicy[Batcher]] = asyncio.get_running_loop().create_future()
        self._servicer = _Servicer(self._hosted, self.stats, self._options.max_sessions)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self._health = health.aio.HealthServicer()
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        guards = [TokenCheck(self._token)] if self._token else []
        self._server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=guards)
        self._server.add_generic_rpc_handlers((_handlers(self._servicer),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        try:
            bound = [bind(self._server, address, self._credentials) for address in wanted]
            if self._options.metrics:  # last, so that nothing is left of it where listening fails
                self.metrics = MetricsServer(self.stats, self._options.metrics, policy=self._name)
        except BaseException:
            await discard(self._server)
            raise
        await self._server.start()
        return bound

    async def load(self) -> None:
        """Makes the policy, warms it up, and then says that it is served.

        Raises:
            UsageError: If it cannot be made, or fails in its warm-up.
        """
        policy = await asyncio.get_running_loop().run_in_executor(self._thread, warm_policy, self._policy, self._name)
        batcher = Batcher(
            policy,
            name=self._name,
            max_batch=self._options.max_batch,
            max_queue=self._options.max_sessions,
            max_queue_delay=self._options.max_queue_delay,
            expected=self._servicer.playing,
            stats=self.stats,
            thread=self._thread,
        )
        description = described(policy, self._name, self._options.policy_args, self._checkpoint_sha256)
        self._hosted.set_result(HostedPolicy(policy, description, batcher, self.stats))
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    @property
    def description(self) -> pb.PolicyDescription:
        """What clients are told about the policy; there is something to tell when it is loaded."""
        return self._hosted.result().description

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", SERVICE):
            await self._health.set(service, status)

    async def drain(self, grace: float, *, rest: float = 0.0) -> None:
        """Starts nothing new, lets running episodes end for up to `grace` seconds, then stops.

        Args:
            grace: Seconds.
            rest: Seconds to wait after that for the policy to finish what it is in the middle of, where others have a
                use for it in this process.
        """
        assert self._server is not None, "start() comes first"
        await self._health.enter_graceful_shutdown()
        self._servicer.drain()
        stopping = asyncio.ensure_future(self._server.stop(grace + _FAREWELL_SECONDS))
        done, _ = await asyncio.wait({stopping}, timeout=grace)
        if not done:
            self._servicer.cut_off()
        await stopping
        if rest and not await self._at_rest(rest):
            log.warning("%s has not finished what it was asked %.0f s ago; it goes on in a thread", self._name, rest)
        if self._hosted.done():
            await self._hosted.result().runner.close()
        else:
            self._thread.shutdown(wait=False, cancel_futures=True)
        if self.metrics is not None:
            await asyncio.to_thread(self.metrics.close)

    async def _at_rest(self, seconds: float) -> bool:
        turn = asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)  # which comes after all others'
        done, _ = await asyncio.wait({turn}, timeout=seconds)
        return bool(done)


async def serve_until(server: PolicyServer, stop: asyncio.Event, *, grace: float) -> None:
    """Serves until `stop` is set, then drains."""
    await stop.wait()
    log.info("draining: no new episodes, running ones have %.0f s", grace)
    await server.drain(grace)
