"""A run's heart for tests: a plan of the toy benchmark, a journal on disk, a coordinator, and who watches it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.listeners import FilmCount, RunListener, SlotActivity
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.pieces import AttachmentKind, pieces_of

LOSSES = 3
"""An episode that was lost so often is given up."""


class Watcher(RunListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.rows: list[EpisodeRow] = []
        self.warnings: list[str] = []
        self.retries: list[tuple[EpisodeId, str]] = []
        self.workers: list[tuple[str, int]] = []
        self.activities: list[SlotActivity] = []
        self.films: list[FilmCount] = []

    def on_worker(self, worker: str, slots: int) -> None:
        self.workers.append((worker, slots))

    def on_activity(self, activity: SlotActivity) -> None:
        self.activities.append(activity)

    def on_films(self, films: FilmCount) -> None:
        self.films.append(films)

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self.retries.append((episode, reason))

    def on_warning(self, sentence: str) -> None:
        self.warnings.append(sentence)

    def on_result(self, row: EpisodeRow) -> None:
        self.rows.append(row)


class Run:
    """A coordinator and all that is around it; made in a running event loop.

    Args:
        folder: Of the run.
        rules: When something is tried again; by default those of the settings, and few losses.
        settings: What differs from two episodes of `short`.
    """

    def __init__(self, folder: Path, *, rules: RetryRules | None = None, **settings: Any) -> None:
        self.settings = read_settings(
            {"benchmark": "toy", "task": "short", "policy": "zero", "episodes": 2, "seed": 100, **settings}
        )
        self.folder = folder
        self.journal = Journal(folder)
        self.watcher = Watcher()
        rules = rules or RetryRules(retries=self.settings.plan.retries, losses=LOSSES)
        plan = make_plan(self.settings)
        self.coordinator = Coordinator(plan, self.settings, self.journal, folder, self.watcher, rules)


class Hand:
    """A worker that does by hand what a test tells it to."""

    def __init__(
        self, run: Run, name: str = "w", *, slots: int = 1, benchmark: str = "toy", launched: bool = True
    ) -> None:
        self.run = run
        self.inbox: list[pb.OrchestratorMessage] = []
        register = pb.Register(worker=name, versions={"numpy": "1"})
        assignment = pb.Assignment(benchmark=benchmark, slots=slots)
        self.name = run.coordinator.join(register, assignment, self.inbox.append, launched=launched)

    def says(self, **message: Any) -> None:
        self.run.coordinator.handle(self.name, pb.WorkerMessage(**message))

    def ready(self, slot: int = 0) -> pb.Lease | None:
        """Asks for a lease; the one that came at once, if any did."""
        before = len(self.leases)
        self.says(ready=pb.Ready(slot=slot))
        return self.leases[-1] if len(self.leases) > before else None

    def takes(self, slot: int = 0) -> pb.Lease:
        lease = self.ready(slot)
        assert lease is not None, "there was nothing to do"
        return lease

    def finishes(
        self,
        lease: pb.Lease,
        outcome: pb.Outcome = pb.OUTCOME_SUCCESS,
        *,
        video: bytes = b"",
        recording: bytes = b"",
        **result: Any,
    ) -> None:
        """Says what came of a lease, after its film and its recording."""
        self.attaches(lease, "video", video)
        self.attaches(lease, "recording", recording)
        sizes = {"video_bytes": len(video), "recording_bytes": len(recording)}
        self.says(result=pb.Result(lease=lease.lease, outcome=outcome, **{**sizes, **result}))

    def attaches(self, lease: pb.Lease, kind: AttachmentKind, content: bytes) -> None:
        for piece in pieces_of(lease.lease, kind, io.BytesIO(content)):
            self.says(piece=piece)

    def leaves(self, reason: str = "it left.") -> None:
        self.run.coordinator.leave(self.name, reason)

    @property
    def leases(self) -> Sequence[pb.Lease]:
        return [message.lease for message in self.inbox if message.WhichOneof("message") == "lease"]
