"""What has gone wrong in a run so far: each error once, with how many episodes had it, in the room that there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from sparring.orchestrator.display.screen import count
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.run.error_limit import same_for_all
from sparring.protos.tracebacks import references


@dataclass
class Note:
    """An error, and who had it.

    Attributes:
        sentence: Of the first time.
        last: The episode that had it last.
        attempts: How often it came.
        episodes: That had it.
    """

    sentence: str
    last: EpisodeId
    attempts: int = 0
    episodes: set[EpisodeId] = field(default_factory=set)

    @property
    def who(self) -> str:
        """Who had it, for a line of its own."""
        if len(self.episodes) == 1:
            tries = f", {self.attempts} attempts" if self.attempts > 1 else ""
            return f"{self.last.task} #{self.last.index}{tries}"
        return (
            f"the same error, {len(self.episodes)} episodes ({count(self.attempts, 'attempt')}); "
            f"the last: {self.last.task} #{self.last.index}"
        )


class Notes:
    """Collects errors."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def add(self, episode: EpisodeId, sentence: str, *, attempts: int = 1) -> Note:
        """Notes that attempts of an episode have ended in an error, or were lost; that one is the latest.

        What was raised at the same place is the same error, whatever it says: the sentence of a task may be in it.
        """
        key = next(iter(references(sentence)), "") or same_for_all(sentence, episode)
        note = self._notes.pop(key, None) or Note(sentence, episode)
        note.attempts += attempts
        note.episodes.add(episode)
        note.last = episode
        self._notes[key] = note
        return note

    def latest(self, most: int) -> Sequence[Note]:
        """Returns the errors that came last, the newest at the end."""
        return list(self._notes.values())[-most:]

    def shown(self, console: Console, width: int, rows: int) -> Iterator[Text]:
        """Returns lines about the newest errors that fit, newest last: what was raised, and who had it."""
        notes = self.latest(max(1, rows // 3))
        for note in notes:
            room = max(1, rows // len(notes) - 1)
            lines = Text(note.sentence.splitlines()[0] if note.sentence else "", style="yellow").wrap(console, width)
            for line in list(lines)[:room]:
                line.rstrip()
                yield line
            if rows > 1:
                who = Text(f"  {note.who}", style="dim")
                who.truncate(width, overflow="ellipsis")
                yield who
