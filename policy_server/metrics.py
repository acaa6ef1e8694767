"""The server's stats for Prometheus: `--metrics :9090`."""

from __future__ import annotations

import errno
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address
from sparring.protos.net.bounded_listener import BoundedListener, listeners

if TYPE_CHECKING:
    from prometheus_client.metrics_core import HistogramMetricFamily, Metric

log = logging.getLogger(__name__)

_MOST_CONNECTIONS: Final = 16
"""At once: each takes a thread, and a file descriptor of those that sessions need."""
_MOST_OF_A_PEER: Final = 8
"""Of these, from one address."""
_REQUEST_SECONDS: Final = 10.0
"""For a request and its answer; a connection has one."""
_BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128)


class MetricsServer:
    """Answers a Prometheus server's questions over HTTP, in threads of its own.

    There is no token, and whoever can reach it may ask: so many at once, and each for so long.

    Args:
        stats: What to tell.
        address: Of TCP.
        policy: What is hosted, told as a label.

    Raises:
        UsageError: If the library is missing, or the address cannot be listened at.
    """

    def __init__(self, stats: StatsCounter, address: Address, *, policy: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, make_wsgi_app
            from prometheus_client.process_collector import ProcessCollector
        except ImportError as error:
            raise UsageError(
                f"{Hint('metrics')} needs the prometheus_client library: pip install 'sparring[metrics]'"
            ) from error
        registry = CollectorRegistry()
        registry.register(_Collector(stats.to_message, policy))
        ProcessCollector(registry=registry)
        try:
            found = listeners(address, most=_MOST_CONNECTIONS, most_of_a_peer=_MOST_OF_A_PEER)
        except OSError as error:
            raise UsageError(
                f"metrics cannot be served at '{address}': {_reason(error)}. Give another {Hint('metrics')}."
            ) from error
        self.address = address.with_port(found[0].getsockname()[1])
        self._servers = [_Server(listening, make_wsgi_app(registry)) for listening in found]
        self._threads = [
            threading.Thread(target=one.serve_forever, name="metrics", daemon=True) for one in self._servers
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stops answering."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each connection in a thread of its own, and lets go of those that take too long."""

    daemon_threads = True

    def __init__(self, listening: BoundedListener, app: Any) -> None:
        super().__init__(listening.getsockname()[:2], _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = listening.getsockname()[:2]
        self.setup_environ()
        self.set_app(app)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        alarm = threading.Timer(_REQUEST_SECONDS, _cut, (request,))
        alarm.daemon = True
        alarm.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            alarm.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection to the metrics failed", exc_info=True)


class _Request(WSGIRequestHandler):
    """One question, of which nothing is logged."""

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is taken"
    return error.strerror or str(error)


class _Collector:
    """Turns the stats into metrics when they are asked for; in between nothing is done for them."""

    def __init__(self, read: Callable[[], pb.ServerStats], policy: str) -> None:
        self._read = read
        self._policy = policy

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        stats = self._read()
        yield InfoMetricFamily("sparring_policy", "What is hosted.", {"policy": self._policy})
        yield GaugeMetricFamily("sparring_policy_sessions", "Sessions that are open.", stats.sessions)
        yield CounterMetricFamily("sparring_policy_episodes", "Episodes started.", stats.episodes)
        yield CounterMetricFamily(
            "sparring_policy_observations", "Observations that forward passes were made for.", stats.observations
        )
        yield _spread(
            HistogramMetricFamily(
                "sparring_policy_queue_wait_seconds", "From an observation's arrival to the start of its forward pass."
            ),
            stats.queue_wait_seconds,
        )
        yield _spread(
            HistogramMetricFamily("sparring_policy_inference_seconds", "Time of a forward pass."),
            stats.inference_seconds,
        )
        sizes = HistogramMetricFamily("sparring_policy_batch_size", "Observations in a forward pass.")
        sizes.add_metric([], _size_buckets(stats), stats.observations)
        yield sizes
        errors = CounterMetricFamily(
            "sparring_policy_errors", "Streams that ended with an error, by kind.", labels=["kind"]
        )
        for kind, count in sorted(stats.errors.items()):
            errors.add_metric([kind], count)
        yield errors


def _spread(family: HistogramMetricFamily, histogram: pb.Histogram) -> HistogramMetricFamily:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    below = list(itertools.accumulate(histogram.counts))
    # Every other bound is fine enough for a dashboard, and half of what Prometheus has to keep.
    shown = [place for place in range(len(bounds)) if place % 2 == 0 or place == len(bounds) - 1]
    family.add_metric([], [(bounds[place], below[place]) for place in shown], histogram.sum)
    return family


def _size_buckets(stats: pb.ServerStats) -> list[tuple[str, int]]:
    buckets = [
        (str(bound), sum(count for size, count in stats.batches.items() if size <= bound)) for bound in _BATCH_BOUNDS
    ]
    return [*buckets, ("+Inf", sum(stats.batches.values()))]
