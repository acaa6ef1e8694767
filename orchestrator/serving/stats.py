"""What the policy servers did for a run: batches, waits, forward passes, errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import json_format

from sparring.policy_server.client import fetch_stats
from sparring.protos import policy_pb2 as pb
from sparring.protos.advice import FLAGS, Advice, Dialect, render
from sparring.protos.errors import SparringError
from sparring.protos.net.access import Identity
from sparring.protos.net.address import Address

log = logging.getLogger(__name__)

HOSTED: Final = "hosted"
"""Name of the server that a run hosts itself; its address is another one in every execution."""
_EVERY_SECONDS: Final = 5.0
"""How often servers are asked: what one has done since is lost when it is killed."""
_ANSWER_SECONDS: Final = 5.0
_MOST: Final = 2**48
"""More seconds, rows or passes than any server has seen; the sums of several still fit their fields."""


@dataclass(frozen=True)
class ServerLoad:
    """What the policy servers of a run do.

    Attributes:
        sessions: Open now; None: not known.
        waiting: Observations that wait for a forward pass now; None: not known.
        batches: Rows in a forward pass, and how many passes of that size there were in this run.
        summary: What run.json says about the servers, up to now.
    """

    sessions: int | None
    waiting: int | None
    batches: Mapping[int, int]
    summary: Mapping[str, Any]

    @classmethod
    def noted(cls, counts: Mapping[str, Any] | None) -> ServerLoad | None:
        """Returns what is known from what `StatsWatch.to_json` gave; None if that is nothing."""
        try:
            parts = [json_format.ParseDict(stats, pb.ServerStats()) for stats in (counts or {}).values()]
        except (json_format.ParseError, AttributeError, TypeError):  # of somebody else's folder
            return None
        if not parts or not all(map(_is_sound, parts)):
            return None
        whole = total(parts)
        return cls(None, None, dict(whole.batches), summarized(whole))


class StatsWatch:
    """Asks the policy servers what they have done, from the start of a run to its end.

    Servers count for whoever they serve, from their own start; a run's stats are the difference between its end and
    its start. Where another run uses the same server at the same time, both runs' stats have what was done for both.

    Args:
        addresses: Of the servers, by the name that they have in the stats.
        earlier: Stats of earlier executions of this run, as `to_json` gave them.
        token: Of servers that want one.
        ca: Certificates to trust there.
        identity: To show there.
        on_warning: Gets each sentence that the servers have to say about this run, once.
    """

    def __init__(
        self,
        addresses: Mapping[str, str | Address],
        *,
        earlier: Mapping[str, Any] | None = None,
        token: str = "",
        ca: bytes = b"",
        identity: Identity | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._addresses = addresses
        self._token = token
        self._ca = ca
        self._identity = identity
        self._on_warning = on_warning or (lambda sentence: log.warning("%s", Advice(sentence)))
        self._earlier = {
            name: json_format.ParseDict(stats, pb.ServerStats()) for name, stats in (earlier or {}).items()
        }
        self._first: dict[str, pb.ServerStats] = {}
        self._last: dict[str, dict[str, pb.ServerStats]] = {}
        self._warned: set[str] = set()
        self._began = time.monotonic()

    def move(self, addresses: Mapping[str, str | Address], ca: bytes) -> None:
        """Asks servers elsewhere from now on, which have taken the places of those before."""
        self._addresses, self._ca = addresses, ca

    async def begin(self) -> None:
        """Takes down where the servers' stats stand now."""
        self._began = time.monotonic()
        await self._ask_all(begins=True)

    async def run(self, keep: Callable[[], None]) -> None:
        """Asks again and again, until cancelled.

        Args:
            keep: Called after each time, to keep what is known then, should the run be killed.
        """
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await self._ask_all()
            self._warn()
            keep()

    async def end(self) -> None:
        """Asks for the last time."""
        await self._ask_all()
        self._warn()

    def _warn(self) -> None:
        """Says what the servers have to say about this run, each sentence once."""
        for stats in self._by_server().values():
            for sentence in sorted(stats.warnings.keys() - self._warned):
                self._warned.add(sentence)
                self._on_warning(sentence)

    def to_json(self) -> dict[str, Any]:
        """Returns the stats of this execution and earlier ones, by server, for the next one to go on from."""
        return {name: json_format.MessageToDict(stats) for name, stats in self._by_server().items()}

    def summary(self, dialect: Dialect = FLAGS) -> dict[str, Any] | None:
        """Returns what run.json says about the servers; None if none of them keeps stats.

        Args:
            dialect: In whose words warnings give advice; those of the command are for everybody.
        """
        by_server = self._by_server()
        if not by_server:
            return None
        document = summarized(total(list(by_server.values())), dialect)
        if len(by_server) > 1:
            document["servers"] = {name: summarized(stats, dialect) for name, stats in sorted(by_server.items())}
        return document

    def load(self) -> ServerLoad | None:
        """Returns what the servers do, as they were heard last; None if none of them keeps stats."""
        by_server = self._by_server()
        if not by_server:
            return None
        newest = [list(instances.values())[-1] for instances in self._last.values()]
        whole = total(list(by_server.values()))
        sessions, waiting = sum(stats.sessions for stats in newest), sum(stats.waiting for stats in newest)
        return ServerLoad(sessions, waiting, dict(whole.batches), summarized(whole))

    async def _ask_all(self, *, begins: bool = False) -> None:
        await asyncio.gather(*(self._ask(name, address, begins) for name, address in self._addresses.items()))

    async def _ask(self, name: str, address: str | Address, begins: bool) -> None:
        try:
            stats = await fetch_stats(
                address, timeout=_ANSWER_SECONDS, token=self._token, ca=self._ca, identity=self._identity
            )
        except SparringError as error:  # not there just now, or it keeps none; the run does not need them
            log.debug("no stats of %s: %s", name, error)
            return
        self._hear(name, stats, begins)

    def heard(self, name: str, stats: pb.ServerStats) -> None:
        """Takes down what one that cannot be asked, because it is in this process, has done."""
        self._hear(name, stats, begins=False)
        self._warn()

    def _hear(self, name: str, stats: pb.ServerStats, begins: bool) -> None:
        if not _is_sound(stats):
            log.debug("the stats of %s are not taken: they are not finite, or make no sense", name)
            return
        # The first that is heard of a server is where its stats stand; but one that was started while we watched
        # began at zero, for us, too. Its age is held against now, as an answer may be long on its way and the server
        # has aged meanwhile; but whoever answers when we begin was there before, however young.
        heard = any(stats.instance in instances for instances in self._last.values())
        if not heard and (begins or stats.seconds > time.monotonic() - self._began):
            self._first[stats.instance] = stats
        self._last.setdefault(name, {})[stats.instance] = stats

    def _by_server(self) -> dict[str, pb.ServerStats]:
        parts_of = {name: [stats] for name, stats in self._earlier.items()}
        counted: set[str] = set()  # a server may have been given by two of its names
        for name, instances in self._last.items():
            new = {instance: stats for instance, stats in instances.items() if instance not in counted}
            counted |= new.keys()
            parts = [_combined(stats, self._first.get(instance), -1) for instance, stats in new.items()]
            parts_of.setdefault(name, []).extend(parts)
        return {name: _sum(parts, in_turn=True) for name, parts in parts_of.items()}


