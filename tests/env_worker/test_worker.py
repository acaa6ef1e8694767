"""A worker in this process, and the orchestrator that it dials as well: what it says first, and every way it ends."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from support import free_port

from sparring.env_worker.worker import registration
from sparring.env_worker.worker.slots import SlotHandle
from sparring.env_worker.worker.worker import CannotPlay, OrchestratorGone, Worker, WorkerRefused
from sparring.orchestrator.coordination.bounds import check_register
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError
from sparring.protos.evaluation_pb2_grpc import WorkServicer, add_WorkServicer_to_server
from sparring.protos.limits import MAX_FACT
from sparring.protos.net.address import Address
from sparring.protos.net.connection import Connection

ASSIGNMENT = pb.Assignment(
    benchmark="toy",
    benchmark_settings="{}",
    slots=1,
    policy_addresses=["unix:///nowhere.sock"],
    policy_seconds=0.2,
    stall_seconds=30,
    heartbeat_seconds=0.05,
)


class Orchestrator(WorkServicer):
    """Says what a test tells it to, and keeps what it hears.

    A stand-in, because the real one never says what is wrong or comes too late; tests/e2e has the real one.
    """

    def __init__(self) -> None:
        self.heard: asyncio.Queue[pb.WorkerMessage] = asyncio.Queue()
        self.to_say: asyncio.Queue[pb.OrchestratorMessage | grpc.StatusCode | None] = asyncio.Queue()
        self.has_left = asyncio.Event()
        """Set when the worker has nothing more to say."""

    async def Work(self, requests: AsyncIterator[pb.WorkerMessage], context: Any) -> None:  # type: ignore[override]
        hearing = asyncio.create_task(self._hear(requests))
        try:
            while (message := await self.to_say.get()) is not None:
                if isinstance(message, grpc.StatusCode):
                    await context.abort(message, "so it says.")
                await context.write(message)
        finally:
            hearing.cancel()

    async def _hear(self, requests: AsyncIterator[pb.WorkerMessage]) -> None:
        async for message in requests:
            self.heard.put_nowait(message)
        self.has_left.set()

    def says(self, **message: Any) -> None:
        self.to_say.put_nowait(pb.OrchestratorMessage(**message))

    async def hears(self, kind: str) -> Any:
        """The next message of a kind; others are passed over."""
        async with asyncio.timeout(30):
            while (message := await self.heard.get()).WhichOneof("message") != kind:
                continue
        return getattr(message, kind)


Test = Callable[[Orchestrator, Address], Awaitable[None]]


@pytest.fixture
def with_orchestrator() -> Callable[[Test], None]:
    def run(test: Test) -> None:
        async def work() -> None:
            orchestrator = Orchestrator()
            server = grpc.aio.server()
            add_WorkServicer_to_server(orchestrator, server)
            with tempfile.TemporaryDirectory() as folder:  # a short path: a socket's name is at most 107 bytes
                address = Address.unix(Path(folder) / "work.sock")
                server.add_insecure_port(address.target)
                await server.start()
                try:
                    await test(orchestrator, address)
                finally:
                    await server.stop(None)

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def starting(worker: Worker, stop: asyncio.Event | None = None) -> asyncio.Task[None]:
    return asyncio.create_task(worker.run(stop or asyncio.Event()))


def test_it_says_who_it_is_and_what_it_can(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        stop = asyncio.Event()
        working = starting(Worker(Connection(address), name="mine", slots=4, benchmark="toy"), stop)
        said = await orchestrator.hears("register")
        assert (said.protocol, said.worker, said.slots) == (WORK_PROTOCOL_VERSION, "mine", 4)
        assert list(said.benchmarks) == ["toy"]
        assert said.host == socket.gethostname()
        assert {"python", "numpy", "grpcio"} <= set(said.versions)
        stop.set()
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)


def test_what_it_says_of_itself_is_no_more_than_an_orchestrator_takes(
    with_orchestrator: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"toy:" + "f" * MAX_FACT: "0", "toy:\x1b.py": "0", "toy:mine.py": "1"}
    monkeypatch.setattr(registration, "source_files", lambda names: files)
    monkeypatch.setattr(registration, "machine", lambda: {"gpu": "g\n" * 2000, "cpu": "one"})

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        stop = asyncio.Event()
        working = starting(Worker(Connection(address), benchmark="toy"), stop)
        said = await orchestrator.hears("register")
        check_register(said)
        assert dict(said.files) == {"toy:mine.py": "1"}
        assert dict(said.machine) == {"gpu": "g" * MAX_FACT, "cpu": "one"}
        stop.set()
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)


@pytest.mark.parametrize("first", [[], [ASSIGNMENT]], ids=["at once", "as the assignment of another run"])
def test_it_works_for_no_benchmark_that_it_has_not_offered(
    with_orchestrator: Callable[[Test], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: list[pb.Assignment],
) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('this was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    other = pb.Assignment()
    other.CopyFrom(ASSIGNMENT)
    other.benchmark = "planted:Class"

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        for assignment in (*first, other):
            orchestrator.says(assignment=assignment)
        with pytest.raises(WorkerRefused, match=r"for the benchmark 'planted:Class', which it has not offered"):
            await asyncio.wait_for(starting(Worker(Connection(address), benchmark="toy")), 40)
        worker = Worker(Connection(address), benchmark="toy")
        worker._register()
        with pytest.raises(WorkerRefused, match="which it has not offered"):
            await worker._rejoined(other)

    with_orchestrator(test)


def test_without_a_benchmark_it_offers_all_that_are_installed(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        stop = asyncio.Event()
        working = starting(Worker(Connection(address)), stop)
        said = await orchestrator.hears("register")
        assert {"toy", "gym"} <= set(said.benchmarks)
        assert said.worker.startswith(socket.gethostname())
        stop.set()
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)


def test_a_benchmark_that_is_not_installed_here_is_told_before_anybody_is_asked(
    with_orchestrator: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from toy_benchmark import Toy

    monkeypatch.setattr(Toy, "requires", ("no_such_simulator",))

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        with pytest.raises(UsageError, match="needs no_such_simulator, not installed in this Python"):
            await starting(Worker(Connection(address), benchmark="toy"))
        assert orchestrator.heard.empty()

    with_orchestrator(test)


@pytest.mark.parametrize("kind", [LookupError, SystemExit])
def test_code_that_cannot_get_ready_is_told_with_its_traceback(
    with_orchestrator: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    from toy_benchmark import Toy

    def prepare(self: Toy, settings: object) -> None:
        raise kind("no GPU")

    monkeypatch.setattr(Toy, "prepare", prepare)

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        orchestrator.says(assignment=ASSIGNMENT)
        working = starting(Worker(Connection(address), benchmark="toy"))
        refused = await orchestrator.hears("refused")
        assert (refused.lease, refused.reason) == (
            0,
            f"prepare() of the benchmark 'toy' raised {kind.__name__}: no GPU",
        )
        lines = refused.traceback.splitlines()
        assert lines[1].endswith("in prepare"), "it begins in the user's code"
        assert lines[-1] == f"{kind.__name__}: no GPU"
        orchestrator.says(stop=pb.Stop(reason="so it cannot play."))
        with pytest.raises(CannotPlay, match="no GPU"):
            await asyncio.wait_for(working, 30)

    with_orchestrator(test)


def test_nobody_there_is_a_sentence_after_the_deadline() -> None:
    here = Address("tcp", "127.0.0.1", free_port())
    with pytest.raises(OrchestratorGone, match=rf"no orchestrator answered at {here} within 0.2 s"):
        asyncio.run(Worker(Connection(here), connect_timeout=0.2).run(asyncio.Event()))


def test_nobody_there_and_told_to_stop_it_just_ends() -> None:
    async def work() -> None:
        stop = asyncio.Event()
        working = starting(Worker(Connection(Address("tcp", "127.0.0.1", free_port()))), stop)
        await asyncio.sleep(0.05)
        stop.set()
        await asyncio.wait_for(working, 60)

    asyncio.run(work())


def test_one_that_never_answers_is_not_waited_for_for_ever(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        with pytest.raises(OrchestratorGone, match=r"within 0\.3 s"):
            await starting(Worker(Connection(address), benchmark="toy", connect_timeout=0.3))

    with_orchestrator(test)


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (
            pb.OrchestratorMessage(stop=pb.Stop(reason="it has finished.")),
            WorkerRefused,
            "no use for this worker: it has",
        ),
        (grpc.StatusCode.FAILED_PRECONDITION, WorkerRefused, "so it says"),
        (grpc.StatusCode.INTERNAL, OrchestratorGone, "went away: so it says"),
        (None, OrchestratorGone, "ended the connection without saying why"),
    ],
)
def test_who_is_not_wanted_is_told_why(
    with_orchestrator: Callable[[Test], None], answer: Any, kind: type[Exception], sentence: str
) -> None:
    joined: list[pb.Assignment] = []

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        orchestrator.to_say.put_nowait(answer)
        with pytest.raises(kind, match=sentence):
            await starting(Worker(Connection(address), benchmark="toy", on_joined=joined.append))

    with_orchestrator(test)
    assert joined == []


def test_a_worker_from_its_assignment_to_its_stop(with_orchestrator: Callable[[Test], None]) -> None:
    """With a slot: it says that it is free, gives back what it cannot play, and beats like a heart in between."""
    joined: list[pb.Assignment] = []

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), benchmark="toy", on_joined=joined.append))
        orchestrator.says(assignment=ASSIGNMENT)
        assert (await orchestrator.hears("ready")).slot == 0
        assert [assignment.benchmark for assignment in joined] == ["toy"]
        orchestrator.says(lease=pb.Lease(lease=7, task="short", seed=1))
        lost = await orchestrator.hears("lost")
        assert (lost.lease, lost.policy_unreachable) == (7, True)
        assert "no policy server answered" in lost.reason
        assert (await orchestrator.hears("ready")).slot == 0
        # Another run begins, of a policy that is elsewhere.
        elsewhere = pb.Assignment()
        elsewhere.CopyFrom(ASSIGNMENT)
        elsewhere.policy_addresses[:] = ["unix:///elsewhere.sock"]
        orchestrator.says(assignment=elsewhere)
        orchestrator.says(lease=pb.Lease(lease=8, task="short", seed=1))
        assert "elsewhere.sock" in (await orchestrator.hears("lost")).reason
        assert [slot.slot for slot in (await orchestrator.hears("heartbeat")).slots] == [0]
        orchestrator.says(stop=pb.Stop(reason="the run has finished."))
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)


@pytest.mark.processes
def test_told_to_leave_it_plays_what_it_has_to_the_end_and_takes_nothing_new(
    with_orchestrator: Callable[[Test], None],
) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        leave = asyncio.Event()
        working = starting(Worker(Connection(address), benchmark="toy", leave=leave))
        orchestrator.says(assignment=ASSIGNMENT)
        await orchestrator.hears("ready")
        orchestrator.says(lease=pb.Lease(lease=7, task="short", seed=1))
        while not (await orchestrator.hears("heartbeat")).slots[0].task:
            continue
        leave.set()
        assert (await orchestrator.hears("lost")).lease == 7, "it waits for a policy that is not there, to the end"
        async with asyncio.timeout(60):
            await orchestrator.has_left.wait()
        said = [orchestrator.heard.get_nowait().WhichOneof("message") for _ in range(orchestrator.heard.qsize())]
        assert set(said) <= {"heartbeat"}, "it did not say that its slot is free"
        assert not working.done(), "until all that it said is heard, it stays"
        orchestrator.to_say.put_nowait(None)
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)


UNTOLD = pb.Assignment(benchmark="toy", benchmark_settings="{}", slots=1)
"""As long as it is not known where the policy is."""
PREPARATION = pb.Preparation(assignment=UNTOLD, tasks=["short"], seconds=20)


def test_it_has_its_slots_before_it_is_assigned_and_says_nothing_until_then(
    with_orchestrator: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = asyncio.Event()
    heard = SlotHandle._receive

    def receive(self: SlotHandle, message: pb.WorkerMessage) -> None:
        heard(self, message)
        prepared.set()  # of a slot without a lease there is nothing else to hear

    monkeypatch.setattr(SlotHandle, "_receive", receive)

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), benchmark="toy"))
        await orchestrator.hears("register")
        orchestrator.says(preparation=PREPARATION)
        await asyncio.wait_for(prepared.wait(), 30)
        assert orchestrator.heard.empty()
        orchestrator.says(assignment=ASSIGNMENT)
        assert (await orchestrator.hears("ready")).slot == 0
        orchestrator.says(lease=pb.Lease(lease=7, task="short", seed=1))
        lost = await orchestrator.hears("lost")
        assert "nowhere.sock" in lost.reason  # it knows of the assignment
        orchestrator.says(stop=pb.Stop(reason="enough."))
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)


@pytest.mark.parametrize("end", ["stop", "told to", "gone"])
def test_it_ends_while_it_gets_ready(with_orchestrator: Callable[[Test], None], end: str) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        stop = asyncio.Event()
        worker = Worker(Connection(address), benchmark="toy")
        working = starting(worker, stop)
        await orchestrator.hears("register")
        orchestrator.says(preparation=PREPARATION)
        async with asyncio.timeout(30):
            while not worker._slots.handles or worker._slots.handles[0]._process is None:
                await asyncio.sleep(0.01)
        number = worker._slots.handles[0]._process.pid
        if end == "told to":
            stop.set()
            await asyncio.wait_for(working, 60)
        elif end == "stop":
            orchestrator.says(stop=pb.Stop(reason="the policy cannot be loaded."))
            with pytest.raises(WorkerRefused, match="the policy cannot be loaded"):
                await asyncio.wait_for(working, 60)
        else:
            orchestrator.to_say.put_nowait(grpc.StatusCode.UNAVAILABLE)
            with pytest.raises(OrchestratorGone):
                await asyncio.wait_for(working, 60)
        assert not psutil.pid_exists(number)

    with_orchestrator(test)


def test_it_gets_nothing_ready_that_it_has_not_offered(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), benchmark="toy"))
        await orchestrator.hears("register")
        wrong = pb.Assignment(benchmark="os:system", slots=1)
        orchestrator.says(preparation=pb.Preparation(assignment=wrong, seconds=20))
        with pytest.raises(WorkerRefused, match="which it has not offered"):
            await asyncio.wait_for(working, 60)

    with_orchestrator(test)


def test_an_assignment_that_never_comes_is_not_waited_for_for_ever(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), benchmark="toy"))
        await orchestrator.hears("register")
        orchestrator.says(preparation=pb.Preparation(assignment=UNTOLD, seconds=0.2))
        with pytest.raises(OrchestratorGone, match="no orchestrator answered"):
            await asyncio.wait_for(working, 60)

    with_orchestrator(test)


def test_an_orchestrator_that_goes_away_is_an_error(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), benchmark="toy"))
        orchestrator.says(assignment=ASSIGNMENT)
        await orchestrator.hears("ready")
        orchestrator.to_say.put_nowait(grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(OrchestratorGone, match="went away: so it says"):
            await asyncio.wait_for(working, 60)

    with_orchestrator(test)


def test_settings_that_the_benchmark_does_not_know_end_it(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        wrong = pb.Assignment()
        wrong.CopyFrom(ASSIGNMENT)
        wrong.benchmark_settings = '{"step_second": 1}'
        working = starting(Worker(Connection(address), benchmark="toy"))
        orchestrator.says(assignment=wrong)
        with pytest.raises(UsageError, match="step_seconds"):
            await asyncio.wait_for(working, 60)

    with_orchestrator(test)


def test_what_is_local_to_the_orchestrator_is_dialled_where_it_was_reached(
    tmp_path: Path, with_orchestrator: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARRING_HOST", "the-host")  # as in a container
    joined: list[pb.Assignment] = []

    async def test(orchestrator: Orchestrator, address: Address) -> None:
        stop = asyncio.Event()
        assignment = pb.Assignment()
        assignment.CopyFrom(ASSIGNMENT)
        assignment.policy_addresses[:] = ["127.0.0.1:5", "other:6"]
        working = starting(Worker(Connection(address), benchmark="toy", on_joined=joined.append), stop)
        orchestrator.says(assignment=assignment)
        while not joined:
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)
    assert list(joined[0].policy_addresses) == ["the-host:5", "other:6"]


# ------------------------------------------------------------------------------------ a stream that breaks

MEMBER = pb.Assignment()
MEMBER.CopyFrom(ASSIGNMENT)
MEMBER.policy_seconds = (
    60  # there is none: a slot that has a lease waits for it, and so plays for as long as a test likes
)
MEMBER.membership = "secret"
MEMBER.rejoin_seconds = 60


@pytest.mark.processes
@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, None], ids=["breaks", "ends"])
def test_it_comes_back_with_the_leases_that_it_holds(
    with_orchestrator: Callable[[Test], None], status: grpc.StatusCode | None
) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), name="mine", benchmark="toy"))
        orchestrator.says(assignment=MEMBER)
        first = await orchestrator.hears("register")
        assert (first.membership, list(first.held)) == ("", [])
        await orchestrator.hears("ready")
        orchestrator.says(lease=pb.Lease(lease=7, task="short", seed=1))
        while not (await orchestrator.hears("heartbeat")).slots[0].task:
            continue
        orchestrator.to_say.put_nowait(status)
        again = await orchestrator.hears("register")
        assert (again.membership, list(again.held)) == ("secret", [7])
        kept = pb.Assignment()
        kept.CopyFrom(MEMBER)
        kept.kept.append(7)
        orchestrator.says(assignment=kept)
        assert (await orchestrator.hears("heartbeat")).slots[0].task == "short", "it goes on"
        orchestrator.to_say.put_nowait(status)
        assert list((await orchestrator.hears("register")).held) == [7]
        orchestrator.says(assignment=MEMBER)  # somebody else has it now
        assert (await orchestrator.hears("ready")).slot == 0
        assert not (await orchestrator.hears("heartbeat")).slots[0].task
        orchestrator.to_say.put_nowait(status)
        assert list((await orchestrator.hears("register")).held) == []
        orchestrator.says(assignment=MEMBER)
        assert (await orchestrator.hears("ready")).slot == 0, "who was free says so again"
        orchestrator.says(stop=pb.Stop(reason="the run has finished."))
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)


@pytest.mark.processes
def test_it_does_not_come_back_to_another_run(with_orchestrator: Callable[[Test], None]) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), name="mine", benchmark="toy"))
        orchestrator.says(assignment=MEMBER)
        await orchestrator.hears("ready")
        orchestrator.to_say.put_nowait(grpc.StatusCode.UNAVAILABLE)
        orchestrator.to_say.put_nowait(grpc.StatusCode.FAILED_PRECONDITION)
        with pytest.raises(OrchestratorGone, match="went away: so it says"):
            await asyncio.wait_for(working, 60)

    with_orchestrator(test)


@pytest.mark.processes
def test_what_may_have_been_on_its_way_when_the_stream_broke_is_said_again(
    with_orchestrator: Callable[[Test], None],
) -> None:
    async def test(orchestrator: Orchestrator, address: Address) -> None:
        working = starting(Worker(Connection(address), name="mine", benchmark="toy"))
        member = pb.Assignment()
        member.CopyFrom(MEMBER)
        member.policy_seconds = 0.2
        orchestrator.says(assignment=member)
        await orchestrator.hears("ready")
        orchestrator.says(lease=pb.Lease(lease=7, task="short", seed=1))
        assert (await orchestrator.hears("lost")).lease == 7
        await orchestrator.hears("ready")
        orchestrator.to_say.put_nowait(grpc.StatusCode.UNAVAILABLE)
        assert list((await orchestrator.hears("register")).held) == [7]
        member.kept.append(7)  # it had not arrived
        orchestrator.says(assignment=member)
        assert (await orchestrator.hears("lost")).lease == 7
        assert (await orchestrator.hears("ready")).slot == 0
        orchestrator.says(stop=pb.Stop(reason="the run has finished."))
        await asyncio.wait_for(working, 60)

    with_orchestrator(test)
