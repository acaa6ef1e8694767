"""How a run looks while it goes: a live picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from sparring.orchestrator.display.notes import Note, Notes
from sparring.orchestrator.display.screen import Plain, bounds, count, numbers
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import FilmCount, RunEnd, RunListener, RunStart, SlotActivity
from sparring.protos.plain_text import plain
from sparring.protos.tracebacks import located, without_references

_PLAIN_SECONDS: Final = 5.0
_RATE_WINDOW: Final = 10.0
_MOST_SLOTS: Final = 16
"""That are shown one by one, where there is room for them."""
_MARGIN: Final = 1
"""Lines of the screen that are left free: for the cursor."""


class Tally:
    """Counts what goes by."""

    def __init__(self, total: int, done: int, successes: int) -> None:
        self.total = total
        self.done = done
        self.successes = successes
        self.judged = done
        self.played = 0
        self.rewards = 0.0
        self.metric = "success"
        self.errors = 0
        self.retries = 0
        self.films = FilmCount()
        self._began = time.monotonic()
        self._done_before = done
        self._finished_steps = 0
        self._running_steps: dict[tuple[str, int], int] = {}
        self._samples: list[tuple[float, int]] = [(self._began, 0)]

    def count(self, row: EpisodeRow) -> None:
        """Counts an episode that was recorded."""
        self.done += 1
        self._finished_steps += row.steps
        if row.outcome == "error":
            self.errors += 1
        else:
            self.judged += row.outcome != "played"
            self.successes += row.outcome == "success"
            self.played += 1
            self.rewards += row.reward_sum

    def running(self, activity: SlotActivity) -> None:
        """Counts the steps that a slot has made of an episode that is not recorded yet."""
        self._running_steps[activity.worker, activity.slot] = 0 if activity.replay else activity.steps

    @property
    def steps(self) -> int:
        """Steps of the recorded episodes and of those that are running."""
        return self._finished_steps + sum(self._running_steps.values())

    def steps_per_second(self) -> float:
        """Returns the steps per second over the last seconds."""
        now = time.monotonic()
        self._samples.append((now, self.steps))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_WINDOW:
            self._samples.pop(0)
        (then, before), (_, after) = self._samples[0], self._samples[-1]
        return max(0.0, (after - before) / max(1e-9, now - then))

    def eta_seconds(self) -> float | None:
        """Returns how long the rest takes, if it goes on as it has; None before the first episode."""
        finished = self.done - self._done_before
        if not finished:
            return None
        return (time.monotonic() - self._began) / finished * (self.total - self.done)

    def line(self) -> str:
        """Returns all of it in one line."""
        eta = self.eta_seconds()
        parts = [f"{self.done}/{self.total} episodes", self._headline(), f"{self.steps_per_second():.0f} steps/s"]
        if self.errors:
            parts.append(count(self.errors, "error"))
        if self.retries:
            parts.append(count(self.retries, "retry", "retries"))
        if self.films.wanted:
            missing = f", {self.films.missing} missing" if self.films.missing else ""
            parts.append(f"{self.films.made}/{self.films.wanted} films{missing}")
        if eta is not None and self.done < self.total:
            parts.append(f"ETA {_clock(eta)}")
        return " · ".join(parts)

    def _headline(self) -> str:
        """Returns what the run is about, so far."""
        if self.metric == "return":
            return f"return {numbers([self.rewards / self.played])[0] if self.played else '-'}"
        rate = f"{100 * self.successes / self.judged:.1f} %" if self.judged else "-"
        if self.errors:  # they are not in the rate, and say how much it may be off
            total = self.judged + self.errors
            rate += f" ({bounds(self.successes / total, (self.successes + self.errors) / total)} % with errors)"
        return f"success {rate}"


class Display(RunListener):
    """Base of the displays: keeps the tally.

    Attributes:
        folder_stays: Whether the run's folder is there afterwards; if not, nobody is sent to a file in it.
    """

    folder_stays: bool = True

    def __init__(self) -> None:
        self.tally = Tally(0, 0, 0)
        self.notes = Notes()
        self._folder: Path | None = None

    def on_start(self, start: RunStart) -> None:
        """Counts from where earlier executions left off."""
        self._folder = start.folder
        successes = sum(row.outcome == "success" for row in start.recorded)
        self.tally = Tally(len(start.plan.ids()), len(start.recorded), successes)
        self.tally.metric = start.settings.get("metric", "success")
        self.tally.played, self.tally.rewards = len(start.recorded), sum(row.reward_sum for row in start.recorded)

    def on_result(self, row: EpisodeRow) -> None:
        self.tally.count(row)

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self.tally.retries += 1

    def on_activity(self, activity: SlotActivity) -> None:
        self.tally.running(activity)

    def on_films(self, films: FilmCount) -> None:
        self.tally.films = films

    def on_end(self, end: RunEnd) -> None:
        self.close()

    def noted(self, episode: EpisodeId, sentence: str) -> Note:
        """Notes an error; files that its sentence refers to can be opened from here."""
        if not self.folder_stays:
            sentence = without_references(sentence)
        return self.notes.add(episode, sentence if self._folder is None else located(sentence, self._folder))

    def close(self) -> None:
        """Takes the display off the screen, if it is on it."""


class PlainDisplay(Display):
    """A line every few seconds, and one for everything out of the ordinary."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._last = time.monotonic()
        self._said: tuple[object, ...] = ()
        """What the last line has counted."""
        self._repeated: dict[int, Note] = {}
        """Errors that have come again since they were told of."""

    def on_worker(self, worker: str, slots: int) -> None:
        self._say(f"worker {worker} joined with {count(slots, 'slot')}" if slots else f"worker {worker} left")

    def on_result(self, row: EpisodeRow) -> None:
        super().on_result(row)
        if row.outcome == "error":
            self._error("error", row.id, row.error)
        self._say_line(at_once=self.tally.done == self.tally.total)

    def on_films(self, films: FilmCount) -> None:
        super().on_films(films)
        if self.tally.done == self.tally.total:
            self._say_line(at_once=films.made + films.missing == films.wanted)

    def _say_line(self, *, at_once: bool) -> None:
        counted = (self.tally.done, self.tally.errors, self.tally.retries, self.tally.films)
        # Films are told of after the last episode, too, where none was to be made of it: that is no other line.
        if (at_once and counted != self._said) or time.monotonic() - self._last >= _PLAIN_SECONDS:
            self._last, self._said = time.monotonic(), counted
            self._say_repeated()
            self._say(self.tally.line())

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        super().on_retry(episode, reason)
        self._error("trying again", episode, reason)

    def close(self) -> None:
        self._say_repeated()

    def _error(self, what: str, episode: EpisodeId, sentence: str) -> None:
        """Tells of an error the first time that it comes, and now and then how many have it by now."""
        note = self.noted(episode, sentence)
        if note.attempts == 1:
            self._say(f"{what}: {episode.task} #{episode.index}: {note.sentence}")
        else:
            self._repeated[id(note)] = note

    def _say_repeated(self) -> None:
        for note in self._repeated.values():
            self._say(f"{note.who}: {note.sentence.splitlines()[0]}")
        self._repeated.clear()

    def _say(self, line: str) -> None:
        self._console.print(plain(line), highlight=False, markup=False, soft_wrap=True)


