"""When a run is given up because nothing but one and the same error comes of it."""

from __future__ import annotations

import re

from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.plan import EpisodeId
from sparring.orchestrator.run.retry import is_incurable
from sparring.protos.advice import Hint
from sparring.protos.record import EpisodeRecord


class ErrorLimit:
    """Watches the attempts of an execution until the first that has an outcome: a run in which some work goes on.

    Args:
        most: So many attempts that end in the same error, of more than one episode, are enough; 0: no number is. Of an
            error that no attempt can cure, two are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen = ""
        self._attempts = 0
        self._episodes: set[EpisodeId] = set()

    def heard(self, episode: EpisodeId, record: EpisodeRecord) -> None:
        """Hears what came of an attempt.

        Raises:
            RunStopped: If all attempts so far have ended in this error, and they were enough.
        """
        if not self._most:
            return
        error = same_for_all(record.error, episode)
        if record.outcome != "error" or (self._seen and error != self._seen):
            self._most = 0  # something else can come of it: the run is worth its time
            return
        self._seen = error
        self._attempts += 1
        self._episodes.add(episode)
        enough = min(2, self._most) if is_incurable(record.error) else self._most
        if self._attempts >= enough and len(self._episodes) > 1:
            raise RunStopped(
                f"the run stops, because all {self._attempts} attempts so far, of {len(self._episodes)} episodes, "
                f"ended in the same error: {record.error} (To go on in any case: {Hint('max_errors', value=0)}.)"
            )


def same_for_all(error: str, episode: EpisodeId | None) -> str:
    """Returns an error without what differs from episode to episode: the task's name, and numbers."""
    without_task = error
    if episode is not None:
        without_task = re.sub(rf"(?<![\w-]){re.escape(episode.task)}(?![\w-])", "TASK", error)
    return re.sub(r"0x[0-9a-f]+|\d+", "0", without_task)
