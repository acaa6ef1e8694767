"""The gRPC server around a policy: sessions, health, reflection, graceful drain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from sparring.policy_server.authentication import TokenCheck
from sparring.policy_server.batcher import Batcher
from sparring.policy_server.bridges.front import Front, FrontSettings, front
from sparring.policy_server.concurrent import ConcurrentRunner
from sparring.policy_server.framed import FramedListener
from sparring.policy_server.hosted import HostedPolicy, described, warm_policy
from sparring.policy_server.limits import Limits
from sparring.policy_server.metrics import MetricsServer
from sparring.policy_server.options import ServerOptions, metrics_address
from sparring.policy_server.policies.base import Policy
from sparring.policy_server.program import code_of
from sparring.policy_server.rollouts import SERVICE, Rollouts, Runner
from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.limits import MAX_EXTRA_BYTES
from sparring.protos.net.access import check_reach, read_token
from sparring.protos.net.address import Address
from sparring.protos.net.credentials import server_credentials, tls_context
from sparring.protos.net.health import Health
from sparring.protos.net.peers import PeerLimit
from sparring.protos.net.rpc import SERVER_OPTIONS, bind, discard
from sparring.protos.tracebacks import Tracebacks

log = logging.getLogger(__name__)

_FAREWELL_SECONDS: Final = 1.0
"""How long a stream that is cut off has to take its status with it."""


class PolicyServer:
    """Hosts one policy at one or more addresses.

    Args:
        policy: A policy, or a function that makes it: that is called in the thread that the policy then lives in.
        options: What it is told; the name and the arguments in there are what clients hear of the policy.
        checkpoint_sha256: Hash of the weights, where the policy's own word for it is not to be taken.
        limits: For callers, where they are not those of the options.
        token: That callers must bring, where it is in no file.
        tracebacks: Where what the policy's code raises is kept; by default it is only logged.

    Raises:
        UsageError: If the files of its token, certificate or key cannot be used.
    """

    def __init__(
        self,
        policy: Policy | Callable[[], Policy],
        options: ServerOptions,
        *,
        checkpoint_sha256: str | None = None,
        limits: Limits | None = None,
        token: str = "",
        tracebacks: Tracebacks | None = None,
    ) -> None:
        self._tracebacks = tracebacks or Tracebacks()
        self._policy = policy
        self._limits = limits or Limits.of(options)
        self._options = options
        self._name = options.policy
        self._token = read_token(options.token_file, flag="--token-file") if options.token_file else token
        self._credentials = server_credentials(options.tls_cert, options.tls_key, options.client_ca)
        self._checkpoint_sha256 = checkpoint_sha256
        self.metrics: MetricsServer | None = None
        self.also: list[Address] = []
        self._fronts: list[Front] = []
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
            UsageError: If an address is none, or cannot be listened at, or would let in everybody of a network.
        """
        wanted = [Address.listening(address) for address in addresses]
        metrics = metrics_address(self._options.metrics) if self._options.metrics else None
        others = [FrontSettings.parse(text) for text in self._options.also]
        self._check_reach(wanted, others, metrics)
        self._hosted: asyncio.Future[HostedPolicy[Runner]] = asyncio.get_running_loop().create_future()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self._health = Health(self._limits.watchers)
        self._rollouts = Rollouts(self._hosted, self.stats, self._limits, self._health)
        self._framed = FramedListener(self._rollouts.rollout, self._token, self._limits)
        await self._health.tell(serving=False)
        guards = [TokenCheck(self._token)] if self._token else []
        own = self._limits.channel_options()
        options = [*(option for option in SERVER_OPTIONS if option[0] not in dict(own)), *own]
        self._server = grpc.aio.server(options=options, interceptors=guards)
        self._server.add_generic_rpc_handlers(self._rollouts.handlers())
        reflection.enable_server_reflection([SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        fronts = [self._front(settings) for settings in others]
        try:
            bound = [bind(self._server, address, self._credentials) for address in wanted]
            if metrics is not None:  # last, so that nothing is left of it where listening fails
                self.metrics = MetricsServer(self.stats, metrics, policy=self._name)
            for made in fronts:
                self.also.append(await made.listen())
                self._fronts.append(made)
            await self._framed.listen(bound)  # before gRPC lets anybody in: who finds it finds both
        except BaseException:
            await self._close_fronts()
            await discard(self._server)
            raise
        await self._server.start()
        self._sweeping = asyncio.create_task(self._rollouts.sweep(PeerLimit(bound, self._limits.most_of_a_peer)))
        return bound

    def _front(self, settings: FrontSettings) -> Front:
        return front(
            settings,
            self._rollouts.hosted,
            self._rollouts,
            token=self._token,
            most_bytes=self._limits.message_bytes + 2 * MAX_EXTRA_BYTES,
            tls=tls_context(self._options.tls_cert, self._options.tls_key, self._options.client_ca),
        )

    async def _close_fronts(self) -> None:
        while self._fronts:
            await self._fronts.pop().close()

    def _check_reach(
        self, addresses: Sequence[Address], others: Sequence[FrontSettings], metrics: Address | None
    ) -> None:
        insecure = self._options.insecure
        for other in others:
            check_reach(
                other.address,
                who=f"{other.wire}'s wire",
                secret=bool(self._token) and other.has_limits,
                insecure=insecure,
                advice="give `sparring serve --token-file`" if other.has_limits else "it has no limits for strangers",
            )
        for address in addresses:
            check_reach(
                address,
                who="the policy server",
                secret=bool(self._token) or self._options.client_ca is not None,
                insecure=insecure,
                advice="give `sparring serve --token-file`, or --client-ca with --tls-cert",
            )
        if metrics is not None:
            check_reach(metrics, who="its metrics", secret=False, insecure=insecure, advice="name no host")

    async def load(self) -> None:
        """Makes the policy, warms it up, and then says that it is served.

        Raises:
            UsageError: If it cannot be made, or fails in its warm-up.
        """
        policy, description = await asyncio.get_running_loop().run_in_executor(self._thread, self._make)
        runner: Runner = self._runner(policy)
        self._hosted.set_result(HostedPolicy(policy, description, runner, self.stats, tracebacks=self._tracebacks))
        await self._health.tell(serving=True)

    def _runner(self, policy: Policy) -> Runner:
        if getattr(policy, "concurrent", False):
            return ConcurrentRunner(
                policy,
                name=self._name,
                sessions=self._options.max_sessions,
                stats=self.stats,
                tracebacks=self._tracebacks,
            )
        return Batcher(
            policy,
            name=self._name,
            max_batch=self._options.max_batch,
            max_queue=self._options.max_sessions,
            max_queue_delay=self._options.max_queue_delay,
            expected=self._rollouts.playing,
            stats=self.stats,
            thread=self._thread,
            tracebacks=self._tracebacks,
        )

    def _make(self) -> tuple[Policy, pb.PolicyDescription]:
        """Makes the policy and says what it is; in its own thread."""
        code = code_of(self._policy, self._name, self._options.experts)  # before anything can be edited meanwhile
        policy = warm_policy(self._policy, self._name, tracebacks=self._tracebacks)
        told = described(policy, self._name, self._options.policy_args, self._checkpoint_sha256, code=code)
        told.max_sessions = min(told.max_sessions or self._options.max_sessions, self._options.max_sessions)
        return policy, told

    @property
    def description(self) -> pb.PolicyDescription:
        """What clients are told about the policy; there is something to tell when it is loaded."""
        return self._hosted.result().description

    async def drain(self, grace: float, *, rest: float = 0.0) -> None:
        """Starts nothing new, lets running episodes end for up to `grace` seconds, then stops.

        Args:
            grace: Seconds.
            rest: Seconds to wait after that for the policy to finish what it is in the middle of, where others have a
                use for it in this process.
        """
        assert self._server is not None, "start() comes first"
        await self._health.drain()
        self._rollouts.drain()
        await self._close_fronts()
        last = grace + _FAREWELL_SECONDS
        stopping = asyncio.gather(self._server.stop(last), self._framed.stop(last))
        done, _ = await asyncio.wait({stopping}, timeout=grace)
        if not done:
            self._rollouts.cut_off()
        await stopping
        self._sweeping.cancel()
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
