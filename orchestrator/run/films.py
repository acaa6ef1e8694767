"""Films by replay: which finished episodes are played again to be filmed, and by whom. An evaluation renders nothing.

Pure bookkeeping, as the scheduler's: slots that have no outcome to play for get a replay.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import FilmCount
from sparring.orchestrator.run.scheduler import Lease, SlotId, TaskKey
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError
from sparring.protos.record import OUTCOMES, EpisodeRecord

EVENT: Final = "film"
"""The kind of an event in the journal: why there is no film of an episode."""

_CLOSE: Final = 1e-6
"""Relative: machines of one run may differ in the last digits of a reward."""


class Films:
    """Knows which episodes are filmed, when, and by whom.

    Args:
        plan: Of the run.
        settings: Of the run.
        journal: With what earlier executions have left: films that they did not come to are made now.

    Raises:
        UsageError: If single episodes are named that the plan does not have.
    """

    def __init__(self, plan: Plan, settings: RunSettings, journal: Journal) -> None:
        self._plan = plan
        self._output = settings.output
        self._rules = settings.plan.retry_rules
        self._journal = journal
        self._live = {part.label for part in settings.plan.parts if not self._replays(part.benchmark)}
        self._waiting: dict[TaskKey, deque[EpisodeId]] = {}
        self._leases: dict[int, Lease] = {}
        self._losses: Counter[EpisodeId] = Counter()
        self.count = FilmCount()
        if self._output.video != "none":
            check_named(self._output.video, plan)
            given_up = {event.episode for event in journal.events() if event.kind == EVENT}
            for row in journal.rows():
                if not row.video and row.id not in given_up:
                    self.ended(row)

    def may_come(self, episode: EpisodeId) -> bool:
        """Returns whether the film of an episode may come with its result."""
        return self._may_film(episode)

    def live(self, episode: EpisodeId) -> bool:
        """Returns whether an episode is filmed while it is played, whatever will come of it."""
        return episode.benchmark in self._live and self._may_film(episode)

    def later(self, episode: EpisodeId) -> bool:
        """Returns whether an episode may be played again to be filmed."""
        return episode.benchmark not in self._live and self._may_film(episode)

    def seen(self, episode: EpisodeId) -> Sequence[pb.Outcome.ValueType]:
        """Returns with which outcomes a film of an episode is made of what the policy sees, if that is all of it."""
        if not self.later(episode):
            return ()
        wants = partial(self._output.wants_film, episode.task, episode.index, benchmark=episode.benchmark)
        return [number for outcome, number in OUTCOMES.items() if wants(outcome)]

    def ended(self, row: EpisodeRow) -> None:
        """Hears of an episode that is recorded: it is played again, if its film is wanted and not there."""
        wanted = self._output.wants_film(row.task, row.index, row.outcome, benchmark=row.benchmark)
        if not wanted or row.benchmark in self._live:
            return
        if row.video:
            self.count = FilmCount(self.count.wanted + 1, self.count.made + 1, self.count.missing)
        elif self._journal.actions(row.id):
            self._waiting.setdefault(_key(row.id), deque()).append(row.id)
            self.count = FilmCount(self.count.wanted + 1, self.count.made, self.count.missing)

    def cut(self, rounds: int) -> None:
        """Hears that there are so many rounds and no more: of later ones no film is wanted, wherever it is by now."""
        for queue in self._waiting.values():
            gone = [episode for episode in queue if self._plan.round_of(episode.index) >= rounds]
            for episode in gone:
                queue.remove(episode)
            self.count = replace(self.count, wanted=self.count.wanted - len(gone))
        late = [n for n, lease in self._leases.items() if self._plan.round_of(lease.episode.index) >= rounds]
        for number in late:
            del self._leases[number]
            self.count = replace(self.count, wanted=self.count.wanted - 1)

    @property
    def unfinished(self) -> int:
        """Films that wait or are being made."""
        return sum(map(len, self._waiting.values())) + len(self._leases)

    def left(self, benchmark: str) -> int:
        """Returns how many films of a benchmark wait or are being made."""
        made = sum(lease.slot.benchmark == benchmark for lease in self._leases.values())
        return self.pending(benchmark) + made

    def pending(self, benchmark: str) -> int:
        """Returns how many films of a benchmark wait."""
        return sum(len(queue) for (name, _), queue in self._waiting.items() if name == benchmark)

    def lease(self, slot: SlotId, *, at: TaskKey | None) -> Lease | None:
        """Lends an episode to a slot that has no outcome to play for; None if no film waits.

        Args:
            slot: That is free.
            at: The task whose simulator it has.
        """
        waiting = [task for task, queue in self._waiting.items() if queue and task[0] == slot.benchmark]
        if not waiting:
            return None
        task = at if at in waiting else max(waiting, key=lambda task: len(self._waiting[task]))
        lease = Lease(1 + secrets.randbelow(2**63 - 1), self._waiting[task].popleft(), slot)
        self._leases[lease.number] = lease
        return lease

    def message(self, lease: Lease) -> pb.Lease:
        """Says which episode to play again, and how."""
        return pb.Lease(
            lease=lease.number,
            slot=lease.slot.number,
            task=lease.episode.task,
            index=lease.episode.index,
            seed=self._plan.seed_of(lease.episode),
            film=True,
            replay=self._journal.actions(lease.episode),
            episode=self._plan.round_of(lease.episode.index),
        )

    def holder(self, number: int) -> Lease | None:
        """Returns the replay of that number, if it has not ended."""
        return self._leases.get(number)

    def lent_to(self, slot: SlotId) -> Lease | None:
        """Returns the replay that a slot plays."""
        return next((lease for lease in self._leases.values() if lease.slot == slot), None)

    def leases_of(self, worker: str) -> Sequence[Lease]:
        """Returns the replays that a worker plays."""
        return [lease for lease in self._leases.values() if lease.slot.worker == worker]

    def finish(self, number: int, *, made: bool) -> None:
        """Ends a replay, with its film or without."""
        del self._leases[number]
        count = self.count
        self.count = FilmCount(count.wanted, count.made + made, count.missing + (not made))

    def lose(self, number: int) -> bool:
        """Ends a replay that nothing came of; returns whether somebody else tries it again."""
        lease = self._leases[number]
        self._losses[lease.episode] += 1
        if self._rules.gives_up_film(self._losses[lease.episode]):
            return False
        del self._leases[number]
        self._waiting[_key(lease.episode)].appendleft(lease.episode)
        return True

    def _may_film(self, episode: EpisodeId) -> bool:
        return self._output.may_film(episode.task, episode.index, benchmark=episode.benchmark)

    def _replays(self, benchmark: str) -> bool:
        return self._output.actions and not self._output.video_live and get_benchmark(benchmark).replays


def check_named(video: str, plan: Plan) -> None:
    """Checks that the single episodes that are to be filmed are in a plan.

    Raises:
        UsageError: If one is not.
    """
    if video in ("none", "failures", "successes", "all") or video.startswith("first:"):
        return
    known = {  # a table shows a task without its benchmark, if no other has one of its name
        f"{shown}:{episode.index}"
        for episode in plan.ids()
        for shown in (episode.task, f"{episode.benchmark}/{episode.task}")
    }
    for name in comma_list(video):
        if name not in known:
            raise UsageError(f"{Hint('video')} names {name!r}, and no episode of this plan is that.")


def difference(recorded: EpisodeRecord, again: EpisodeRecord) -> str:
    """Says in what a replay is not the episode that was recorded; nothing, if it is."""
    if again.outcome == "error":
        return again.error or "its replay ended in an error."
    for name in ("outcome", "steps"):
        was, now = getattr(recorded, name), getattr(again, name)
        if was != now:
            return f"its replay is not the episode that was recorded: {name} {was} then, {now} now."
    for name in ("reward_sum", "reward_max"):
        was, now = getattr(recorded, name), getattr(again, name)
        if not math.isclose(was, now, rel_tol=_CLOSE, abs_tol=1e-9):
            return f"its replay is not the episode that was recorded: {name} {was!r} then, {now!r} now."
    return ""


def _key(episode: EpisodeId) -> TaskKey:
    return episode.benchmark, episode.task
