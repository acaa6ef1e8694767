"""The client of a policy server: for env workers, and for anyone else who has observations and wants actions.

    with PolicyClient("gpu-box:50051") as client, client.open(offer) as session:
        session.start(task="reach-v3", instruction="Reach a goal position", seed=0)
        chunk = session.act({"observation.state": state}, step=0)

Synchronous and typed; every wait has a deadline; importing it never imports torch. A server with TLS is at
`tls://gpu-box:50051`; one that wants a token gets it with `PolicyClient(..., token=...)`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

import grpc

from sparring.policy_server.bridges.wires import LAYOUTS, is_plainly_foreign
from sparring.policy_server.errors import (
    PolicyChanged,
    PolicyDenied,
    PolicyFailed,
    PolicyFull,
    PolicyInterrupted,
    PolicyRefused,
    PolicyUnanswered,
    PolicyUnreachable,
    translated,
)
from sparring.policy_server.framed_session import FramedSession
from sparring.policy_server.options import Option, ServerOptions, server_options
from sparring.policy_server.session_client import Description, PolicyProgram, RemoteSession, serialized
from sparring.protos import policy_pb2 as pb
from sparring.protos.chunk import Chunk
from sparring.protos.conditions import Conditions
from sparring.protos.errors import SparringError
from sparring.protos.net.access import Identity
from sparring.protos.net.address import Address
from sparring.protos.net.connection import Connection
from sparring.protos.net.rpc import StreamEnded, ignore_poller_races
from sparring.protos.policy_pb2_grpc import PolicyStub
from sparring.protos.spec import Offer, PolicySpec

if TYPE_CHECKING:  # exists in the type stubs only
    from sparring.protos.policy_pb2_grpc import PolicyAsyncStub

__all__ = [
    "LAYOUTS",
    "Chunk",
    "Description",
    "Identity",
    "Offer",
    "Option",
    "PolicyChanged",
    "PolicyClient",
    "PolicyDenied",
    "PolicyFailed",
    "PolicyFull",
    "PolicyInterrupted",
    "PolicyProgram",
    "PolicyRefused",
    "PolicySpec",
    "PolicyUnanswered",
    "PolicyUnreachable",
    "RemoteSession",
    "ServerOptions",
    "fetch_stats",
    "is_plainly_foreign",
    "server_options",
]

T = TypeVar("T")

_CLOSING_SECONDS: Final = 1.0
_STATUS_SECONDS: Final = 0.01


class _Loop:
    """Drives a private event loop from synchronous code.

    grpc.aio is half again as fast on streams as grpc's synchronous client, which passes every
    message through two more threads. Where the caller's thread already runs a loop (a notebook), a
    second one cannot run in it, so it moves to a thread of its own.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(ignore_poller_races)
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._thread is None and asyncio._get_running_loop() is not None:
            self._thread = threading.Thread(target=self._loop.run_forever, name="policy-client", daemon=True)
            self._thread.start()
        if self._thread is None:
            return self._loop.run_until_complete(coroutine)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self.run(_finish_others())
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()


