"""Arithmetic of server stats: differences, sums, quantiles, and which slot has which server."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from sparring.orchestrator.coordination.replica_balance import ReplicaBalance
from sparring.orchestrator.serving.stats import StatsWatch, quantile, summarized, total
from sparring.policy_server.client import fetch_stats
from sparring.policy_server.options import ServerOptions
from sparring.policy_server.policies.blind import ZeroPolicy
from sparring.policy_server.server import PolicyServer
from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.net.address import Address


def stats_of(*passes: tuple[int, float, float]) -> pb.ServerStats:
    """Of passes of so many rows that had waited so long and took so long."""
    kept = StatsCounter()
    for rows, wait, seconds in passes:
        kept.forward_pass([wait] * rows, seconds)
    return kept.to_message()


def test_a_summary_says_what_was_done() -> None:
    found = summarized(stats_of((1, 0.0, 0.1), (3, 0.02, 0.1), (4, 0.02, 0.4)))
    assert (found["observations"], found["batches"]) == (8, 3)
    assert found["batch_size"] == {"mean": pytest.approx(8 / 3), "max": 4}
    assert found["queue_wait_s"]["mean"] == pytest.approx(7 * 0.02 / 8)
    assert found["inference_s"]["total"] == pytest.approx(0.6)
    assert found["inference_s"]["p50"] == pytest.approx(0.1, rel=0.3)
    assert found["inference_s"]["p99"] == pytest.approx(0.4, rel=0.3)


def test_nothing_done_is_no_division_by_zero() -> None:
    found = summarized(pb.ServerStats())
    assert found["batch_size"] == {"mean": None, "max": None}
    assert found["queue_wait_s"] == {"mean": None, "p50": None, "p99": None}
    assert found["observations_per_second"] is None


@pytest.mark.parametrize("value", [2e-6, 1e-5, 3.3e-4, 0.01, 0.77, 9.0, 99.0])
def test_a_quantile_is_right_to_a_quarter(value: float) -> None:
    kept = stats_of(*[(1, value, value)] * 100)
    assert quantile(kept.inference_seconds, 0.5) == pytest.approx(value, rel=0.3, abs=1e-5)


def test_what_is_beyond_the_last_bound_is_said_to_be_there() -> None:
    assert quantile(stats_of((1, 0.0, 5000.0)).inference_seconds, 0.5) == 100.0


def test_servers_side_by_side_are_added_up() -> None:
    one, other = stats_of((2, 0.1, 1.0)), stats_of((5, 0.1, 3.0))
    one.seconds, other.seconds = 10.0, 8.0
    found = summarized(total([one, other]))
    assert (found["observations"], found["batches"], found["seconds"]) == (7, 2, 10.0)
    assert found["inference_s"]["total"] == 4.0


def test_a_run_has_what_was_done_since_it_began_also_by_a_server_that_was_started_again() -> None:
    async def served(address: str, *rows: int) -> tuple[PolicyServer, str]:
        server = PolicyServer(ZeroPolicy(), ServerOptions(policy="zero"))
        (bound,) = await server.start([address])
        for count in rows:
            server.stats.forward_pass([0.0] * count, 0.1)
        return server, bound

    async def work() -> tuple[StatsWatch, StatsWatch]:
        first, address = await served("127.0.0.1:0", 100)  # for somebody else, before this run
        watch = StatsWatch({"it": address})
        await watch.begin()
        first.stats.forward_pass([0.0] * 3, 0.1)
        await watch.end()
        await first.drain(0)
        await watch.end()  # nobody there: what is known stays known
        second, _ = await served(address, 5)
        await watch.end()
        later = StatsWatch({"it": address}, earlier=json.loads(json.dumps(watch.to_json())))
        await later.begin()
        second.stats.forward_pass([0.0] * 7, 0.1)
        await later.end()
        await second.drain(0)
        return watch, later

    watch, later = asyncio.run(work())
    found = watch.summary()
    assert found is not None
    assert (found["observations"], found["batches"], found["batch_size"]["max"]) == (8, 2, 5)
    resumed = later.summary()
    assert resumed is not None
    assert (resumed["observations"], resumed["batches"], resumed["batch_size"]["max"]) == (15, 3, 7)


@pytest.mark.parametrize("spoil", ["seconds", "sum", "bounds", "counts", "less", "many"])
def test_what_a_server_says_of_itself_cannot_stop_a_run_from_being_saved(spoil: str) -> None:
    watch = StatsWatch({})
    good = stats_of((2, 0.1, 1.0))
    watch.heard("it", good)
    bad = stats_of((3, 0.1, 1.0))
    bad.instance = good.instance
    if spoil == "seconds":
        bad.seconds = math.nan
    elif spoil == "sum":
        bad.inference_seconds.sum = math.inf
    elif spoil == "bounds":
        bad.queue_wait_seconds.bounds[0] = math.nan
    elif spoil == "counts":
        bad.queue_wait_seconds.counts.append(1)
    elif spoil == "less":
        bad.observations, bad.seconds = 0, 1e9
    else:
        bad.observations = 2**64 - 1
    watch.heard("it", bad)
    later = stats_of((1, 0.1, 1.0))
    later.instance = bad.instance
    watch.heard("it", later)
    json.dumps([watch.summary(), watch.to_json()], allow_nan=False)


def test_a_server_with_two_names_is_counted_once() -> None:
    """`--policy-server localhost:50051,127.0.0.1:50051` names one server, which would have done everything twice."""

    async def work() -> StatsWatch:
        server = PolicyServer(ZeroPolicy(), ServerOptions(policy="zero"))
        one, other = await server.start(["127.0.0.1:0", "127.0.0.1:0"])
        watch = StatsWatch({"one": one, "other": other})
        await watch.begin()
        server.stats.forward_pass([0.0] * 3, 0.1)
        await watch.end()
        await server.drain(0)
        return watch

    found = asyncio.run(work()).summary()
    assert found is not None
    assert (found["observations"], found["batches"]) == (3, 1)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_answer_that_is_long_on_its_way_makes_no_server_older_or_younger(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(address: str, **options: Any) -> Any:
        await asyncio.sleep(0.5)
        return await fetch_stats(address, **options)

    async def work() -> StatsWatch:
        watch = StatsWatch({"it": "127.0.0.1:9"})
        if restarted:
            await watch.begin()  # nobody is there yet
        server = PolicyServer(ZeroPolicy(), ServerOptions(policy="zero"))
        (address,) = await server.start(["127.0.0.1:0"])
        server.stats.forward_pass([0.0] * 5, 0.1)
        watch._addresses = {"it": address}
        monkeypatch.setattr("sparring.orchestrator.serving.stats.fetch_stats", late)
        if not restarted:
            await watch.begin()
        await watch.end()
        await server.drain(0)
        return watch

    found = asyncio.run(work()).summary()
    assert (found or {}).get("observations", 0) == (5 if restarted else 0)


def test_what_a_server_did_before_it_could_be_asked_is_not_this_runs() -> None:
    async def work() -> StatsWatch:
        server = PolicyServer(ZeroPolicy(), ServerOptions(policy="zero"))
        (address,) = await server.start(["127.0.0.1:0"])
        server.stats._began -= 100.0  # it has served others for a while
        server.stats.forward_pass([0.0] * 50, 0.1)
        watch = StatsWatch({"it": address})
        watch._addresses = {"it": "127.0.0.1:9"}  # it does not answer when the run begins
        await watch.begin()
        watch._addresses = {"it": address}
        await watch.end()
        server.stats.forward_pass([0.0] * 4, 0.1)
        await watch.end()
        await server.drain(0)
        return watch

    found = asyncio.run(work()).summary()
    assert found is not None
    assert (found["observations"], found["batches"]) == (4, 1)


def test_what_is_known_is_kept_while_a_run_goes_for_it_may_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparring.orchestrator.serving.stats._EVERY_SECONDS", 0.01)
    kept: list[dict[str, Any]] = []

    async def work() -> None:
        server = PolicyServer(ZeroPolicy(), ServerOptions(policy="zero"))
        (address,) = await server.start(["127.0.0.1:0"])
        watch = StatsWatch({"it": address})
        await watch.begin()
        server.stats.forward_pass([0.0] * 3, 0.1)
        going = asyncio.ensure_future(watch.run(lambda: kept.append(watch.to_json())))
        while not kept:
            await asyncio.sleep(0.01)
        going.cancel()
        await server.drain(0)

    asyncio.run(asyncio.wait_for(work(), 60))
    found = StatsWatch({}, earlier=json.loads(json.dumps(kept[0]))).summary()
    assert found is not None
    assert found["observations"] == 3


def test_an_answer_that_was_long_on_its_way_does_not_hide_what_was_done_after_it() -> None:
    watch = StatsWatch({})
    late, later = stats_of((4, 0.0, 0.1)), stats_of((4, 0.0, 0.1), (4, 0.0, 0.1))
    late.instance = later.instance = "one"
    late.seconds, later.seconds = 0.0, 3600.0
    watch.heard("it", late)
    watch.heard("it", later)
    found = watch.summary()
    assert found is not None
    assert found["observations"] == 8


def test_servers_that_keep_no_stats_are_no_failure() -> None:
    watch = StatsWatch({"nobody": "127.0.0.1:9"})
    asyncio.run(watch.begin())
    assert watch.summary() is None


A, B, C = (Address("tcp", name, 1) for name in ("a", "b", "c"))


def test_slots_are_spread_evenly_whatever_workers_come() -> None:
    balance = ReplicaBalance([A, B, C])
    assert balance.assign("one", 2) == [A, B, C]
    assert balance.assign("two", 1) == [C, A, B]
    assert balance.assign("three", 4) == [A, B, C]
    assert balance.assign("four", 1) == [B, C, A]


def test_a_worker_that_leaves_frees_its_share() -> None:
    balance = ReplicaBalance([A, B])
    assert balance.assign("libero", 1)[0] == A
    assert balance.assign("metaworld", 1)[0] == B
    balance.leave("metaworld")
    balance.leave("nobody")
    assert balance.assign("metaworld-1", 1)[0] == B
    balance.leave("libero")
    assert balance.assign("libero-1", 1)[0] == A
