"""When a run is given up because nothing but errors comes of it, and one of them again and again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.retry import is_incurable
from sparring.orchestrator.run.errors import RunStopped
from sparring.protos.advice import Hint
from sparring.protos.record import EpisodeRecord
from sparring.protos.tracebacks import references

_NUMBER: Final = re.compile(r"0x[0-9a-f]+|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_QUOTED: Final = re.compile(r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\")")
"""What somebody has quoted; the apostrophe in "the policy's" begins nothing."""
_OUTLIVED: Final = 3
"""So many attempts that began later and have failed already, and one that still goes on is waited for."""
_MOST_KINDS: Final = 100
"""Different errors that are counted; those that are new after that are not, and are no reason to stop."""


class ErrorLimit:
    """Watches the attempts of an execution until the first that has an outcome: a run in which some work goes on.

    Args:
        most: So many attempts that end in the same error, of more than one episode, are enough; 0: no number is. Of an
            error that no attempt can cure, two are. What is raised at the same place is the same, whatever it says.
            Other errors between them make no difference: a policy may fail to load its weights once, and at every
            answer afterwards.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._attempts = 0
        self._episodes: set[EpisodeId] = set()
        self._counts: Counter[str] = Counter()
        self._episodes_of: dict[str, set[EpisodeId]] = {}
        self._outlived: Counter[int] = Counter()

    def heard(
        self, episode: EpisodeId, record: EpisodeRecord, *, lease: int = 0, in_flight: Sequence[int] = ()
    ) -> None:
        """Hears what came of an attempt.

        Args:
            episode: That was tried.
            record: What came of it.
            lease: The number of its loan.
            in_flight: The numbers of all loans that have not ended, this one among them, in the order of lending.

        Raises:
            RunStopped: If all attempts so far have ended in errors, and those that ended in this one were enough.
        """
        if not self._most:
            return
        if record.outcome != "error":
            self._most = 0  # something else can come of it: the run is worth its time
            return
        self._attempts += 1
        self._episodes.add(episode)
        older = in_flight[: in_flight.index(lease)] if lease in in_flight else ()
        self._outlived.update(older)
        error = _where_or_what(record.error, episode)
        if error not in self._counts and len(self._counts) >= _MOST_KINDS:
            return
        self._counts[error] += 1
        episodes = self._episodes_of.setdefault(error, set())
        episodes.add(episode)
        enough = min(2, self._most) if is_incurable(record.error) else self._most
        # Errors come sooner than successes: who has outlived some of them may well be one.
        hopeful = any(self._outlived[number] >= _OUTLIVED for number in in_flight if number != lease)
        if self._counts[error] >= enough and len(episodes) > 1 and not hopeful:
            raise RunStopped(
                f"the run stops, because all {self._attempts} attempts so far, of {len(self._episodes)} episodes, "
                f"{self._how_many(error)}ended in the same error: {record.error} "
                f"(To go on in any case: {Hint('max_errors', value=0)}.)"
            )

    def _how_many(self, error: str) -> str:
        others = self._attempts - self._counts[error]
        return f"ended in errors, and {self._counts[error]} of them " if others else ""


def same_for_all(error: str, episode: EpisodeId | None) -> str:
    """Returns an error without what differs from episode to episode: the task's name, and numbers."""
    without_task = error
    if episode is not None:
        without_task = re.sub(rf"(?<![\w-]){re.escape(episode.task)}(?![\w-])", "TASK", error)
    return _NUMBER.sub("0", without_task)


def _where_or_what(error: str, episode: EpisodeId) -> str:
    """Returns where an error was raised, by the traceback that was kept of it; else what it says to all alike.

    Messages have in them what code has stumbled over, such as the sentence of a task, and that may never be the same.
    """
    kept = references(error)
    return kept[0] if kept else _QUOTED.sub("''", same_for_all(error, episode))