def _is_sound(stats: pb.ServerStats) -> bool:
    """Returns whether a run can be written down with what a server, maybe somebody else's, says of itself."""
    histograms = (stats.queue_wait_seconds, stats.inference_seconds)
    numbers = [stats.seconds, *(number for h in histograms for number in (h.sum, *h.bounds))]
    counts = [stats.episodes, stats.observations, *stats.batches, *(n for h in histograms for n in h.counts)]
    counts += [n for by_name in (stats.batches, stats.errors, stats.warnings) for n in by_name.values()]
    return (
        all(0 <= number < _MOST for number in numbers)  # which NaN is not
        and all(number < _MOST for number in counts)
        and all(len(h.counts) in (0, len(h.bounds) + 1) for h in histograms)
    )


def total(stats: Sequence[pb.ServerStats]) -> pb.ServerStats:
    """Adds up the stats of several servers that served at the same time."""
    return _sum(stats, in_turn=False)


def _sum(parts: Sequence[pb.ServerStats], *, in_turn: bool) -> pb.ServerStats:
    result = pb.ServerStats()
    for part in parts:
        seconds = result.seconds + part.seconds if in_turn else max(result.seconds, part.seconds)
        result = _combined(part, result, 1)
        result.seconds = seconds
    return result


def _combined(one: pb.ServerStats, other: pb.ServerStats | None, sign: int) -> pb.ServerStats:
    """Adds the other to the one, or subtracts it; nothing is less than none, whatever a server says."""
    if other is None:
        other = pb.ServerStats()
    return pb.ServerStats(
        seconds=max(0.0, one.seconds + sign * other.seconds),
        episodes=max(0, one.episodes + sign * other.episodes),
        observations=max(0, one.observations + sign * other.observations),
        batches=_counts(one.batches, other.batches, sign),
        queue_wait_seconds=_histogram(one.queue_wait_seconds, other.queue_wait_seconds, sign),
        inference_seconds=_histogram(one.inference_seconds, other.inference_seconds, sign),
        errors=_counts(one.errors, other.errors, sign),
        warnings=_counts(one.warnings, other.warnings, sign),
    )


