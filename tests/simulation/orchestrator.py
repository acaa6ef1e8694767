"""The orchestrator of a simulated run: all of it is real but the wire, and it can be killed at any write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from simulation.grounds import Grounds
from simulation.ledger import Expected, Ledger
from simulation.wire import LAUNCHED, TOKEN, Aborted, Stream

from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.net.address import Address


class Killed(BaseException):
    """The orchestrator's process has ended, in the middle of whatever it was doing. Nobody catches that."""


class _KilledJournal(Journal):
    """A journal whose writer is killed at a write: before it, or right after."""

    def __init__(self, folder: Path) -> None:
        self.writes_left = -1
        self.is_dead = False
        super().__init__(folder)

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        self._connection.execute("PRAGMA synchronous=OFF")  # processes are killed here, and no machines

    def record(self, row: EpisodeRow, actions: bytes = b"", trace: bytes = b"") -> bool:
        write = super().record
        return self._written(lambda: write(row, actions, trace))  # type: ignore[no-any-return]

    def note(self, kind: str, message: str, *, episode: EpisodeId | None = None, worker: str = "") -> None:
        self._written(lambda: super(_KilledJournal, self).note(kind, message, episode=episode, worker=worker))

    def _written(self, write: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise Killed
        self.writes_left -= 1
        if self.writes_left == 0:
            self.is_dead = True
            raise Killed
        written = write()
        if self.writes_left == 1:  # the next one would be the end: this is as good a place
            self.is_dead = True
            raise Killed
        return written


class _WatchedCoordinator(Coordinator):
    """Tells the ledger what goes in and comes out."""

    ledger: Ledger
    grounds: Grounds

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._launched: set[str] = set()
        self.policy_reports.on_report = self._look_into

    def _look_into(self, worker: str, reason: str) -> None:
        """Finds out that the policy is what it was, after a while."""
        asyncio.get_running_loop().call_later(2.0, self.workers.send_away, worker, f"it is not so: {reason}")

    def join(
        self,
        register: pb.Register,
        assignment: pb.Assignment,
        send: Callable[[pb.OrchestratorMessage], None],
        *,
        part: str = "",
        launched: bool = False,
    ) -> str:
        def sent(message: pb.OrchestratorMessage) -> None:
            if message.WhichOneof("message") == "lease":
                self.ledger.granted(name, message.lease)
            send(message)

        name = super().join(register, assignment, sent, part=part, launched=launched)
        (self._launched.add if launched else self._launched.discard)(name)
        return name

    def take_back(self, worker: str, held: Collection[int]) -> Sequence[int]:
        kept = super().take_back(worker, held)
        for number in kept:
            assert number in held, f"lease {number} was not asked for"
            self.ledger.taken_back(worker, number)
        return kept

    def leave(self, worker: str, reason: str) -> None:
        if not self.ended.done():
            self.ledger.left(worker)
        super().leave(worker, reason)
        if not (self.ended.done() and self.ended.exception()):
            self.ledger.heard()

    def handle(self, worker: str, message: pb.WorkerMessage) -> None:
        if not self.ended.done():
            self._tell(worker, message)
        super().handle(worker, message)
        if not (self.ended.done() and self.ended.exception()):  # else what was being dealt with is as if it was killed
            self.ledger.heard()

    def _tell(self, worker: str, message: pb.WorkerMessage) -> None:
        kind = message.WhichOneof("message")
        number = message.result.lease or message.lost.lease or message.refused.lease
        episode, holder = self.ledger.held.get(number, (None, ""))
        if episode is not None and holder == worker:
            self.grounds.said(message, episode, launched=worker in self._launched)
        if kind == "result":
            self.ledger.result(worker, message.result)
        elif kind == "piece":
            self.ledger.piece(worker, message.piece)
        elif kind == "lost" and (message.lost.policy_full or message.lost.policy_changed):
            self.ledger.given_back(worker, number)
        elif kind == "lost" and message.lost.interrupted:
            self.ledger.interrupted(worker, number)
        elif kind == "refused" and not number:
            self.grounds.cannot_begin(launched=worker in self._launched)
        elif kind in ("lost", "refused"):
            self.ledger.lost(worker, number)


class _Listener(RunListener):
    """Believes what it hears: all of it must be in the journal, then and later."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def on_result(self, row: EpisodeRow) -> None:
        assert self._ledger.rows[row.id] == Expected.of(row), f"{row} was told, {self._ledger.rows[row.id]} is right"


class _Nobody:
    """Whom the streams of a killed orchestrator still talk to."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class Orchestrator:
    """One execution of a run, from start or resume to its end, by whatever.

    Args:
        folder: Of the run; what is there is gone on with.
        plan: Of the run.
        settings: Of the run.
        rules: When something is tried again.
        ledger: Hears of everything.
        grounds: Hears it, too.
        writes_left: At which write to be killed; negative: at none.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        settings: RunSettings,
        rules: RetryRules,
        ledger: Ledger,
        grounds: Grounds,
        *,
        writes_left: int = -1,
    ) -> None:
        self.journal = _KilledJournal(folder)
        ledger.killed(self.journal.rows(), self.journal.failed_attempts())
        self.journal.writes_left = writes_left
        self.coordinator = _WatchedCoordinator(plan, settings, self.journal, folder, _Listener(ledger), rules)
        self.coordinator.ledger, self.coordinator.grounds = ledger, grounds
        policy = PolicyAccess([Address.parse("unix:/nowhere/policy.sock")])
        self._service = WorkService(
            self.coordinator, settings, policy, default_slots=2, admission=Admission(TOKEN, LAUNCHED)
        )
        self._streams: dict[asyncio.Task[None], Stream] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def accept(self, stream: Stream) -> None:
        """Takes in a worker's stream."""
        task = asyncio.create_task(self._serve(stream))
        self._streams[task] = stream
        task.add_done_callback(self._streams.pop)

    async def ended(self) -> str:
        """Waits for the end: "finished", "stopped" by a rule, or "killed" in the middle of a write."""
        await asyncio.wait({self.coordinator.ended, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            self._failed.result()
            return "killed"
        return "stopped" if self.coordinator.ended.exception() else "finished"

    async def kill(self) -> None:
        """Ends it as SIGKILL does: nothing is written, streams break."""
        self._service.coordinator = _Nobody()  # type: ignore[assignment]
        self.journal.is_dead = True
        await self._break_streams()

    async def interrupt(self) -> None:
        """Ends it as Ctrl-C does: nothing more is written, and what had come of recordings is thrown away."""
        self.coordinator.abandon()
        await self._break_streams()

    async def _break_streams(self) -> None:
        tasks: Sequence[asyncio.Task[None]] = list(self._streams)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.journal.close()

    async def _serve(self, stream: Stream) -> None:
        try:
            await self._service.Work(stream, stream)  # type: ignore[arg-type]
        except Aborted:
            pass
        except Killed:
            if not self._failed.done():
                self._failed.set_result(None)
        except Exception as error:  # noqa: BLE001  # whatever it is, the schedule fails with it
            if not self._failed.done():
                self._failed.set_exception(error)
        finally:
            stream.close()
