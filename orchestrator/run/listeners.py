"""Listeners: what watches a run and changes nothing. Displays, trackers and live pages are listeners."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.errors import UsageError
from sparring.protos.tracebacks import Tracebacks, located, traceback_of

if TYPE_CHECKING:
    from sparring.orchestrator.results.document_parts import RunProtocol
    from sparring.orchestrator.results.results import Results
    from sparring.orchestrator.serving.stats import ServerLoad

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStart:
    """What is known when a run starts, or is resumed.

    Attributes:
        plan: All episodes.
        recorded: Episodes that earlier executions have recorded, errors that are tried again left out.
        settings: Every setting by its name, as in run.json.
        folder: Where the files are; None if none are kept.
        protocols: By which rules each benchmark, or evaluation, is played.
    """

    plan: Plan
    recorded: Sequence[EpisodeRow]
    settings: Mapping[str, Any]
    folder: Path | None
    protocols: Mapping[str, RunProtocol] = field(default_factory=dict)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, or this execution of it.

    Attributes:
        results: What is recorded by now; None if that could not be saved.
        error: Why it ended before the plan did; None if the plan is done.
    """

    results: Results | None
    error: BaseException | None


@dataclass(frozen=True)
class SlotActivity:
    """What a slot is doing.

    Attributes:
        worker: Whose slot it is.
        slot: Its number there.
        task: Of the episode that it plays; empty if it plays none.
        index: Of that episode.
        steps: That it has made in it.
        replay: Whether it is played again, from recorded actions, to be filmed.
    """

    worker: str
    slot: int
    task: str = ""
    index: int = 0
    steps: int = 0
    replay: bool = False


@dataclass(frozen=True)
class SlotFrame:
    """What the camera of a slot sees.

    Attributes:
        worker: Whose slot it is.
        slot: Its number there.
        task: Of the episode that it plays.
        index: Of that episode.
        steps: That it has made in it.
        image: A PNG.
    """

    worker: str
    slot: int
    task: str
    index: int
    steps: int
    image: bytes = field(repr=False)


@dataclass(frozen=True)
class FilmCount:
    """How far films are.

    Attributes:
        wanted: By replay, in all executions that this one knows of.
        made: Of these.
        missing: Of these, which could not be made.
    """

    wanted: int = 0
    made: int = 0
    missing: int = 0


class RunListener:
    """Watches a run. Override what you want to hear of; everything else does nothing.

    Methods are called one at a time from the run's event loop: they must return quickly and must not wait. Whatever
    they do, the run goes on: a listener that raises is logged once and hears nothing more of that run;
    its traceback is in the run's folder.
    """

    def on_start(self, start: RunStart) -> None:
        """Called when the run starts, before everything else."""

    def on_worker(self, worker: str, slots: int) -> None:
        """Called when a worker has joined with so many slots, or has left (0 slots)."""

    def on_activity(self, activity: SlotActivity) -> None:
        """Called when a slot has begun an episode, has made steps in it, or has ended it."""

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        """Called when an episode goes back in the queue, because of an error or a lost lease."""

    def on_result(self, row: EpisodeRow) -> None:
        """Called when an episode is in the journal."""

    def watched(self, worker: str) -> Collection[int]:
        """Returns the slots of a worker that somebody looks at now: `on_frame` is called with what they see.

        Asked every second or so. Nothing is drawn for nobody, and what is drawn changes nothing that is played.
        """
        return ()

    def on_frame(self, frame: SlotFrame) -> None:
        """Called with what a slot sees, now and then, while it is `watched`."""

    def on_stats(self, load: ServerLoad) -> None:
        """Called every few seconds with what the policy servers do."""

    def on_films(self, films: FilmCount) -> None:
        """Called when a film is wanted, made or given up: how many there are of each, by replay or by the way."""

    def on_film(self, row: EpisodeRow) -> None:
        """Called when a recorded episode has been filmed by replay: with its row, which names the film now."""

    def on_warning(self, sentence: str) -> None:
        """Called with a sentence that people should know about this run; each comes once."""

    def on_end(self, end: RunEnd) -> None:
        """Called when the run has ended, one way or another, after everything else."""