def _counts(one: Mapping[Any, int], other: Mapping[Any, int], sign: int) -> dict[Any, int]:
    keys = {**one, **other}
    counts = {key: max(0, one.get(key, 0) + sign * other.get(key, 0)) for key in keys}
    return {key: count for key, count in counts.items() if count}


def _histogram(one: pb.Histogram, other: pb.Histogram, sign: int) -> pb.Histogram:
    if not other.counts:
        return one
    if list(one.bounds) != list(other.bounds):  # servers of two releases: what can still be told is the sum
        return pb.Histogram(sum=one.sum + sign * other.sum)
    counts = [max(0, a + sign * b) for a, b in zip(one.counts, other.counts, strict=True)]
    return pb.Histogram(bounds=one.bounds, counts=counts, sum=one.sum + sign * other.sum)


def summarized(stats: pb.ServerStats, dialect: Dialect = FLAGS) -> dict[str, Any]:
    """Reduces stats to the numbers that people want to see."""
    batches = sum(stats.batches.values())
    return {
        "seconds": stats.seconds,
        "episodes": stats.episodes,
        "observations": stats.observations,
        "observations_per_second": _ratio(stats.observations, stats.seconds),
        "batches": batches,
        "batch_size": {"mean": _ratio(stats.observations, batches), "max": max(stats.batches, default=None)},
        "queue_wait_s": _spread(stats.queue_wait_seconds),
        "inference_s": {"total": stats.inference_seconds.sum, **_spread(stats.inference_seconds)},
        "errors": dict(stats.errors),
        "warnings": sorted(render(sentence, dialect) for sentence in stats.warnings),
    }


def _spread(histogram: pb.Histogram) -> dict[str, float | None]:
    return {
        "mean": _ratio(histogram.sum, sum(histogram.counts)),
        "p50": quantile(histogram, 0.5),
        "p99": quantile(histogram, 0.99),
    }


def quantile(histogram: pb.Histogram, q: float) -> float | None:
    """Returns the value that a share `q` of all values is below, as far as intervals tell; None without values."""
    wanted = q * sum(histogram.counts)
    if not wanted:
        return None
    below = 0
    edges = [0.0, *histogram.bounds]
    for edge, upper, count in zip(edges, [*histogram.bounds, edges[-1]], histogram.counts, strict=True):
        if count and below + count >= wanted:
            return edge + (upper - edge) * (wanted - below) / count
        below += count
    return edges[-1]


def _ratio(amount: float, of: float) -> float | None:
    return amount / of if of else None