class LiveDisplay(Display):
    """A bar, the numbers so far, and what each slot is doing."""

    def __init__(self, console: Console, title: str) -> None:
        super().__init__()
        self._title = title
        self._slots: dict[tuple[str, int], SlotActivity] = {}
        self._console = console
        self._left: list[str] = []
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(bar_width=40), TaskProgressColumn())
        self._episodes = self._bar.add_task("episodes")
        self._live = Live(
            get_renderable=lambda: Plain(self._picture()), console=console, refresh_per_second=4, transient=True
        )

    def on_start(self, start: RunStart) -> None:
        super().on_start(start)
        self._bar.update(self._episodes, total=self.tally.total, completed=self.tally.done)
        self._live.start()

    def close(self) -> None:
        self._live.stop()

    def on_worker(self, worker: str, slots: int) -> None:
        self._slots = {key: activity for key, activity in self._slots.items() if key[0] != worker}
        for number in range(slots):
            self._slots[worker, number] = SlotActivity(worker, number)
        if not slots:
            self._left = [*self._left, f"worker {worker} left"][-1:]

    def on_result(self, row: EpisodeRow) -> None:
        super().on_result(row)
        self._bar.update(self._episodes, completed=self.tally.done)
        if row.outcome == "error":
            self.noted(row.id, row.error)

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        super().on_retry(episode, reason)
        self.noted(episode, reason)

    def on_activity(self, activity: SlotActivity) -> None:
        super().on_activity(activity)
        self._slots[activity.worker, activity.slot] = activity

    def _picture(self) -> RenderableType:
        """Makes the picture, no higher than the screen: what scrolls off it cannot be taken back."""
        width, height = self._console.size
        tally = Text(self.tally.line()).wrap(self._console, width)
        room = height - _MARGIN - 2 - len(tally)
        notes = [Text(note, style="yellow", no_wrap=True, overflow="ellipsis") for note in self._left]
        if not self._slots:
            notes.append(Text("starting ...", style="dim"))
        # Errors come first: slots that there is no room for are not missed.
        errors = list(self.notes.shown(self._console, width, max(2, room // 2)))[: max(0, room)]
        slots = self._shown_slots(room - len(errors) - len(notes))
        return Group(
            Text(self._title, style="bold", no_wrap=True, overflow="ellipsis"),
            self._bar,
            *tally,
            slots,
            *notes,
            *errors,
        )

    def _shown_slots(self, room: int) -> RenderableType:
        slots = sorted(self._slots.items())
        shown = min(_MOST_SLOTS, max(0, room))
        left = ""
        if len(slots) > shown:
            shown = max(0, shown - 1)  # a line says how many there are
            left = f"... and {count(len(slots) - shown, 'more slot')}" if shown else count(len(slots), "slot")
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for (worker, number), activity in slots[:shown]:
            doing = f"{activity.task} #{activity.index}" if activity.task else "idle"
            if activity.replay:
                doing = f"filming {doing}"
            steps = f"step {activity.steps}" if activity.steps else ""
            table.add_row(Text(f"{worker}/{number}", style="dim"), Text(doing), Text(steps, style="dim"))
        parts: list[RenderableType] = [table] if shown and slots else []
        return Group(*parts, *([Text(left, style="dim")] if left and room > 0 else []))


def make_display(console: Console, title: str, *, plain: bool = False) -> Display:
    """Makes a live display for a terminal, and a plain one for anything else, or where the screen is needed."""
    return LiveDisplay(console, title) if console.is_terminal and not plain else PlainDisplay(console)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
