"""The orchestrator's Work service: a real gRPC server and real streams to it, all in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from coordinated import Run
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support import free_port
from work_streams import HELLO, OURS, PLAIN, TOKEN, Service, Stream, access

from sparring.orchestrator.coordination import work_service, worker_stream
from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.bounds import MAX_MESSAGE, MAX_SLOTS, MAX_UNTAKEN
from sparring.orchestrator.coordination.worker_stream import WorkerStream
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, render
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address
from sparring.protos.net.health import MOST_WATCHERS

_OWN = [("grpc.use_local_subchannel_pool", 1)]
"""Channels that do not share a connection."""
ANY = Address("tcp", "127.0.0.1")


Test = Callable[[Service], Awaitable[None]]


@pytest.fixture
def in_service(tmp_path: Path) -> Callable[..., None]:
    def run(
        test: Test,
        *,
        policy: PolicyAccess = PLAIN,
        listen: Address | None = ANY,
        admission: Admission = OURS,
        **settings: Any,
    ) -> None:
        async def work() -> None:
            with tempfile.TemporaryDirectory() as sockets:  # a short path: a socket's name is at most 107 bytes
                service = Service(Run(tmp_path / "run", **settings), policy, admission)
                service.local, service.public = await service.service.start(Path(sockets), listen)
                try:
                    await test(service)
                finally:
                    await service.service.stop("the test has ended.")

        asyncio.run(asyncio.wait_for(work(), 30))

    return run


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_worker_is_told_what_it_is_for_and_gets_leases(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker() as worker:
            assignment = await worker.hear("assignment")
            assert (assignment.benchmark, assignment.slots) == ("toy", 2)
            assert json.loads(assignment.benchmark_settings) == {"step_seconds": 0.5}
            assert list(assignment.policy_addresses) == ["unix:///policy.sock", "127.0.0.1:1234"]
            assert (assignment.stall_seconds, assignment.policy_seconds) == (7.0, 9.0)
            assert EpisodeRules.from_message(assignment.rules) == EpisodeRules(
                out_of_range="clip", observe="every-step"
            )
            for slot in (0, 1):
                await worker.say(ready=pb.Ready(slot=slot))
                lease = await worker.hear("lease")
                assert (lease.task, lease.index, lease.slot) == ("short", slot, slot)
                await worker.say(result=pb.Result(lease=lease.lease, outcome=pb.OUTCOME_SUCCESS))
            await asyncio.wait_for(service.run.coordinator.ended, 60)
        assert [row.outcome for row in service.run.journal.rows()] == ["success", "success"]

    in_service(
        test, benchmark_arg={"step_seconds": 0.5}, stall_timeout=7, policy_timeout=9, observe="every-step",
        out_of_range="clip",
    )  # fmt: skip


def test_who_leaves_the_number_of_slots_to_us_gets_ours(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(slots=0) as worker:
            assert (await worker.hear("assignment")).slots == 5

    in_service(test)


def test_token_and_ca_go_to_workers(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker() as worker:
            assignment = await worker.hear("assignment")
            assert (assignment.policy_token, assignment.policy_ca) == ("secret", b"a certificate")
            assert not assignment.policy_replicas

    in_service(test, policy=access("h:1", token="secret", ca=b"a certificate"))


def test_each_worker_is_sent_to_another_replica_first(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(slots=1) as one, service.worker(worker="v", slots=1) as other:
            first, second = [await worker.hear("assignment") for worker in (one, other)]
            assert first.policy_replicas
            assert {first.policy_addresses[0], second.policy_addresses[0]} == {"a:1", "b:1"}
            assert set(first.policy_addresses) == set(second.policy_addresses) == {"a:1", "b:1"}

    in_service(test, policy=access("a:1", "b:1", replicas=True))


def test_workers_are_told_when_the_policy_moves_and_are_known_afterwards(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="one") as one, service.worker(worker="two") as two:
            before = await one.hear("assignment")
            await two.hear("assignment")
            service.service.move(access("c:1", "d:1", ca=b"another", replicas=True))
            after = await one.hear("assignment")
            assert list(after.policy_addresses) == ["c:1", "d:1"]
            assert list((await two.hear("assignment")).policy_addresses) == ["c:1", "d:1"], "each has a slot of both"
            assert after.policy_ca == b"another"
            assert (after.membership, after.rejoin_seconds) == (before.membership, before.rejoin_seconds)
            assert before.membership
            await one.say(ready=pb.Ready(slot=0))
            assert (await one.hear("lease")).slot == 0, "the run is the same"
        async with service.worker(worker="late", slots=1) as late:
            assert set((await late.hear("assignment")).policy_addresses) == {"c:1", "d:1"}

    in_service(test, policy=access("a:1", "b:1", replicas=True))


def test_a_worker_of_many_benchmarks_gets_the_one_with_most_to_do(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker() as one, service.worker(worker="v", benchmarks=["toy"]) as other:
            assert (await one.hear("assignment")).benchmark == "gym"
            assert (await other.hear("assignment")).benchmark == "toy", "it has nothing else"

    parts = [{"benchmark": "toy", "task": "short"}, {"benchmark": "gym", "task": "CartPole-v1,Acrobot-v1"}]
    in_service(test, benchmark=None, task=None, evaluations=parts)


def test_a_worker_that_was_started_for_a_part_of_the_run_gets_that_and_others_what_lacks_slots(
    in_service: Callable[..., None],
) -> None:
    async def test(service: Service) -> None:
        async def settings_of(worker: Stream) -> dict[str, int]:
            told: dict[str, int] = json.loads((await worker.hear("assignment")).benchmark_settings)
            return told

        async with service.worker(worker="1", evaluation="b") as one:
            assert await settings_of(one) == {"noise": 2}
            async with service.worker(worker="2") as two:  # who comes now, and not at the same moment
                assert await settings_of(two) == {"noise": 1}, "nobody is there for that one yet"
            async with service.worker(worker="3", evaluation="c") as three:
                assert await three.refusal() == (
                    grpc.StatusCode.FAILED_PRECONDITION,
                    "this run has no evaluation 'c' that the worker could be for.",
                )
            await one.say(ready=pb.Ready(slot=0))
            await one.hear("lease")
            assert [lease.episode.benchmark for lease in service.run.coordinator._scheduler.in_flight()] == ["b"]

    parts = [
        {"name": name, "benchmark": "toy", "task": "short", "benchmark_arg": {"noise": noise}}
        for name, noise in (("a", 1), ("b", 2))
    ]
    in_service(test, benchmark=None, task=None, evaluations=parts)


@pytest.mark.parametrize(
    ("register", "sentence"),
    [
        ({"protocol": 99}, "the worker speaks protocol version 99, this orchestrator"),
        ({"benchmarks": ["gym", "libero"]}, "this run is of toy, and the worker has only gym, libero installed"),
        ({"benchmarks": []}, "has only nothing installed"),
    ],
)
def test_a_worker_that_does_not_fit_is_refused_with_a_sentence(
    in_service: Callable[..., None], register: dict[str, Any], sentence: str
) -> None:
    async def test(service: Service) -> None:
        async with service.worker(**register) as worker:
            code, details = await worker.refusal()
            assert code == grpc.StatusCode.FAILED_PRECONDITION
            assert sentence in details
        assert service.run.watcher.workers == []

    in_service(test)


def test_that_one_is_of_no_use_is_logged_once_however_often_it_asks(
    in_service: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(service: Service) -> None:
        for name in ("libero", "libero", "metaworld"):
            async with service.worker(benchmarks=[name]) as other:
                await other.refusal()
        said = [line for line in caplog.messages if "is not taken in" in line]
        assert [line.split()[-2] for line in said] == ["libero", "metaworld"]
        assert all(line.startswith(("a worker on this machine is", "a worker at ipv4:127.0.0.1:")) for line in said)

    in_service(test)


def test_a_second_worker_of_a_name_gets_another_and_both_go_on(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker() as first:
            await first.hear("assignment")  # before the second comes: they may be overtaken on the way
            async with service.worker() as second:
                await second.hear("assignment")
                assert service.run.watcher.workers == [("w", 2), ("w.2", 2)]
                for worker in (first, second):
                    await worker.say(ready=pb.Ready(slot=0))
                    await worker.hear("lease")
                await first.end()
                await until(lambda: service.run.watcher.workers[-1] == ("w", 0))
                await second.say(ready=pb.Ready(slot=1))
                assert (await second.hear("lease")).slot == 1, "what the first has left is the second's"

    in_service(test)


@pytest.mark.parametrize(
    ("brought", "sentence"),
    [
        ("", "only workers that bring its join token; give the file that has it with --join-token-file"),
        ("a-secret-of-another-run", "the join token given (--join-token-file) is not this run's"),
    ],
)
@pytest.mark.parametrize("place", ["socket", "tcp"])
def test_who_does_not_bring_the_join_token_hears_of_nothing(
    in_service: Callable[..., None], caplog: pytest.LogCaptureFixture, place: str, brought: str, sentence: str
) -> None:
    async def test(service: Service) -> None:
        address = service.public if place == "tcp" else service.local
        async with service.silent(brought, address=address) as stranger:
            code, details = await stranger.refusal()
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert sentence in render(details, FLAGS)
        async with service.silent(TOKEN, address=address) as friend:
            await friend.say(register=pb.Register(**HELLO))
            assert (await friend.hear("assignment")).policy_token == "the policy's"
        assert service.run.watcher.workers[0] == ("w", 2)
        assert caplog.text.count("wanted to join without this run's join token") == 1

    in_service(test, policy=access("h:1", token="the policy's"))


def test_with_insecure_everybody_who_comes_over_tcp_is_let_in(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.silent("", address=service.public) as anybody:
            await anybody.say(register=pb.Register(**HELLO))
            await anybody.hear("assignment")
        async with service.silent("") as stranger:
            assert (await stranger.refusal())[0] == grpc.StatusCode.UNAUTHENTICATED, "the socket stays ours"

    in_service(test, admission=Admission(TOKEN, tcp_without=True))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"ready": pb.Ready(slot=99)}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"lost": pb.Lost(reason="x" * (MAX_MESSAGE + 1))}, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["a slot that it does not have", "a message that is too large"],
)
def test_who_says_what_no_worker_may_is_sent_away_and_others_get_its_leases(
    in_service: Callable[..., None], message: dict[str, Any], code: grpc.StatusCode
) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="honest") as honest, service.worker(worker="hostile") as hostile:
            for worker in (honest, hostile):
                await worker.hear("assignment")
            for slot in (0, 1):
                await hostile.say(ready=pb.Ready(slot=slot))
                await hostile.hear("lease")
            await honest.say(ready=pb.Ready(slot=0))
            await hostile.say(**message)
            assert (await hostile.refusal())[0] == code
            assert (await honest.hear("lease")).task == "short"
            assert not service.run.coordinator.ended.done()

    in_service(test)


def test_forged_results_over_the_wire_change_nothing(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="honest") as honest, service.worker(worker="hostile") as hostile:
            for worker in (honest, hostile):
                await worker.hear("assignment")
            leases = []
            for slot in (0, 1):
                await honest.say(ready=pb.Ready(slot=slot))
                leases.append((await honest.hear("lease")).lease)
            for lease in (*leases, *range(50)):  # told what it cannot know, and guessing as it could before
                await hostile.say(result=pb.Result(lease=lease, outcome=pb.OUTCOME_SUCCESS))
                await hostile.say(lost=pb.Lost(lease=lease, reason="no.", policy_unreachable=True))
                await hostile.say(refused=pb.Refused(lease=lease, reason="no."))
            await hostile.end()
            await until(lambda: ("hostile", 0) in service.run.watcher.workers)
            assert service.run.journal.rows() == []
            for lease in leases:
                await honest.say(result=pb.Result(lease=lease, outcome=pb.OUTCOME_FAILURE))
            await asyncio.wait_for(service.run.coordinator.ended, 60)
        assert [row.outcome for row in service.run.journal.rows()] == ["failure", "failure"]

    in_service(test)


def listened_at() -> set[int]:
    """The ports that this process listens at."""
    here = psutil.Process().net_connections("tcp")
    return {connection.laddr.port for connection in here if connection.status == psutil.CONN_LISTEN}


def test_without_an_address_nothing_listens_on_tcp(in_service: Callable[..., None]) -> None:
    before = listened_at()  # of earlier tests: gRPC closes a port when it gets to it

    async def test(service: Service) -> None:
        assert service.public == service.local
        assert service.public.is_unix
        assert listened_at() <= before

    in_service(test, listen=None)


def test_with_one_it_does(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        assert service.public.port in listened_at()

    in_service(test)


def test_the_first_message_is_the_registration(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.silent() as stranger:
            await stranger.say(ready=pb.Ready(slot=0))
            assert "a worker's first message must be its registration" in (await stranger.refusal())[1]
        async with service.silent() as nobody:
            await nobody.end()

    in_service(test)


def test_a_stranger_that_says_nothing_is_sent_away(
    in_service: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_service, "SILENCE_SECONDS", 0.1)

    async def test(service: Service) -> None:
        async with service.silent() as stranger:
            code, details = await stranger.refusal()
            assert code == grpc.StatusCode.DEADLINE_EXCEEDED
            assert "no registration came" in details

    in_service(test)


def soon_silent(context: Any, silence: float, untaken: Callable[[], int]) -> WorkerStream:
    """A stream that is over after a second of silence; its worker has as long as ever to register."""
    return WorkerStream(context, 1.0, untaken)


@pytest.mark.parametrize("how", ["breaks", "ends", "is silent"])
def test_when_a_workers_stream_ends_its_leases_are_anothers(
    in_service: Callable[..., None], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="other") as other:
            await other.hear("assignment")
            if how == "is silent":
                monkeypatch.setattr(work_service, "WorkerStream", soon_silent)  # for the stream that is opened now
            async with service.worker() as gone:
                await gone.hear("assignment")
                for slot in (0, 1):
                    await gone.say(ready=pb.Ready(slot=slot))
                    await gone.hear("lease")
                await other.say(ready=pb.Ready(slot=0))
                if how == "ends":
                    await gone.end()
                if how != "breaks":
                    assert (await other.hear("lease")).task == "short"
            if how == "breaks":
                assert (await other.hear("lease")).task == "short"
            await until(lambda: ("w", 0) in service.run.watcher.workers)
        said = "was silent for" if how == "is silent" else "the connection to worker 'w' was lost"
        assert said in service.run.watcher.retries[0][1]

    in_service(test)


def test_stopping_is_told_to_all_workers_with_a_reason(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker() as one, service.worker(worker="v") as other:
            for worker in (one, other):
                await worker.hear("assignment")
            stopping = asyncio.create_task(service.service.stop("the run has finished."))
            for worker in (one, other):
                assert (await worker.hear("stop")).reason == "the run has finished."
                await worker.end()
            await stopping

    in_service(test)


def test_the_next_run_is_served_at_the_same_address_with_the_same_workers(
    in_service: Callable[..., None], tmp_path: Path
) -> None:
    async def test(service: Service) -> None:
        async with service.worker(slots=1) as worker:
            await worker.hear("assignment")
            await worker.say(ready=pb.Ready(slot=0))
            lease = await worker.hear("lease")
            await worker.say(result=pb.Result(lease=lease.lease, outcome=pb.OUTCOME_SUCCESS))
            await worker.say(ready=pb.Ready(slot=0))
            await asyncio.wait_for(service.run.coordinator.ended, 60)
            second = Run(tmp_path / "second", task="long", episodes=1, video_fps=11)
            service.service.hand_over(second.coordinator, second.settings, access("elsewhere:1"))
            assignment = await worker.hear("assignment")
            assert (list(assignment.policy_addresses), assignment.video_fps) == (["elsewhere:1"], 11.0)
            assert (await worker.hear("lease")).task == "long"
        async with service.worker(worker="late") as late:
            assert list((await late.hear("assignment")).policy_addresses) == ["elsewhere:1"]

    in_service(test, episodes=1)


def test_it_says_that_it_is_healthy(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with grpc.aio.insecure_channel(service.public.target) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    in_service(test)


def test_who_asks_how_it_is_takes_up_no_call_of_a_worker(in_service: Callable[..., None]) -> None:
    """It needs no token: who watches is counted, and nothing that is sent with a question is read."""

    async def test(service: Service) -> None:
        channels = [grpc.aio.insecure_channel(service.public.target, _OWN) for _ in range(2)]
        try:
            watching = [channels[0].unary_stream("/grpc.health.v1.Health/Watch")(b"") for _ in range(MOST_WATCHERS)]
            for call in watching:
                assert await asyncio.wait_for(call.read(), 60)
            refused: Any = channels[1].unary_stream("/grpc.health.v1.Health/Watch")(b"")
            with pytest.raises(grpc.aio.AioRpcError, match="callers watch the server's health already"):
                await asyncio.wait_for(refused.read(), 60)
            more = channels[0].unary_stream("/grpc.health.v1.Health/Watch")(b"")
            with pytest.raises(TimeoutError):  # it waits for a stream of its connection to end
                await asyncio.wait_for(more.read(), 0.3)
            check = channels[1].unary_unary("/grpc.health.v1.Health/Check")
            assert await check(b"no request of anybody: \xff" * 1000, timeout=10)
            async with service.worker() as worker:
                await worker.hear("assignment")
        finally:
            for channel in channels:
                await channel.close()

    in_service(test)


def test_a_port_that_was_asked_for_and_is_taken_is_a_sentence(in_service: Callable[..., None], tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        second = Service(Run(tmp_path / "second"), PLAIN)
        with tempfile.TemporaryDirectory() as sockets:
            with pytest.raises(UsageError, match="it is taken"):
                await second.service.start(Path(sockets), service.public)
            assert list(Path(sockets).iterdir()) == [], "nothing is left listening"

    in_service(test, listen=ANY.with_port(free_port()))


def test_where_the_usual_port_is_taken_any_other_will_do(
    in_service: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ANY.with_port(free_port())
    monkeypatch.setattr(work_service, "DEFAULT_LISTEN", usual)

    async def test(service: Service) -> None:
        assert service.public == usual
        second = Service(Run(tmp_path / "second"), PLAIN)
        with tempfile.TemporaryDirectory() as sockets:
            _, public = await second.service.start(Path(sockets), usual)
            await second.service.stop("")
        assert public != usual

    in_service(test, listen=usual)


# ------------------------------------------------------------------------------------ workers that come back


@pytest.mark.parametrize("noticed", [True, False], ids=["the orchestrator noticed", "it did not"])
def test_a_worker_that_comes_back_goes_on_with_what_nobody_else_has_got(
    in_service: Callable[..., None], noticed: bool
) -> None:
    async def test(service: Service) -> None:
        workers = service.run.watcher.workers
        async with service.worker(slots=2) as before:
            membership = (await before.hear("assignment")).membership
            leases = []
            for slot in (0, 1):
                await before.say(ready=pb.Ready(slot=slot))
                leases.append((await before.hear("lease")).lease)
            if noticed:
                await before.end()
                await until(lambda: ("w", 0) in workers)
            stranger = [*leases, 12345]
            async with service.worker(membership=membership, held=stranger) as after:
                assignment = await after.hear("assignment")
                assert sorted(assignment.kept) == sorted(leases)
                assert assignment.membership == membership
                assert assignment.slots == 2
                assert workers[-1] == ("w", 2), "it is the same worker"
                for lease in leases:
                    await after.say(result=pb.Result(lease=lease, outcome=pb.OUTCOME_SUCCESS))
                await asyncio.wait_for(service.run.coordinator.ended, 60)
        assert [(row.outcome, row.attempts) for row in service.run.journal.rows()] == [("success", 1)] * 2

    in_service(test, episodes=2)


def test_what_somebody_else_has_got_is_not_given_back(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="other") as other:
            await other.hear("assignment")
            async with service.worker() as before:
                membership = (await before.hear("assignment")).membership
                await before.say(ready=pb.Ready(slot=0))
                lease = (await before.hear("lease")).lease
                await before.end()
            assert (await _lease_of(other)) != lease
            async with service.worker(membership=membership, held=[lease]) as after:
                assert list((await after.hear("assignment")).kept) == []

    async def _lease_of(worker: Any) -> int:
        await worker.say(ready=pb.Ready(slot=0))
        return int((await worker.hear("lease")).lease)

    in_service(test, episodes=1)


def test_who_was_never_here_cannot_come_back(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker() as here:
            await here.hear("assignment")
            await here.say(ready=pb.Ready(slot=0))
            lease = (await here.hear("lease")).lease
            async with service.worker(membership="a guess", held=[lease]) as stranger:
                code, sentence = await stranger.refusal()
                assert code == grpc.StatusCode.FAILED_PRECONDITION
                assert "another run has begun" in sentence

    in_service(test)


def test_an_address_has_so_many_connections_and_no_more(
    in_service: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work_service, "MAX_PEER_CONNECTIONS", 2)
    monkeypatch.setattr(work_service, "_SWEEP_SECONDS", 0.05)

    async def test(service: Service) -> None:
        async with service.silent(address=service.public) as friend:
            await friend.say(register=pb.Register(**HELLO))
            await friend.hear("assignment")
            place = (service.public.host, service.public.port)
            crowd = [await asyncio.open_connection(*place, local_addr=("127.0.0.9", 0)) for _ in range(5)]
            await until(lambda: "3 connections too many were ended, of 127.0.0.9" in caplog.text)
            await friend.say(ready=pb.Ready(slot=0))
            await friend.hear("lease")
            for _, writer in crowd:
                writer.close()

    in_service(test)


def test_a_connection_that_nobody_uses_is_closed_and_that_of_a_worker_is_not(
    in_service: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"grpc.max_connection_idle_ms": 500, "grpc.server_handshake_timeout_ms": 700}
    assert limits.keys() <= dict(work_service._OPTIONS).keys()
    options = [(name, limits.get(name, value)) for name, value in work_service._OPTIONS]
    monkeypatch.setattr(work_service, "_OPTIONS", options)

    async def test(service: Service) -> None:
        async with (
            service.worker() as worker,
            grpc.aio.insecure_channel(service.public.target, options=_OWN) as unused,
        ):
            await worker.hear("assignment")
            reader, writer = await asyncio.open_connection(service.public.host, service.public.port)
            unused.get_state(try_to_connect=True)
            await until(lambda: unused.get_state() == grpc.ChannelConnectivity.READY)
            await until(lambda: unused.get_state() == grpc.ChannelConnectivity.IDLE)
            while await asyncio.wait_for(reader.read(4096), 60):  # who never begins to speak
                continue
            writer.close()
            await worker.say(ready=pb.Ready(slot=0))
            await worker.hear("lease")

    in_service(test)


def test_workers_that_the_run_has_started_are_told_from_others_by_their_token(in_service: Callable[..., None]) -> None:
    admission = Admission(TOKEN)

    async def test(service: Service) -> None:
        for token, ends in ((TOKEN, False), (admission.launched, True)):
            async with service.worker(token=token) as worker:
                await worker.hear("assignment")
                await worker.say(ready=pb.Ready(slot=0))
                lease = await worker.hear("lease")
                await worker.say(refused=pb.Refused(lease=lease.lease, reason="no."))
                if not ends:
                    assert (await worker.hear("stop")).reason
                else:
                    await until(service.run.coordinator.ended.done)
            assert service.run.coordinator.ended.done() == ends
        with pytest.raises(UsageError):
            service.run.coordinator.ended.result()

    in_service(test, admission=admission)


def test_the_longest_reason_not_to_take_a_worker_in_reaches_it(
    in_service: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **more: Any) -> str:
        raise UsageError("ä" * 3000)

    async def test(service: Service) -> None:
        monkeypatch.setattr(service.run.coordinator, "join", refuse)
        async with service.worker() as worker:
            code, details = await worker.refusal()
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert details.startswith("ää")
        assert details.endswith("(cut; the server's log has it all)")

    in_service(test)


def test_who_says_too_much_of_itself_is_told_so_and_it_is_in_no_log(
    in_service: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(service: Service) -> None:
        for told in ({"benchmarks": ["x" * 100_000]}, {"membership": "m", "worker": "w" * 100_000}):
            async with service.worker(**told) as worker:
                code, sentence = await worker.refusal()
            assert (code, "a name of 100000 characters is too long" in sentence) == (
                grpc.StatusCode.FAILED_PRECONDITION, True,
            )  # fmt: skip
        assert len(caplog.text) < 2000

    in_service(test)


def test_who_talks_on_and_takes_nothing_of_what_it_is_told_is_sent_away(
    in_service: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert MAX_UNTAKEN >= 2 * MAX_SLOTS, "a lease for each slot, and somebody who looks at all of them"
    monkeypatch.setattr(worker_stream, "MAX_UNTAKEN", 1500)

    async def test(service: Service) -> None:
        monkeypatch.setattr(service.run.watcher, "watched", lambda worker: range(1000))
        async with (
            service.worker(worker="listens", slots=1000) as listening,
            service.worker(worker="deaf", slots=1000) as deaf,
        ):
            await listening.hear("assignment")
            for _ in range(2):
                await listening.say(heartbeat=pb.Heartbeat())
                for _ in range(1000):
                    await listening.hear("watch")
            with contextlib.suppress(grpc.aio.AioRpcError):  # nobody hears it any more
                for _ in range(50):
                    await deaf.say(heartbeat=pb.Heartbeat())
            await until(lambda: ("deaf", 0) in service.run.watcher.workers)
            assert "worker deaf is sent away: this worker talks on, and takes nothing of what it is told" in caplog.text
            await listening.say(ready=pb.Ready(slot=0))
            await listening.hear("lease")

    in_service(test)
