"""The server's stats for Prometheus: `--metrics :9090`."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

if TYPE_CHECKING:
    from prometheus_client.metrics_core import HistogramMetricFamily, Metric

_BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128)


class MetricsServer:
    """Answers a Prometheus server's questions over HTTP, in a thread of its own.

    Args:
        stats: What to tell.
        address: Of TCP.
        policy: What is hosted, told as a label.

    Raises:
        UsageError: If the library is missing, or the address cannot be listened at.
    """

    def __init__(self, stats: StatsCounter, address: Address, *, policy: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
            from prometheus_client.process_collector import ProcessCollector
        except ImportError as error:
            raise UsageError(
                f"{Hint('metrics')} needs the prometheus_client library: pip install 'sparring[metrics]'"
            ) from error
        registry = CollectorRegistry()
        registry.register(_Collector(stats.to_message, policy))
        ProcessCollector(registry=registry)
        try:
            self._server, self._thread = start_http_server(address.port, address.host, registry)
        except OSError as error:
            raise UsageError(
                f"metrics cannot be served at '{address}': {_reason(error)}. Give another {Hint('metrics')}."
            ) from error
        self.address = address.with_port(self._server.server_port)

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


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
