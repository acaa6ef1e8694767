"""Films and recordings of episodes: their pieces come before their results, and they are kept where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.file_names import FileNames
from sparring.orchestrator.run.films import Films
from sparring.orchestrator.run.incoming import Incoming
from sparring.orchestrator.run.scheduler import Lease, Scheduler
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.pieces import AttachmentKind, AttachmentMissing, kind_of
from sparring.protos.record import Outcome


class Attachments:
    """Collects the files that belong to results.

    Args:
        plan: Of the run.
        settings: Of the run.
        folder: For films.
        scheduler: Says which episodes are being played.
        films: Says which are played again.
    """

    def __init__(self, plan: Plan, settings: RunSettings, folder: Path, scheduler: Scheduler, films: Films) -> None:
        self._output = settings.output
        self._folder = folder
        self._scheduler = scheduler
        self._films = films
        folders: dict[AttachmentKind, Path] = {"video": folder / "videos"}
        if settings.output.record is not None:
            folders["recording"] = settings.output.record
        self._incoming = Incoming(folder, folders)
        self._names = FileNames(plan)

    def piece(self, piece: pb.Piece) -> None:
        """Takes a piece of a film or a recording, if the lease was asked for one.

        Raises:
            SparringError: If it cannot be written.
        """
        lease, replay = self._scheduler.holder(piece.lease), self._films.holder(piece.lease)
        wanted = {
            "video": replay is not None or (lease is not None and self._films.may_come(lease.episode)),
            "recording": lease is not None,
        }
        if wanted.get(kind_of(piece) or ""):
            self._incoming.add(piece)

    def is_whole(self, result: pb.Result) -> bool:
        """Returns whether the film and the recording of a result have come before it, as far as they are wanted."""
        known = self._scheduler.holder(result.lease) or self._films.holder(result.lease)
        return known is None or self._incoming.is_whole(result)

    def save(self, lease: Lease, result: pb.Result, outcome: Outcome) -> tuple[str, Sequence[str]]:
        """Moves the recording and the film of an episode to where they belong.

        Returns:
            The film's name, or nothing; and sentences about what is missing.
        """
        episode = lease.episode
        film = self._film_name(episode, outcome)
        targets: dict[AttachmentKind, Path] = {}
        if self._output.record is not None:
            targets["recording"] = self._names.recording(self._output.record, episode)
        if self._output.wants_film(episode.task, episode.index, outcome, benchmark=episode.benchmark):
            targets["video"] = self._folder / film
        kept: set[AttachmentKind] = set()
        missing = []
        for kind, target in targets.items():
            try:
                if self._incoming.keep(result, kind, target):
                    kept.add(kind)
            except AttachmentMissing as error:
                missing.append(f"its {kind} is missing: {error.sentence}")
        return (film if "video" in kept else ""), missing

    def save_replay(self, lease: Lease, result: pb.Result, outcome: Outcome) -> str:
        """Moves the film of an episode that was played again to where it belongs; returns its name.

        Args:
            lease: Of the replay.
            result: Of the replay.
            outcome: That was recorded.

        Raises:
            AttachmentMissing: If there is none.
            SparringError: If it cannot be written.
        """
        film = self._film_name(lease.episode, outcome)
        if not self._incoming.keep(result, "video", self._folder / film):
            raise AttachmentMissing("the worker sent none.")
        return film

    def drop(self, lease: int) -> None:
        """Throws away what has come for a lease and is not kept."""
        self._incoming.drop(lease)

    def close(self) -> None:
        """Throws away what has come of films and recordings whose result has not."""
        self._incoming.close()

    def _film_name(self, episode: EpisodeId, outcome: Outcome) -> str:
        if self._output.video_names == "lerobot":
            return f"videos/{self._names.lerobots_film(episode)}"
        return f"videos/{self._names.film(episode, outcome)}"