async def _finish_others() -> None:
    """Lets grpc's own tasks see the end of their calls, so that the loop closes on none of them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=_CLOSING_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


class PolicyClient:
    """A connection to a policy server.

    Args:
        address: `host:port`, `tls://host:port` or `unix:///path`.
        timeout: Seconds to wait for the server to be reached, and for each answer.
        token: The secret of a server that wants one (its `--token-file`).
        ca: Content of a PEM file with the certificates to trust; giving it turns TLS on. `tls://` without it trusts
            what this machine trusts.
        identity: A certificate and its key, for a server that wants to see one (its `--client-ca`).

    Raises:
        UsageError: If the address, the token or the CA is not one, or TLS is asked for on a unix socket.
    """

    def __init__(
        self,
        address: str | Address,
        *,
        timeout: float = 60.0,
        token: str = "",
        ca: bytes = b"",
        identity: Identity | None = None,
    ) -> None:
        self.address = Address.parse(address)
        self._connection = Connection(self.address, token.strip(), ca, identity)
        self.timeout = timeout
        self._loop = _Loop()
        self._channel = self._loop.run(_channel(self._connection))
        self._sessions: WeakSet[RemoteSession] = WeakSet()

    def describe(self) -> Description:
        """Returns what is hosted there.

        Raises:
            PolicyDenied: If token or TLS are not what the server wants.
            PolicyRefused: If what it says of itself cannot be.
            PolicyUnreachable: If nobody answers in time.
        """
        stub: PolicyAsyncStub = PolicyStub(self._channel)  # type: ignore[assignment]

        async def ask() -> pb.PolicyDescription:
            return await stub.Describe(
                pb.DescribeRequest(), timeout=self.timeout, wait_for_ready=True, metadata=self._connection.metadata
            )

        try:
            message = self._loop.run(self._unless_at_odds(ask()))
        except grpc.RpcError as error:
            raise translated(error, self.address, self.timeout) from error
        try:
            return Description.from_message(message)
        except SparringError as error:
            raise PolicyRefused(f"the server at {self.address} describes what cannot be: {error.sentence}") from error

    def open(
        self,
        offer: Offer,
        *,
        benchmark: str = "",
        client: str = "",
        connect_timeout: float | None = None,
        conditions: Conditions | None = None,
    ) -> RemoteSession:
        """Opens a session and says hello.

        Args:
            offer: What the policy may look at, and the action space.
            benchmark: Name of the benchmark, empty for a robot.
            client: Who calls, for the server's log.
            connect_timeout: Seconds to wait for the server's welcome, where there are others to turn to; a server that
                is not there is then an error at once. None: as long as for any answer.
            conditions: By what episodes are played, for policies that depend on it; None: that is not said.

        Raises:
            PolicyRefused: If the policy and the offer do not fit together, with both sides as a table.
            PolicyDenied: If token or TLS are not what the server wants.
            PolicyUnreachable: If nobody answers in time.
        """
        seconds = self.timeout if connect_timeout is None else connect_timeout
        hello = {"benchmark": benchmark, "client": client, "seconds": seconds, "conditions": conditions}
        framed = FramedSession.connected(self._connection, self.timeout)
        if framed is not None:
            try:
                return self._greeted(framed, offer, hello)
            except PolicyUnreachable:
                if not framed.is_lost:
                    raise  # else it died just now: who comes after it is waited for below
        session = self._grpc_session(wait=connect_timeout is None)
        try:
            session._connect(self._unless_at_odds, seconds)
        except SparringError:
            session.close()
            raise
        return self._greeted(session, offer, hello)

    def _greeted(self, session: RemoteSession, offer: Offer, hello: Mapping[str, Any]) -> RemoteSession:
        try:
            session._greet(offer, **hello)
        except SparringError:
            session.close()
            raise
        self._sessions.add(session)
        return session

    def _grpc_session(self, *, wait: bool) -> _GrpcSession:
        # The stub's own method, but for observations that are written already.
        rollout = self._channel.stream_stream(
            "/sparring.policy.v1.Policy/Rollout",
            request_serializer=serialized,
            response_deserializer=pb.RolloutResponse.FromString,
        )

        async def call() -> Any:
            return rollout(wait_for_ready=wait, metadata=self._connection.metadata)

        return _GrpcSession(self.address, self._loop.run(call()), self._loop, self.timeout)

    async def _unless_at_odds(self, connecting: Coroutine[Any, Any, T]) -> T:
        """Waits for something that needs the connection, and not in vain where TLS can never come about."""
        wanted = asyncio.ensure_future(connecting)
        fault = asyncio.ensure_future(self._connection.fault(self._channel))
        try:
            await asyncio.wait({wanted, fault}, return_when=asyncio.FIRST_COMPLETED)
            if not wanted.done():
                raise PolicyDenied(fault.result())
            return wanted.result()
        finally:
            wanted.cancel()
            fault.cancel()
            await asyncio.gather(wanted, fault, return_exceptions=True)

    def close(self) -> None:
        """Closes the connection and every session on it."""
        for session in self._sessions:
            session.close()
        self._loop.run(self._channel.close(None))
        self._loop.close()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _GrpcSession(RemoteSession):
    """One stream of gRPC."""

    def __init__(self, address: Address, call: Any, loop: _Loop, timeout: float) -> None:
        super().__init__(f"the server at {address}")
        self._address = address
        self._call = call
        self._loop = loop
        self._timeout = timeout
        self._status: tuple[grpc.StatusCode | None, str | None] = (None, None)
        call.add_done_callback(self._remember_status)

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended, whoever ended it, as far as this side has heard."""
        self._loop.run(asyncio.sleep(0))  # what gRPC has heard is told to the loop, which runs only when it is asked to
        return bool(self._call.done())

    def close(self) -> None:
        """Ends the stream."""
        self._call.cancel()

    async def _connected(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self._call.wait_for_connection()

    def _connect(self, guard: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]], seconds: float) -> None:
        try:
            # Cancelling a call that was never connected does not wake its writer, so this wait has a timer of its own.
            self._loop.run(guard(self._connected(seconds)))
        except grpc.RpcError as error:
            raise translated(error, self._address, seconds) from error
        except (TimeoutError, asyncio.CancelledError):
            raise translated(StreamEnded(grpc.StatusCode.DEADLINE_EXCEEDED, ""), self._address, seconds) from None

    def _answer(self, request: pb.RolloutRequest | bytes, seconds: float | None) -> pb.RolloutResponse:
        seconds = self._timeout if seconds is None else seconds
        try:
            return self._loop.run(self._write_and_read(request, seconds))
        except grpc.RpcError as error:
            raise translated(error, self._address, seconds) from error

    async def _write_and_read(self, request: pb.RolloutRequest | bytes, seconds: float) -> pb.RolloutResponse:
        # A timer that cancels the call is a tenth of the price of asyncio.timeout, on the hottest path there is.
        deadline = asyncio.get_running_loop().call_later(seconds, self._call.cancel)
        due = deadline.when()
        try:
            await self._call.write(request)
            answer = await self._call.read()
        except asyncio.InvalidStateError:
            answer = grpc.aio.EOF  # the stream had ended before this message
        except asyncio.CancelledError:
            if not self._call.cancelled():
                raise
            answer = grpc.aio.EOF
        except grpc.RpcError:
            raise await self._server_status() from None
        finally:
            deadline.cancel()
        if answer is not grpc.aio.EOF:
            return answer  # type: ignore[no-any-return]
        if self._call.cancelled() and asyncio.get_running_loop().time() >= due:
            raise StreamEnded(grpc.StatusCode.DEADLINE_EXCEEDED, "")
        raise StreamEnded(await self._call.code(), await self._call.details())

    async def _server_status(self) -> StreamEnded:
        """Returns why a message could not be written.

        A write to a stream that the server has just ended is an internal error to gRPC, which it puts over the status
        that the server gave, or in the place of one that is about to arrive.
        """
        code, details = self._status
        deadline = asyncio.get_running_loop().time() + _CLOSING_SECONDS
        while code in (None, grpc.StatusCode.INTERNAL) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_STATUS_SECONDS)
            code, details = await self._call.code(), await self._call.details()
        return StreamEnded(code or grpc.StatusCode.INTERNAL, details or "")

    def _remember_status(self, call: Any) -> None:
        self._status = (_at_once(call.code()), _at_once(call.details()))


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T | None:
    """Returns the result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    return None


async def fetch_stats(
    address: str | Address, *, timeout: float, token: str = "", ca: bytes = b"", identity: Identity | None = None
) -> pb.ServerStats:
    """Returns what a server has done so far; for callers that have an event loop.

    Args:
        address: As of a `PolicyClient`, and so are the rest.
        timeout: Seconds to wait for the answer; a server that is not there is an error at once.
        token: Of a server that wants one.
        ca: Certificates to trust.
        identity: To show there.

    Raises:
        PolicyRefused: If it is a server that keeps no stats.
        PolicyUnreachable: If it is not there, or does not answer in time.
    """
    connection = Connection(Address.parse(address), token.strip(), ca, identity)
    channel = connection.channel()
    stub: PolicyAsyncStub = PolicyStub(channel)  # type: ignore[assignment]
    try:
        return await stub.Stats(pb.StatsRequest(), timeout=timeout, metadata=connection.metadata)
    except grpc.RpcError as error:
        raise translated(error, connection.address, timeout) from error
    finally:
        await channel.close()


async def _channel(connection: Connection) -> grpc.aio.Channel:
    return connection.channel()
