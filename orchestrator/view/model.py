"""What is known of a run at this moment, and what has changed since somebody looked last."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.error_limit import same_for_all
from sparring.orchestrator.run.file_names import FileNames
from sparring.orchestrator.run.listeners import FilmCount, SlotActivity
from sparring.orchestrator.serving.stats import ServerLoad
from sparring.orchestrator.view.rates import Rates
from sparring.protos.tracebacks import references

_MOST_NOTES: Final = 200
_MOST_SLOTS: Final = 256
"""That are shown one by one."""


@dataclass(frozen=True)
class RunFacts:
    """What a run is.

    Attributes:
        title: In a line.
        folder: Its output folder, as its user named it.
        plan: All its episodes.
        metric: What it is about.
        has_slots: Whether it is known what its slots do.
        protocols: Labels of its parts, where it plays the same tasks by several protocols: each has its own rate.
    """

    title: str
    folder: Path
    plan: Plan
    metric: str
    has_slots: bool
    protocols: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns what the page is told of it."""
        return {
            "title": self.title,
            "folder": str(self.folder),
            "metric": self.metric,
            "has_slots": self.has_slots,
            "protocols": list(self.protocols),
            "planned": self.plan.count,
            "per_task": self.plan.plays,
            "tasks": [
                {"name": label, "benchmark": benchmark, "group": task.group, "instruction": task.instruction}
                for label, (benchmark, task) in self.plan.labels().items()
            ],
        }


@dataclass(frozen=True)
class SeenSoFar:
    """How much of a model somebody has seen: numbers that only grow."""

    epoch: int = -1
    cells: int = 0
    curve: int = 0
    slots: int = 0
    notes: int = 0
    rest: int = 0


@dataclass
class _Note:
    kind: str
    sentence: str
    at: float
    number: int
    last: str = ""
    n: int = 0
    episodes: set[EpisodeId] = field(default_factory=set)

    def to_json(self) -> dict[str, Any]:
        told = {"kind": self.kind, "sentence": self.sentence, "at": self.at, "last": self.last, "n": self.n}
        return {**told, "number": self.number, "episodes": len(self.episodes)}


