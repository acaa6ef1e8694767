"""The Work protocol as a state machine, against the real service: workers that say anything, in any order, as anybody.

A real gRPC server, coordinator and journal, in this process and in one event loop with all workers, so that what a
message led to is known before the next one is sent. The ledger of `tests/simulation` says what must be in the journal,
reckoned from what was sent on which stream. SPARRING_FUZZ=N plays N games instead of a few, never the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

sys.path.append(str(Path(__file__).parent))  # for helpers, whatever pytest's import mode

import made_up
from coordinated import Watcher
from simulation.grounds import Grounds
from simulation.ledger import Ledger

from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.bounds import MAX_MESSAGE, MAX_METRICS, MAX_NAME, MAX_SLOTS
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import read_settings
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.net.access import TOKEN_HEADER, token_header
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import ignore_poller_races

TOKEN = "the-secret-of-this-run"
LAUNCHED = "the-secret-of-those-whom-the-run-has-started"
MAX_ERRORS = 4
DEADLINE = 20.0
GAMES = int(os.environ.get("SPARRING_FUZZ", "0"))
RULES = RetryRules(retries=1, losses=3)
SETTINGS = read_settings(
    {"benchmark": "toy", "task": "short,long", "policy": "zero", "episodes": 3, "seed": 100, "retries": 1}
    | {"max_errors": MAX_ERRORS}
)
PLAN = make_plan(SETTINGS)
OUTCOMES = [pb.OUTCOME_SUCCESS, pb.OUTCOME_FAILURE, pb.OUTCOME_ERROR, pb.OUTCOME_UNSPECIFIED]
REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}

T = TypeVar("T")


class Counted(Coordinator):
    """Counts what it has dealt with and what it has sent: a test knows by it when a message has had its effect."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.policy_reports.on_report = self.workers.send_away  # the policy is what it was
        self.handled = 0
        self.sent: Counter[str] = Counter()
        self.left: list[str] = []

    def join(
        self,
        register: pb.Register,
        assignment: pb.Assignment,
        send: Callable[[pb.OrchestratorMessage], None],
        *,
        part: str = "",
        launched: bool = False,
    ) -> str:
        def counted(message: pb.OrchestratorMessage) -> None:
            self.sent[name] += 1
            send(message)

        name = super().join(register, assignment, counted, part=part, launched=launched)
        self.sent[name] = 1  # its assignment
        return name

    def handle(self, worker: str, message: pb.WorkerMessage) -> None:
        try:
            super().handle(worker, message)
        finally:
            self.handled += 1

    def leave(self, worker: str, reason: str) -> None:
        super().leave(worker, reason)
        self.left.append(worker)


class Stream:
    """A worker's end of a stream, in bytes, and where it is by the contract."""

    def __init__(self, channel: grpc.aio.Channel, token: str | None) -> None:
        metadata = ((TOKEN_HEADER, token_header(token)),) if token is not None else ()
        self.call: Any = channel.stream_stream("/sparring.evaluation.v1.Work/Work")(metadata=metadata, timeout=600)
        self.heard: list[pb.OrchestratorMessage] = []
        self.name = ""
        self.slots = 0
        self.membership = ""
        self.asked: set[int] = set()
        self.lent: dict[int, pb.Lease] = {}
        """What each slot has on loan."""
        self.past: list[int] = []
        """Leases that have ended."""
        self.stopped = False
        self.token = token
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while (data := await self.call.read()) is not grpc.aio.EOF:
            self.heard.append(pb.OrchestratorMessage.FromString(data))

    async def say(self, data: bytes) -> None:
        try:
            await self.call.write(data)
        except (grpc.RpcError, asyncio.InvalidStateError):
            return  # it has ended, which is found out when its status is asked for

    async def ended(self) -> grpc.StatusCode:
        """The status that it ends with, which must be a refusal in words."""
        async with asyncio.timeout(DEADLINE):
            code, details = await self.call.code(), await self.call.details()
        await asyncio.gather(self.reading, return_exceptions=True)
        assert code in REFUSALS, f"{code}: {details}"
        assert details.strip()
        assert "Traceback" not in details
        return code  # type: ignore[no-any-return]


