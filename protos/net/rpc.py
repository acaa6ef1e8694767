"""What every gRPC peer here does alike: options, addresses, and how the end of a stream is told."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from typing import Any, Final

import grpc

from sparring.protos.advice import Hint, shortened
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address
from sparring.protos.tensor import MAX_TENSOR_BYTES

_PROBE_SECONDS: Final = 1.0
_LONGEST_DETAILS: Final = 1500
"""Characters."""
_MOST_DETAIL_BYTES: Final = 6000
"""On the wire, where characters that are not ASCII take up to twelve each, and headers hold about eight kilobytes."""

_MESSAGE_SIZE: Final = [
    ("grpc.max_receive_message_length", MAX_TENSOR_BYTES),
    ("grpc.max_send_message_length", MAX_TENSOR_BYTES),
]

CLIENT_OPTIONS: Final = [
    *_MESSAGE_SIZE,
    # A peer whose machine vanished sends no goodbye; pings notice within half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # the one that later releases of gRPC go by; there it is a minute
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Two clients in one process must not share a connection: one slow reader would stall the other.
    ("grpc.use_local_subchannel_pool", 1),
    # What clusters have in http_proxy leads to the web, and to no node of theirs. Who needs a proxy says grpc_proxy.
    ("grpc.enable_http_proxy", int("grpc_proxy" in os.environ)),
]

SERVER_OPTIONS: Final = [
    *_MESSAGE_SIZE,
    # A second server on a taken port must fail, not share the port's clients with the first.
    ("grpc.so_reuseport", 0),
    # Clients ping while they wait; that is not abuse.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


# A server that stops ends the streams of those who have been told and are slow to leave; gRPC would warn of each.
logging.getLogger("grpc._cython.cygrpc").addFilter(lambda record: "due to server stop" not in record.getMessage())


class StreamEnded(grpc.RpcError):
    """A stream that ended where an answer was due, with the status it ended with."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        """Returns the status code, as every RpcError does."""
        return self._code

    def details(self) -> str:
        """Returns the status message, as every RpcError does."""
        return self._details


def status_message(sentence: str) -> str:
    """Makes a sentence fit the status of a stream: a few kilobytes, in characters that have a UTF-8 form."""
    clean = sentence.encode("utf-8", "replace").decode("utf-8").replace("\x00", "?")
    kept = size = 0
    for character in clean[:_LONGEST_DETAILS]:
        size += 1 if character.isascii() and character.isprintable() else 3 * len(character.encode())
        if size > _MOST_DETAIL_BYTES:
            break
        kept += 1
    return clean if kept == len(clean) else f"{shortened(clean, kept)} ... (cut; the server's log has it all)"


def ignore_poller_races(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Keeps harmless races out of the log.

    grpc.aio has one poller for the loops of all threads: it wakes each of them and only one finds something to read,
    and that may be for a loop that was closed in the meantime.
    """
    if "PollerCompletionQueue" not in repr(context.get("handle")):
        loop.default_exception_handler(context)


async def discard(server: grpc.aio.Server) -> None:
    """Gives back the addresses of a server that is not to be started after all.

    gRPC does that for servers that were started only; others listen for as long as their process lives.
    """
    await server.start()
    await server.stop(None)


def bind(server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None = None) -> Address:
    """Adds an address to a server and returns it as clients dial it: with the port it really has, and with TLS.

    Args:
        server: That is to listen.
        address: Where.
        credentials: Encrypt what comes over TCP with these; a unix socket stays plain, it leaves no machine.

    Raises:
        UsageError: If the address is taken or not an address of this machine.
    """
    if credentials is None and address.is_encrypted:
        raise UsageError(f"cannot listen at {address}: TLS needs a certificate and its key.")
    # gRPC would say so, too, on standard error; and from a unix socket it would drive out who listens there.
    if _is_taken(address):
        raise UsageError(f"cannot listen at {address}: it is taken. Give another with {Hint('listen')}.")
    try:
        if credentials is None or address.is_unix:
            port = server.add_insecure_port(address.target)
        else:
            port = server.add_secure_port(address.target, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise UsageError(
            f"cannot listen at {address}: it is taken, or not an address of this machine. Give another with "
            f"{Hint('listen')}."
        )
    if address.is_unix:
        return address
    bound = address.with_port(port)
    return bound if credentials is None else bound.with_tls()


def _is_taken(address: Address) -> bool:
    """Returns whether somebody listens there already; where it cannot be told, gRPC may try."""
    if address.is_unix:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_PROBE_SECONDS)
            try:
                probe.connect(address.path)
            except OSError:
                return False
            return True
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, place in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC: who has gone does not count
            try:
                probe.bind(place)
                probe.listen()  # with reuse, a second one is told here only
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False
