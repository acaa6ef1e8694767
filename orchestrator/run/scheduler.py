"""Who gets which episode: affinity to tasks, stealing, retries, losses. Pure bookkeeping, no clocks and no wires."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.retry import DEFAULT_RULES, RetryRules
from sparring.protos.record import EpisodeRecord

AttemptEnd = Literal["record", "retry", "stale"]


_MOST_LEASES: Final = 2**63 - 1

TaskKey = tuple[str, str]
"""Benchmark and task."""


@dataclass(frozen=True, order=True)
class SlotId:
    """A slot of a worker, which is of one benchmark."""

    benchmark: str
    worker: str
    number: int


@dataclass(frozen=True)
class Lease:
    """The loan of an episode to a slot."""

    number: int
    episode: EpisodeId
    slot: SlotId


class Scheduler:
    """Hands out episodes and takes them back.

    A slot stays with its task while that has episodes; then it opens a task nobody works on; then it
    helps where most is left per helper. So K slots are busy until fewer than K episodes are left.

    Args:
        plan: All episodes.
        done: Those that need not run again.
        failed_before: How many attempts of an episode earlier executions have seen fail.
        rules: When an episode is tried again.
        max_parallel_tasks: How many tasks may be open at once; 0 for any number.
        by_rounds: Whether the first episodes of all tasks come before the second ones, and so on: a run that may stop
            early is to have the same of every task.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        done: Iterable[EpisodeId] = (),
        failed_before: Mapping[EpisodeId, int] | None = None,
        rules: RetryRules = DEFAULT_RULES,
        max_parallel_tasks: int = 0,
        by_rounds: bool = False,
    ) -> None:
        finished = set(done)
        self._pending: dict[TaskKey, deque[EpisodeId]] = {}
        for episode in plan.ids():
            queue = self._pending.setdefault(_key(episode), deque())
            if episode not in finished:
                queue.append(episode)
        # What is asked for with every message is counted, not computed: there may be a thousand slots.
        self._waiting = Counter({benchmark: 0 for benchmark in plan.tasks})
        for (benchmark, _), queue in self._pending.items():
            self._waiting[benchmark] += len(queue)
        self._open: Counter[TaskKey] = Counter()
        self._helpers: Counter[TaskKey] = Counter()
        self._rules = rules
        self._by_rounds = by_rounds
        self._round_of = plan.round_of
        self._rounds: int | None = None
        self._max_parallel_tasks = max_parallel_tasks or len(self._pending)
        self._leases: dict[int, Lease] = {}
        self._lent: dict[SlotId, Lease] = {}
        self._last_task: dict[SlotId, TaskKey] = {}
        self._failed_before = failed_before or {}
        self._errors: Counter[EpisodeId] = Counter()
        self._losses: Counter[EpisodeId] = Counter()
        self._results = 0
        self._interrupted: dict[EpisodeId, int] = {}
        """How many results there were when an episode was interrupted the last time."""

    @property
    def unfinished(self) -> int:
        """Episodes that wait or run."""
        return self._waiting.total() + len(self._leases)

    def pending(self, benchmark: str) -> int:
        """Returns how many episodes of a benchmark wait."""
        return self._waiting[benchmark]

    def left(self, benchmark: str) -> int:
        """Returns how many episodes of a benchmark wait or run."""
        return self._waiting[benchmark] + sum(lease.slot.benchmark == benchmark for lease in self._leases.values())

    def failed_attempts(self, episode: EpisodeId) -> int:
        """Returns how many attempts of an episode have failed and were tried again, over all executions of the run."""
        return self._failed_before.get(episode, 0) + self._errors[episode]

    def lease(self, slot: SlotId, *, among: Collection[EpisodeId] | None = None) -> Lease | None:
        """Lends the next episode to a slot; None if there is nothing for it now.

        Args:
            slot: That is free.
            among: The only episodes that may be played now; None: any.
        """
        if among is not None:
            self._bring_forward(among)
        task = self._task_for(slot, among)
        if task is None:
            return None
        lease = Lease(self._new_number(), self._pending[task].popleft(), slot)
        self._waiting[slot.benchmark] -= 1
        self._leases[lease.number] = self._lent[slot] = lease
        self._open[task] += 1
        self._help(slot, task)
        return lease

    def expect(self, slot: SlotId) -> str:
        """Returns the task that a slot is to begin with which is yet to come, and keeps it for that; empty: none."""
        task = self._task_for(slot, opened=self._helpers)
        if task is None:
            return ""
        self._help(slot, task)
        return task[1]

    def task_at(self, slot: SlotId) -> TaskKey | None:
        """Returns the task that a slot played last: its simulator is up."""
        return self._last_task.get(slot)

    def moved(self, slot: SlotId, episode: EpisodeId) -> None:
        """Hears that a slot plays an episode that is none of these, so that its simulator is another now."""
        self._help(slot, _key(episode))

    def lent_to(self, slot: SlotId) -> Lease | None:
        """Returns what a slot has on loan."""
        return self._lent.get(slot)

    def in_flight(self) -> Sequence[Lease]:
        """Returns all leases that have not ended."""
        return list(self._leases.values())

    def drop(self, episode: EpisodeId) -> None:
        """Takes an episode out that is not to be played any more, wherever it is. Write it down first."""
        for number in [number for number, lease in self._leases.items() if lease.episode == episode]:
            self._end(number, again=False, count=self._losses)
        queue = self._pending[_key(episode)]
        if episode in queue:
            queue.remove(episode)
            self._waiting[episode.benchmark] -= 1

    def cut(self, rounds: int, *, drain: bool) -> tuple[Sequence[Lease], Sequence[EpisodeId]]:
        """Takes all later rounds out of the queue, for good.

        Args:
            rounds: How many are left.
            drain: Whether leases of later rounds go on until they end by themselves.

        Returns:
            The leases that have ended by that, and the episodes that waited and do not any more.
        """
        self._rounds = rounds
        dropped: list[EpisodeId] = []
        for (benchmark, _), queue in self._pending.items():
            kept = [episode for episode in queue if not self.is_cut(episode)]
            dropped += [episode for episode in queue if self.is_cut(episode)]
            self._waiting[benchmark] -= len(queue) - len(kept)
            queue.clear()
            queue.extend(kept)
        ended = [] if drain else [lease for lease in self._leases.values() if self.is_cut(lease.episode)]
        for lease in ended:
            self._end(lease.number, again=False, count=self._losses)
        return ended, dropped

    def is_cut(self, episode: EpisodeId) -> bool:
        """Returns whether an episode was taken out with its round: whatever comes of it is of no use."""
        return self._rounds is not None and self._round_of(episode.index) >= self._rounds

    def is_open(self, episode: EpisodeId) -> bool:
        """Returns whether an episode waits or runs."""
        return episode in self._pending[_key(episode)] or any(x.episode == episode for x in self.in_flight())

    def holder(self, number: int) -> Lease | None:
        """Returns the lease of that number, if it has not ended."""
        return self._leases.get(number)

    def judge(self, number: int, record: EpisodeRecord) -> AttemptEnd:
        """Says what becomes of a lease that ends with this result. The lease goes on: write it down, then `finish`.

        Returns:
            "record" if the result is final, "retry" if the episode goes back in the queue, "stale" if the
            lease had been given back before: somebody else has the episode now.
        """
        lease = self._leases.get(number)
        if lease is None:
            return "stale"
        errors_before = self._errors[lease.episode]
        again = record.outcome == "error" and self._rules.tries_again(
            record.error_kind, record.error, errors_before=errors_before
        )
        return "retry" if again else "record"

    def finish(self, number: int, record: EpisodeRecord) -> AttemptEnd:
        """Ends a lease with a result, and returns what `judge` says of it."""
        verdict = self.judge(number, record)
        if verdict != "stale":
            self._results += 1
            self._end(number, again=verdict == "retry", count=self._errors)
        return verdict

    def interrupt(self, number: int) -> bool:
        """Takes a lease back that was interrupted because the policy failed on another one, which counts as nothing.

        Returns:
            False if that is no explanation: nothing has come of any episode since this one was interrupted before. Then
            its lease goes on, to be lost.
        """
        episode = self._leases[number].episode
        if self._interrupted.get(episode) == self._results:
            return False
        self._interrupted[episode] = self._results
        self.give_back(number)
        return True

    def judge_loss(self, number: int) -> AttemptEnd:
        """Says what becomes of a lease that ends without a result. The lease goes on: write it down, then `lose`.

        Returns:
            "retry" as a rule; "record" if the episode has been lost so often that it must be given up.
        """
        lease = self._leases.get(number)
        if lease is None:
            return "stale"
        return "record" if self._rules.gives_up_lost(self._losses[lease.episode] + 1) else "retry"

    def lose(self, number: int) -> AttemptEnd:
        """Ends a lease without a result, through no fault of its episode, and returns what `judge_loss` says of it."""
        verdict = self.judge_loss(number)
        if verdict != "stale":
            self._end(number, again=verdict == "retry", count=self._losses)
        return verdict

    def take_back(self, lease: Lease) -> bool:
        """Lends an episode again under a lease that was lost, if nobody else has got it since; returns whether."""
        queue, task = self._pending[_key(lease.episode)], _key(lease.episode)
        if lease.episode not in queue or lease.slot in self._lent:
            return False
        queue.remove(lease.episode)
        self._waiting[lease.episode.benchmark] -= 1
        self._losses[lease.episode] -= 1
        self._leases[lease.number] = self._lent[lease.slot] = lease
        self._open[task] += 1
        self._help(lease.slot, task)
        return True

    def give_back(self, number: int) -> None:
        """Ends a lease that was not begun: it counts as nothing, and the next slot has the episode."""
        self._end(number, again=True, count=Counter())

    def _end(self, number: int, *, again: bool, count: Counter[EpisodeId]) -> None:
        lease = self._leases.pop(number)
        if self._lent.get(lease.slot) is lease:
            del self._lent[lease.slot]
        episode = lease.episode
        _count_down(self._open, _key(episode))
        if again and not self.is_cut(episode):
            count[episode] += 1
            self._pending[_key(episode)].appendleft(episode)
            self._waiting[episode.benchmark] += 1

    def busy_workers(self) -> set[str]:
        """Returns the workers that have something on loan."""
        return {slot.worker for slot in self._lent}

    def leases_of(self, worker: str) -> list[Lease]:
        """Returns what a worker has on loan."""
        return [lease for lease in self._leases.values() if lease.slot.worker == worker]

    def take_over(self, previous: Scheduler) -> None:
        """Goes on with the slots of a run that has ended: each is offered its last task first, its simulator is up."""
        self._last_task = dict(previous._last_task)
        self._helpers = Counter(self._last_task.values())

    def forget_worker(self, worker: str) -> None:
        """Forgets a worker that is gone: its slots have no task any more."""
        for slot in [slot for slot in self._last_task if slot.worker == worker]:
            _count_down(self._helpers, self._last_task.pop(slot))

    def _new_number(self) -> int:
        """Returns a number that was never used and that nobody can guess: who knows it was told of the lease.

        At random among so many that none comes twice, in this run or in one that takes its workers over.
        """
        return 1 + secrets.randbelow(_MOST_LEASES)

    def _bring_forward(self, episodes: Collection[EpisodeId]) -> None:
        for episode in episodes:
            queue = self._pending[_key(episode)]
            if episode in queue:
                queue.remove(episode)
                queue.appendleft(episode)

    def _help(self, slot: SlotId, task: TaskKey) -> None:
        """Notes which task a slot is at now."""
        last = self._last_task.get(slot)
        if last != task:
            if last is not None:
                _count_down(self._helpers, last)
            self._helpers[task] += 1
            self._last_task[slot] = task

    def _task_for(
        self, slot: SlotId, among: Collection[EpisodeId] | None = None, *, opened: Mapping[TaskKey, int] | None = None
    ) -> TaskKey | None:
        if not self._waiting[slot.benchmark]:
            return None
        opened = self._open if opened is None else opened
        may_open = len(opened) < self._max_parallel_tasks

        def may_have(task: TaskKey) -> bool:
            episodes = self._pending.get(task)
            if not episodes or task[0] != slot.benchmark or not (may_open or task in opened):
                return False
            return among is None or episodes[0] in among

        last = self._last_task.get(slot)
        if last is not None and not self._by_rounds and may_have(last):
            return last
        waiting = [task for task in self._pending if may_have(task)]
        if not waiting:
            return None
        if self._by_rounds:
            ahead = {task: self._round_of(self._pending[task][0].index) for task in waiting}
            waiting = [task for task in waiting if ahead[task] == min(ahead.values())]
            if last in waiting:
                return last
        # A slot between two episodes still counts as a helper of its task: it is about to ask for the next.
        unhelped = [task for task in waiting if task not in self._helpers]
        if unhelped:
            # The longest queue first, so that the end of the run is made of short ones.
            return max(unhelped, key=lambda task: len(self._pending[task]))
        return max(waiting, key=lambda task: len(self._pending[task]) / self._helpers[task])


def _key(episode: EpisodeId) -> TaskKey:
    return episode.benchmark, episode.task


def _count_down(counter: Counter[TaskKey], task: TaskKey) -> None:
    """Takes one away; what there is none of is not in it."""
    counter[task] -= 1
    if not counter[task]:
        del counter[task]