_METHODS: Final = tuple(name for name in vars(RunListener) if name.startswith("on_"))


class Listeners(RunListener):
    """Several listeners as one, in their order; one that raises is dropped.

    Raises:
        UsageError: If one of them is not a listener.
    """

    def __init__(self, listeners: Iterable[RunListener] = ()) -> None:
        self._listeners: list[RunListener] = []
        self._folder: Path | None = None
        # Of whoever wants to hear, not of whoever tells: a notebook puts what is printed under the cell that this says,
        # and workers that stay were started in an earlier one.
        self._context = copy_context()
        for listener in listeners:
            if isinstance(listener, type) or not any(hasattr(listener, name) for name in _METHODS):
                raise UsageError(
                    f"{listener!r} cannot watch a run: give an object with some of the methods of "
                    f"sparring.RunListener ({', '.join(_METHODS)})."
                )
            self.add(listener)

    def add(self, listener: RunListener) -> None:
        """Lets one more listen."""
        self._listeners.append(listener)

    def on_start(self, start: RunStart) -> None:
        self._folder = start.folder
        self._tell("on_start", start)

    def on_worker(self, worker: str, slots: int) -> None:
        self._tell("on_worker", worker, slots)

    def on_activity(self, activity: SlotActivity) -> None:
        self._tell("on_activity", activity)

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self._tell("on_retry", episode, reason)

    def on_result(self, row: EpisodeRow) -> None:
        self._tell("on_result", row)

    def watched(self, worker: str) -> Collection[int]:
        slots: set[int] = set()
        for listener in tuple(self._listeners):
            if hasattr(listener, "watched"):
                slots.update(self._told_by(listener, worker))
        return slots

    def on_frame(self, frame: SlotFrame) -> None:
        self._tell("on_frame", frame)

    def on_stats(self, load: ServerLoad) -> None:
        self._tell("on_stats", load)

    def on_films(self, films: FilmCount) -> None:
        self._tell("on_films", films)

    def on_film(self, row: EpisodeRow) -> None:
        self._tell("on_film", row)

    def on_warning(self, sentence: str) -> None:
        self._tell("on_warning", sentence)

    def on_end(self, end: RunEnd) -> None:
        self._tell("on_end", end)

    def _tell(self, method: str, *what: object) -> None:
        self._context.copy().run(self._tell_all, method, what)

    def _tell_all(self, method: str, what: Sequence[object]) -> None:
        for listener in tuple(self._listeners):
            hears = getattr(listener, method, None)
            if hears is None:
                continue
            try:
                hears(*what)
            except Exception as error:  # noqa: BLE001  # whoever only watches takes no run down
                self._drop(listener, method, error)

    def _told_by(self, listener: RunListener, worker: str) -> Collection[int]:
        try:
            return [int(slot) for slot in listener.watched(worker)]
        except Exception as error:  # noqa: BLE001  # the same
            self._drop(listener, "watched", error)
            return ()

    def _drop(self, listener: RunListener, method: str, error: Exception) -> None:
        self._listeners.remove(listener)
        log.warning("%s", self._told(listener, method, error))

    def _told(self, listener: RunListener, method: str, error: Exception) -> str:
        raised = f"raised {type(error).__name__} in {method}"
        sentence = f"the listener {type(listener).__qualname__} {raised} and hears nothing more of this run: {error}"
        text, kept = traceback_of(error), ""
        if self._folder is not None:
            kept = Tracebacks(self._folder, logged=False).keep("listener", sentence, text)
            kept = located(kept, self._folder)
        return f"{sentence} ({kept})" if kept else f"{sentence}\n{text.rstrip()}"