def out_of_bounds(message: pb.WorkerMessage, slots: int) -> bool:
    """Whether no worker of so many slots may say that: the bounds, told a second time."""

    def odd(name: str) -> bool:
        return len(name) > MAX_NAME or not name.isprintable()

    kind = message.WhichOneof("message")
    if kind == "ready":
        return message.ready.slot >= slots
    if kind == "heartbeat":
        told = message.heartbeat.slots
        return len(told) > slots or any(activity.slot >= slots or odd(activity.task) for activity in told)
    return kind == "result" and (len(message.result.metrics) > MAX_METRICS or any(map(odd, message.result.metrics)))


class Work(RuleBasedStateMachine):
    """Several workers of one run; nobody is honest but by accident."""

    messages = 0
    games = 0
    finished = 0
    given_up = 0

    def __init__(self) -> None:
        super().__init__()
        cls = type(self)
        cls.games += 1
        self.runner = asyncio.Runner()
        where = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a journal there costs a tenth
        self.folder = tempfile.TemporaryDirectory(prefix="sparring-fuzz-", dir=where)
        self.ledger = Ledger(PLAN, RULES)
        self.joined: list[Stream] = []
        self.gone: list[Stream] = []
        """Workers whose streams have broken, and that could come back."""
        self.grounds = Grounds(
            max_errors=MAX_ERRORS, policy_seconds=60, starts_workers=True, played=False, now=time.monotonic
        )
        self.over = False
        self._run(self._start())

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(3 * DEADLINE):
                return await what

        return self.runner.run(limited())

    async def _start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(ignore_poller_races)
        folder = Path(self.folder.name)
        self.journal = Journal(folder / "run")
        self.watcher = Watcher()
        self.coordinator = Counted(PLAN, SETTINGS, self.journal, folder / "run", self.watcher, RULES)
        policy = PolicyAccess([Address.parse("unix:/nowhere/policy.sock")])
        self.service = WorkService(
            self.coordinator, SETTINGS, policy, default_slots=2, admission=Admission(TOKEN, LAUNCHED)
        )
        local, _ = await self.service.start(folder)
        self.channel = grpc.aio.insecure_channel(local.target, options=[("grpc.max_send_message_length", -1)])
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def teardown(self) -> None:
        try:
            if not self.over:
                self._run(self._play_the_rest())
                type(self).finished += 1
        finally:
            self._run(self._stop())
            self.runner.close()
            self.folder.cleanup()

    async def _stop(self) -> None:
        for stream in self.joined:
            stream.call.cancel()
            await asyncio.gather(stream.reading, return_exceptions=True)
        await self.service.stop("the game is over.")
        await self.channel.close()
        self.coordinator.abandon()
        self.journal.close()

    async def _play_the_rest(self) -> None:
        """An honest worker comes, and the run ends: nobody has broken it."""
        for stream in list(self.joined):
            await self._cut(stream)
        worker = Stream(self.channel, TOKEN)
        await self._register(worker, pb.Register(slots=1))
        while len(self.ledger.rows) < len(list(PLAN.ids())):
            await self._say(worker, pb.WorkerMessage(ready=pb.Ready(slot=0)))
            lease = worker.lent[0]
            await self._say(worker, pb.WorkerMessage(result=pb.Result(lease=lease.lease, outcome=pb.OUTCOME_SUCCESS)))
        assert self.coordinator.ended.done()
        assert self.coordinator.ended.exception() is None
        self._check()

    # What is said, and what must come of it.

    async def _until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.001)

    async def _register(self, stream: Stream, register: pb.Register, **more: Any) -> pb.Assignment:
        register.MergeFrom(pb.Register(protocol=WORK_PROTOCOL_VERSION, benchmarks=["toy"], **more))
        before = len(self.watcher.workers)
        type(self).messages += 1
        await stream.say(pb.WorkerMessage(register=register).SerializeToString())
        await self._until(lambda: stream.heard or stream.reading.done())
        assert stream.heard, (await stream.call.code(), await stream.call.details())
        assert stream.heard[0].WhichOneof("message") == "assignment", "an assignment is the first thing that is said"
        assignment = stream.heard[0].assignment
        names = [name for name, slots in self.watcher.workers[before:] if slots]
        stream.name, stream.slots, stream.membership = names[-1], assignment.slots, assignment.membership
        assert stream.membership not in {other.membership for other in self.joined}
        self.joined.append(stream)
        return assignment

    async def _say(self, stream: Stream, message: pb.WorkerMessage) -> None:
        """Says something on a stream that is registered, and waits for what comes of it."""
        type(self).messages += 1
        self._tell_ledger(stream, message)
        refused = out_of_bounds(message, stream.slots)
        if refused:
            self.ledger.left(stream.name)
        handled = self.coordinator.handled
        await stream.say(message.SerializeToString())
        await self._until(lambda: self.coordinator.handled > handled or stream.reading.done())
        if refused:
            assert await stream.ended() == grpc.StatusCode.INVALID_ARGUMENT
            await self._until(lambda: stream.name in self.coordinator.left)
            self._forget(stream)
        await self._settle()

    def _tell_ledger(self, stream: Stream, message: pb.WorkerMessage) -> None:
        if self.coordinator.ended.done() or out_of_bounds(message, stream.slots):
            return
        kind = message.WhichOneof("message")
        number = message.result.lease or message.lost.lease or message.refused.lease
        episode, holder = self.ledger.held.get(number, (None, ""))
        if episode is not None and holder == stream.name:
            self.grounds.said(message, episode, launched=stream.token == LAUNCHED)
        if kind == "result":
            self.ledger.result(stream.name, message.result)
            self._end(stream, number)
        elif kind == "lost" and (message.lost.policy_full or message.lost.policy_changed):
            self.ledger.given_back(stream.name, number)
            self._end(stream, number)
        elif kind == "lost" and message.lost.interrupted:
            self.ledger.interrupted(stream.name, number)
            self._end(stream, number)
        elif kind == "refused" and not number:
            self.grounds.cannot_begin(launched=stream.token == LAUNCHED)
        elif kind in ("lost", "refused"):
            self.ledger.lost(stream.name, number)
            self._end(stream, number)
        elif kind == "ready" and message.ready.slot not in stream.lent:
            stream.asked.add(message.ready.slot)

    def _end(self, stream: Stream, number: int) -> None:
        for slot, lease in list(stream.lent.items()):
            if lease.lease == number:
                del stream.lent[slot]
                stream.past.append(number)

    async def _settle(self) -> None:
        """Takes in what the orchestrator has said to anybody, and holds it against the contract."""
        for stream in list(self.joined):
            await self._until(lambda s=stream: len(s.heard) >= self.coordinator.sent[s.name] or s.reading.done())
        for stream in list(self.joined):
            assert len(stream.heard) == self.coordinator.sent[stream.name], "nothing is said but by the coordinator"
            for message in stream.heard[1:]:
                kind = message.WhichOneof("message")
                assert kind in ("lease", "stop")
                if kind == "stop":
                    stream.stopped = True
                    continue
                lease = message.lease
                if lease.lease in stream.past or lease.lease in {held.lease for held in stream.lent.values()}:
                    continue  # known
                assert not stream.stopped, "who was sent away gets nothing more"
                assert lease.slot in stream.asked, "a lease answers a Ready of that slot"
                assert lease.slot not in stream.lent, "a slot has one lease at a time"
                stream.asked.discard(lease.slot)
                self.ledger.granted(stream.name, lease)
                stream.lent[lease.slot] = lease
        waiting = self._waiting()
        asking = [s for s in self.joined if s.asked - s.lent.keys() and not s.stopped]
        assert not (waiting and asking) or self.coordinator.ended.done(), "somebody asks, and there is something to do"

    def _waiting(self) -> set[EpisodeId]:
        held = {episode for episode, _ in self.ledger.held.values()}
        return set(PLAN.ids()) - self.ledger.rows.keys() - held

    def _forget(self, stream: Stream) -> None:
        self.joined.remove(stream)

    async def _cut(self, stream: Stream) -> None:
        if not self.coordinator.ended.done():
            self.ledger.left(stream.name)
        left = len(self.coordinator.left)
        stream.call.cancel()
        await asyncio.gather(stream.reading, return_exceptions=True)
        await self._until(lambda: len(self.coordinator.left) > left)
        self._forget(stream)
        await self._settle()

    # The moves.

    @initialize()
    def two_workers_play(self) -> None:
        for name, token in (("w", LAUNCHED), ("v", TOKEN)):
            self.join(name, 2, token)
            for slot in range(2):
                self._run(self._say(self.joined[-1], pb.WorkerMessage(ready=pb.Ready(slot=slot))))

    @precondition(lambda self: len(self.joined) < 4)
    @rule(name=st.sampled_from(["w", "v"]), slots=st.integers(0, 3), token=st.sampled_from([TOKEN, LAUNCHED]))
    def join(self, name: str, slots: int, token: str = TOKEN) -> None:
        stream = Stream(self.channel, token)
        assignment = self._run(self._register(stream, pb.Register(worker=name, slots=slots)))
        assert assignment.slots == (slots or 2)
        assert not assignment.kept

    @rule(token=st.sampled_from([None, "", "x", TOKEN + "x", "the-secret-of-another"]))
    def come_without_the_token(self, token: str | None) -> None:
        async def move() -> None:
            stream = Stream(self.channel, token)  # which says nothing: gRPC forgets what it was told if it was writing
            assert await stream.ended() == grpc.StatusCode.UNAUTHENTICATED
            assert not stream.heard

        type(self).messages += 1
        self._run(move())

    @rule(
        spoilt=st.sampled_from(
            [
                pb.Register(protocol=WORK_PROTOCOL_VERSION + 1, benchmarks=["toy"]),
                pb.Register(protocol=WORK_PROTOCOL_VERSION, benchmarks=["gym"]),
                pb.Register(protocol=WORK_PROTOCOL_VERSION, benchmarks=["toy"], slots=MAX_SLOTS + 1),
                pb.Register(protocol=WORK_PROTOCOL_VERSION, benchmarks=["toy"], worker="\x1b[2J"),
                pb.Register(protocol=WORK_PROTOCOL_VERSION, benchmarks=["toy"], membership="of nobody", held=[1]),
            ]
        )
    )
    def register_as_what_it_may_not(self, spoilt: pb.Register) -> None:
        self._refused_at_once(pb.WorkerMessage(register=spoilt))

    @rule(message=made_up.WORK_MESSAGES)
    def begin_with_anything(self, message: pb.WorkerMessage) -> None:
        if message.WhichOneof("message") != "register":
            self._refused_at_once(message)

    def _refused_at_once(self, message: pb.WorkerMessage) -> None:
        async def move() -> None:
            stream = Stream(self.channel, TOKEN)
            await stream.say(message.SerializeToString())
            assert await stream.ended() == grpc.StatusCode.FAILED_PRECONDITION
            assert not stream.heard

        type(self).messages += 1
        self._run(move())

    @precondition(lambda self: self.joined)
    @rule(data=st.data(), slot=st.integers(0, 3))
    def ask(self, data: st.DataObject, slot: int) -> None:
        stream = data.draw(st.sampled_from(self.joined))
        self._run(self._say(stream, pb.WorkerMessage(ready=pb.Ready(slot=slot))))

    @precondition(lambda self: self.joined)
    @rule(data=st.data(), whose=st.sampled_from(["own", "own", "own", "others", "past", "nobody's"]))
    def end(self, data: st.DataObject, whose: str) -> None:
        """Says what came of a lease: of its own, of somebody else's, of one that has ended, of none."""
        stream = data.draw(st.sampled_from(self.joined))
        number = self._number(data, stream, whose)
        outcome, reward = data.draw(st.sampled_from(OUTCOMES)), data.draw(st.sampled_from([0.5, float("nan")]))
        how = data.draw(st.sampled_from(["result", "result", "result", "lost", "interrupted"]))
        if how in ("lost", "interrupted"):
            lost = pb.Lost(lease=number, reason="it was.", interrupted=how == "interrupted")
            self._run(self._say(stream, pb.WorkerMessage(lost=lost)))
        else:
            kind = pb.ERROR_KIND_SIMULATOR if outcome == pb.OUTCOME_ERROR else pb.ERROR_KIND_UNSPECIFIED
            result = pb.Result(lease=number, outcome=outcome, reward_sum=reward, steps=3, error_kind=kind)
            self._run(self._say(stream, pb.WorkerMessage(result=result)))

    @precondition(lambda self: any(stream.lent for stream in self.joined))
    @rule(data=st.data(), complaint=st.sampled_from(["full", "changed", "unreachable", "refused"]))
    def complain(self, data: st.DataObject, complaint: str) -> None:
        """Says of a lease of its own that nobody can play it: for the run, or only for itself."""
        stream = data.draw(st.sampled_from([stream for stream in self.joined if stream.lent]))
        number = self._number(data, stream, "own")
        if complaint == "refused":
            message = pb.WorkerMessage(refused=pb.Refused(lease=number, reason="it does not fit."))
        else:
            kind = {f"policy_{complaint}": True}
            message = pb.WorkerMessage(lost=pb.Lost(lease=number, reason="nobody is there.", **kind))
        self._run(self._say(stream, message))

    def _number(self, data: st.DataObject, stream: Stream, whose: str) -> int:
        found = {
            "own": [lease.lease for lease in stream.lent.values()],
            "others": [lease.lease for other in self.joined if other is not stream for lease in other.lent.values()],
            "past": [number for other in (*self.joined, *self.gone) for number in other.past],
            "nobody's": [1, 2**64 - 1],
        }[whose]
        # In the order of what has happened: the numbers are random, and the same moves must be the same game.
        return int(data.draw(st.sampled_from(found or [7])))

    @precondition(lambda self: self.joined)
    @rule(data=st.data(), message=made_up.WORK_MESSAGES)
    def say_anything(self, data: st.DataObject, message: pb.WorkerMessage) -> None:
        """Leases in there are nobody's: their numbers cannot be made up."""
        self._run(self._say(data.draw(st.sampled_from(self.joined)), message))

    @precondition(lambda self: self.joined)
    @rule(data=st.data(), garbage=st.sampled_from([b"\xff", b"\x0a\xff\xff", b"\x1a\x05\x08"]))
    def send_garbage(self, data: st.DataObject, garbage: bytes) -> None:
        self._sent_away(data.draw(st.sampled_from(self.joined)), garbage, grpc.StatusCode.INVALID_ARGUMENT)

    @precondition(lambda self: self.joined)
    @rule(data=st.data())
    def send_too_much(self, data: st.DataObject) -> None:
        flood = pb.WorkerMessage(lost=pb.Lost(reason="x" * MAX_MESSAGE)).SerializeToString()
        self._sent_away(data.draw(st.sampled_from(self.joined)), flood, grpc.StatusCode.RESOURCE_EXHAUSTED)

    def _sent_away(self, stream: Stream, data: bytes, code: grpc.StatusCode) -> None:
        async def move() -> None:
            if not self.coordinator.ended.done():
                self.ledger.left(stream.name)
            left = len(self.coordinator.left)
            await stream.say(data)
            assert await stream.ended() == code
            await self._until(lambda: len(self.coordinator.left) > left)
            self._forget(stream)
            await self._settle()

        type(self).messages += 1
        self._run(move())

    @precondition(lambda self: self.joined)
    @rule(data=st.data())
    def break_off(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.joined))
        self._run(self._cut(stream))
        self.gone.append(stream)

    @precondition(lambda self: self.gone or self.joined)
    @rule(data=st.data(), lying=st.booleans())
    def come_back(self, data: st.DataObject, lying: bool) -> None:
        """With the leases that it plays, and perhaps with those of others; its earlier stream may still be open."""
        before = data.draw(st.sampled_from([*self.gone, *self.joined]))
        held = [lease.lease for lease in before.lent.values()]
        others = [number for number, (_, who) in self.ledger.held.items() if who != before.name]
        claimed = [*held, *before.past, *others, 7] if lying else held
        self._run(self._come_back(before, claimed))

    async def _come_back(self, before: Stream, claimed: list[int]) -> None:
        if before in self.joined:
            if not self.coordinator.ended.done():
                self.ledger.left(before.name)
            self.joined.remove(before)
        else:
            self.gone.remove(before)
        stream = Stream(self.channel, before.token)
        register = pb.Register(worker=before.name, membership=before.membership, held=claimed)
        assignment = await self._register(stream, register)
        assert stream.membership == before.membership
        assert stream.slots == before.slots
        mine = {lease.lease: lease for lease in before.lent.values()}
        assert set(assignment.kept) <= set(mine), "nobody is lent again what it did not have"
        for number in assignment.kept:
            stream.lent[mine[number].slot] = mine[number]
            self.ledger.taken_back(stream.name, number)
        stream.past = [*before.past, *(number for number in mine if number not in assignment.kept)]
        await asyncio.gather(before.reading, return_exceptions=True)
        await self._settle()

    # What always holds.

    @invariant()
    def the_journal_is_right(self) -> None:
        self._check()

    def _check(self) -> None:
        if self.coordinator.ended.done() and self.coordinator.ended.exception() is not None:
            self._check_given_up(str(self.coordinator.ended.exception()))
            return
        self.ledger.heard()
        self.ledger.check(self.journal.rows(), self.journal.failed_attempts())
        whole = len(self.ledger.rows) == len(list(PLAN.ids()))
        assert self.coordinator.ended.done() == whole, "a run has finished when every episode has a row"
        if whole:
            self.over = True
            assert self.coordinator.ended.exception() is None
            assert not self.ledger.held

    def _check_given_up(self, reason: str) -> None:
        """Checks that a run was stopped for a reason, and that nothing is written after that."""
        if not self.over:
            self.over = True
            type(self).given_up += 1
            self.grounds.check(reason)
            # As if it was killed in the middle of the last message.
            self.ledger.killed(self.journal.rows(), self.journal.failed_attempts())
        self.ledger.check(self.journal.rows(), self.journal.failed_attempts())

    @invariant()
    def the_server_is_well(self) -> None:
        async def check() -> None:
            answer = await self.health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

        self._run(check())


def test_no_worker_can_break_a_run(caplog: pytest.LogCaptureFixture) -> None:
    machine = type("Playing", (Work,), {})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=GAMES or 10,
            stateful_step_count=30,
            derandomize=not GAMES,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # a game that hangs takes its deadline again each time that it is made smaller
            suppress_health_check=list(HealthCheck),
        ),
    )
    sys.stderr.write(
        f"{machine.games} games, {machine.messages} messages, {machine.given_up} given up\n" if GAMES else ""
    )
    assert machine.messages > 100
    assert machine.finished > 2, "the run is played to its end by somebody honest"
    assert machine.given_up or GAMES < 100, "a run is given up by those whom it has started"
    assert "Traceback" not in caplog.text