class RunModel:
    """A run, for any number of people who look at it. It is told from one thread, and looked at from another."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._about: RunFacts | None = None
        self._epoch = 0
        self._rest = 1
        self._status, self._status_told = "starting", "the run is starting: there is nothing to see of it yet"
        self._began = time.monotonic()
        self._clear()

    def _clear(self) -> None:
        self._epoch += 1
        self._rows: dict[EpisodeId, EpisodeRow] = {}
        self._tasks: dict[tuple[str, str], int] = {}
        self._cells: list[list[Any]] = []
        """One for each time that something became known of an episode, in that order."""
        self._converging = Rates(Plan({}, 0, 0), "success")
        self._converged: dict[str, Any] | None = None
        self._slots: dict[tuple[str, int], SlotActivity] = {}
        self._slots_changed = 0
        self._notes: OrderedDict[tuple[str, str], _Note] = OrderedDict()
        self._noted = 0
        self._films = FilmCount()
        self._server: ServerLoad | None = None
        self._done_before = 0

    def begin(self, about: RunFacts, rows: Iterable[EpisodeRow]) -> None:
        """Begins anew: with a run, and what is recorded of it, in the order in which that happened."""
        with self._lock:
            self._clear()
            self._show(about, rows)

    def settle(self, about: RunFacts, rows: Iterable[EpisodeRow]) -> None:
        """Shows what is left of a run that stopped early, and no more; all else that is known of it stays."""
        with self._lock:
            place = {episode: number for number, episode in enumerate(self._rows)}
            self._epoch += 1
            self._rows, self._cells = {}, []
            self._show(about, sorted(rows, key=lambda row: place.get(row.id, len(place))))

    def _show(self, about: RunFacts, rows: Iterable[EpisodeRow]) -> None:
        self._about = about
        labels = about.plan.labels()
        self._tasks = {(benchmark, task.name): at for at, (benchmark, task) in enumerate(labels.values())}
        self._converging = Rates(about.plan, about.metric, about.protocols)
        self._converged = None
        for row in rows:
            self.add(row)
        self._began, self._done_before = time.monotonic(), len(self._rows)

    def shows(self, about: RunFacts) -> bool:
        """Returns whether this is the run that it shows."""
        return self._about == about

    def add(self, row: EpisodeRow) -> None:
        """Takes down what became of an episode, or that there is a film of it now."""
        with self._lock:
            before = self._rows.get(row.id)
            task = self._tasks.get((row.benchmark, row.task))
            if task is None or before == row:
                return
            self._rows[row.id] = row
            self._cells.append(
                [task, row.index, row.outcome, row.steps, row.reward_sum, row.video, row.error, row.seed, row.seconds]
            )
            if before is None or before.outcome != row.outcome:
                self._converging.add(row, before)
                self._converged = None

    def status(self, status: str, told: str) -> None:
        """Takes down how far the run is: `running`, `unfinished`, `finished`, or that it cannot be read."""
        with self._lock:
            if (status, told) != (self._status, self._status_told):
                self._status, self._status_told = status, told
                self._rest += 1

    def worker(self, worker: str, slots: int) -> None:
        """Takes down that a worker has come with so many slots, or has gone."""
        with self._lock:
            self._slots = {key: activity for key, activity in self._slots.items() if key[0] != worker}
            self._slots |= {(worker, number): SlotActivity(worker, number) for number in range(slots)}
            self._slots_changed += 1

    def activity(self, activity: SlotActivity) -> None:
        """Takes down what a slot does."""
        with self._lock:
            key = activity.worker, activity.slot
            if self._slots.get(key) != activity:
                self._slots[key] = activity
                self._slots_changed += 1

    def films(self, films: FilmCount) -> None:
        """Takes down how far films are."""
        with self._lock:
            self._films = films
            self._rest += 1

    def server(self, load: ServerLoad | None) -> None:
        """Takes down what the policy servers do."""
        with self._lock:
            if load != self._server:
                self._server = load
                self._rest += 1

    def note(self, kind: str, sentence: str, episode: EpisodeId | None = None, at: float | None = None) -> None:
        """Takes down what people should hear of: each sentence once, with how often it came.

        Args:
            kind: `warning`, `error`, `retry`, or `worker`.
            sentence: What happened.
            episode: To which; None: to none.
            at: When, in seconds since 1970; None: now.
        """
        with self._lock:
            place = next(iter(references(sentence)), "")
            key = kind, sentence if episode is None else place or same_for_all(sentence, episode)
            self._noted += 1
            found = self._notes.pop(key, None) or _Note(kind, sentence, 0.0, self._noted)
            found.n += 1
            found.at = time.time() if at is None else at
            found.number = self._noted
            if episode is not None:
                found.episodes.add(episode)
                found.last = f"{episode.task} #{episode.index}"
            self._notes[key] = found
            while len(self._notes) > _MOST_NOTES:
                self._notes.popitem(last=False)

    def row(self, task: int, index: int) -> EpisodeRow | None:
        """Returns what is recorded of an episode, by the number of its task."""
        with self._lock:
            found = next((key for key, number in self._tasks.items() if number == task), None)
            return None if found is None else self._rows.get(EpisodeId(*found, index))

    def film_files(self, task: int, index: int) -> list[str]:
        """Returns where the film of an episode may be in the run's folder, by the number of its task."""
        row, about = self.row(task, index), self._about
        return [] if row is None or about is None else FileNames(about.plan).films(row)

    def has_slot(self, worker: str, slot: int) -> bool:
        """Returns whether there is such a slot."""
        return (worker, slot) in self._slots

    def news(self, seen: SeenSoFar) -> tuple[dict[str, Any] | None, SeenSoFar]:
        """Returns what somebody has not seen yet, ready for JSON, and how much they have seen then; None: nothing."""
        with self._lock:  # the run waits for it: here things are only taken, and what takes long is done after
            about = self._about
            if about is None:
                told = SeenSoFar(rest=self._rest)
                return (None if seen == told else self._rest_json()), told
            fresh = seen.epoch != self._epoch
            seen = SeenSoFar(self._epoch) if fresh else seen
            curve = self._converging.points
            now = SeenSoFar(self._epoch, len(self._cells), len(curve), self._slots_changed, self._noted, self._rest)
            if now == seen and not fresh:
                return None, seen
            news: dict[str, Any] = {}
            if now.cells != seen.cells or fresh:
                news["cells"], news["curve"] = self._cells[seen.cells :], curve[seen.curve :]
                news["progress"] = self._progress()
            slots = list(self._slots.items()) if now.slots != seen.slots or fresh else None
            if now.notes != seen.notes or fresh:
                news["notes"] = [note.to_json() for note in self._notes.values() if note.number > seen.notes]
            if now.rest != seen.rest or fresh:
                news |= self._rest_json()
        if fresh:
            news["about"] = about.to_json()
        if slots is not None:
            slots.sort(key=lambda item: item[0])
            news["slots"] = [asdict(activity) for _, activity in slots[:_MOST_SLOTS]]
            news["slots_left_out"] = max(0, len(slots) - _MOST_SLOTS)
        return finite(news), now

    def _rest_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"status": self._status, "status_told": self._status_told}
        server = None if self._server is None else _server_json(self._server)
        return {**told, "films": asdict(self._films), "server": server}

    def _progress(self) -> dict[str, Any]:
        assert self._about is not None
        done, planned = len(self._rows), self._about.plan.count
        since = done - self._done_before
        eta = (time.monotonic() - self._began) / since * (planned - done) if since > 0 else None
        if self._converged is None:  # once for all who look
            self._converged = self._converging.to_json()
        return {"done": done, "eta": eta, **self._converged}


def _server_json(load: ServerLoad) -> dict[str, Any]:
    sizes = sorted(load.batches.items())
    return {"sessions": load.sessions, "waiting": load.waiting, "sizes": sizes, **load.summary}
