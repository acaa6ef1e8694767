"""What the callers of a policy server may take up of it: sessions, time and connections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from sparring.policy_server.options import ServerOptions
from sparring.protos.errors import SparringError
from sparring.protos.limits import MAX_EXTRA_BYTES
from sparring.protos.net.address import peer_host
from sparring.protos.net.health import MOST_WATCHERS

_SPARE_STREAMS: Final = 16
"""Streams of one connection beyond its sessions: whoever gets no session is told so, and does not wait in silence."""
_SPARE_CONNECTIONS: Final = 64
"""Connections that are no sessions: health checks, stats, clients that come and go."""


class ServerFull(SparringError):
    """The server holds as many sessions as it was told to, in all or of one peer."""


@dataclass(frozen=True)
class Limits:
    """How many may call at once, and how long the server waits for one that does.

    Attributes:
        sessions: The most at once.
        sessions_per_peer: The most at once from one address of a network; a unix socket is this machine's own.
        connections_per_peer: The most at once from one address of a network; 0: twice its sessions, and some.
        message_bytes: Of the longest message; a policy that needs more in an observation cannot be served.
        watchers: The most that watch its health at once, which takes no token.
        hello_seconds: For a stream's first message.
        idle_seconds: For each message after it, when the client has its answer.
        taking_seconds: For a client to take an answer.
        farewell_seconds: For a client to take the status that its stream ends with.
        sweep_seconds: Between two looks at who is late.
        handshake_seconds: For a connection to begin to speak gRPC.
        unused_seconds: For a connection without a call.
        keepalive_seconds: Between two pings of a connection.
        vanished_seconds: For the answer to a ping.
    """

    sessions: int = 256
    sessions_per_peer: int = 128
    connections_per_peer: int = 0
    message_bytes: int = 64 * 2**20
    watchers: int = MOST_WATCHERS
    hello_seconds: float = 30.0
    idle_seconds: float = 3600.0
    taking_seconds: float = 60.0
    farewell_seconds: float = 10.0
    sweep_seconds: float = 1.0
    handshake_seconds: float = 20.0
    unused_seconds: float = 120.0
    keepalive_seconds: float = 20.0
    vanished_seconds: float = 10.0

    @classmethod
    def of(cls, options: ServerOptions) -> Limits:
        """Returns those that a server's options say."""
        return cls(
            sessions=options.max_sessions,
            sessions_per_peer=options.max_sessions_per_peer,
            idle_seconds=options.idle_timeout,
            message_bytes=options.max_observation * 2**20,
        )

    @property
    def most_of_a_peer(self) -> int:
        """Connections at once of one address."""
        return self.connections_per_peer or 2 * self.sessions_per_peer + _SPARE_STREAMS

    @property
    def most_connections(self) -> int:
        """Connections at once, of whomever."""
        return 2 * self.sessions + _SPARE_CONNECTIONS

    def channel_options(self) -> list[tuple[str, int]]:
        """Returns what gRPC itself is told, beside what all servers tell it."""
        return [
            ("grpc.max_receive_message_length", self.message_bytes + 2 * MAX_EXTRA_BYTES),  # names and headers
            # A client whose machine vanished sends no goodbye; pings notice within half a minute. Data need not flow.
            ("grpc.keepalive_time_ms", round(1000 * self.keepalive_seconds)),
            ("grpc.keepalive_timeout_ms", round(1000 * self.vanished_seconds)),
            ("grpc.http2.ping_timeout_ms", round(1000 * self.vanished_seconds)),
            ("grpc.http2.max_pings_without_data", 0),
            # Who connects and says nothing, or nothing more.
            ("grpc.server_handshake_timeout_ms", round(1000 * self.handshake_seconds)),
            ("grpc.max_connection_idle_ms", round(1000 * self.unused_seconds)),
            ("grpc.max_concurrent_streams", self.sessions + _SPARE_STREAMS),
            ("grpc.max_allowed_incoming_connections", self.most_connections),
        ]


class OpenSessions:
    """Counts who has how many sessions.

    Args:
        limits: How many there may be.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()

    def add(self, peer: str) -> str:
        """Counts one more of a caller, known to gRPC as `peer`; returns what to remove it by.

        Raises:
            ServerFull: If there may be no more.
        """
        host = peer_host(peer)
        if self._open.total() >= self._limits.sessions:
            raise ServerFull(
                f"the policy server holds {_sessions(self._limits.sessions)} and takes no more; whoever started it "
                "makes room for others with `sparring serve --max-sessions`."
            )
        if host and self._open[host] >= self._limits.sessions_per_peer:
            raise ServerFull(
                f"the policy server holds {_sessions(self._limits.sessions_per_peer)} of your address and takes no "
                "more of it; whoever started it makes room for others with `sparring serve --max-sessions-per-peer`."
            )
        self._open[host] += 1
        return host

    def remove(self, host: str) -> None:
        """Counts one that has ended."""
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]


def _sessions(count: int) -> str:
    return f"{count} session" if count == 1 else f"{count} sessions"
