"""Episodes of a run as recordings with every step, made by playing them again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.replays import Replayed

log = logging.getLogger(__name__)

Play = Callable[[Callable[[Replayed], None]], Mapping[EpisodeId, str]]
"""Plays episodes again, tells of each, and returns those that it could not tell of, and why."""


class ReplayedEpisodes:
    """Collects recordings of replays, which end in any order, and gives them out in that of the plan.

    A replay that is not the episode that was recorded is left out, with a warning.

    Args:
        folder: Where recordings wait for their turn.
        order: The episodes that are wanted.
    """

    def __init__(self, folder: Path, order: Sequence[EpisodeId]) -> None:
        self._paths = {episode: folder / f"{number:06d}.npz" for number, episode in enumerate(order)}
        self.missing: dict[EpisodeId, str] = {}
        """Those that are left out, and why."""

    def play(self, play: Play) -> None:
        """Has them played.

        Raises:
            SparringError: If that could not be finished.
        """
        for episode, why in play(self._heard).items():
            self._leave_out(episode, why)

    def __iter__(self) -> Iterator[RecordedEpisode]:
        for path in self._paths.values():
            if path.exists():
                yield RecordedEpisode(path)
                path.unlink()  # it is in the data set by now

    def _heard(self, replayed: Replayed) -> None:
        episode = replayed.recorded.id
        if problem := replayed.difference or replayed.missing:
            self._leave_out(episode, problem)
        else:
            assert replayed.recording is not None
            replayed.recording.replace(self._paths[episode])

    def _leave_out(self, episode: EpisodeId, why: str) -> None:
        self.missing[episode] = why
        log.warning("%s is left out: %s", episode, why)
