"""Who replaces whom: the places of a benchmark's workers, and the jobs that have them. No clocks and no wires."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sparring.orchestrator.launchers.base import LaunchFailed
from sparring.orchestrator.launchers.slurm.job import JobEnd
from sparring.orchestrator.retry import RetryRules
from sparring.protos.advice import Hint

log = logging.getLogger(__name__)


@dataclass
class WorkerPlace:
    """The place of one worker, which one job after the other may have.

    Attributes:
        number: Of the place, and of its jobs in their arrays.
        job: The number of the job that has it; empty: none.
        restarts: How often Slurm has started that job again.
        fruitless: How many jobs in a row, or starts of one, have ended without a result.
        not_before: When the next job may be submitted.
        is_given_up: Whether no other job gets it.
    """

    number: int
    job: str = ""
    restarts: int = 0
    fruitless: int = 0
    not_before: float = 0.0
    is_given_up: bool = False


class PartWorkers:
    """The workers of one part of a run.

    Args:
        label: Of the part of the run that they are for.
        places: How many there may be.
        slots: Of each of them.
        max_restarts: How often in a row one is replaced that ended without a result.
        rules: When replacing workers that fail is of no use, and the pauses.
    """

    def __init__(self, label: str, places: int, slots: int, *, max_restarts: int, rules: RetryRules) -> None:
        self.label = label
        self.places = [WorkerPlace(number) for number in range(places)]
        self._slots = slots
        self._max_restarts = max_restarts
        self._rules = rules
        self._failures = 0

    def wanted(self, left: int) -> int:
        """Returns how many workers are of use for so many episodes."""
        able = sum(not place.is_given_up for place in self.places)
        return min(able, math.ceil(left / self._slots))

    def to_submit(self, left: int, now: float) -> list[int]:
        """Returns the places that a job is to be submitted for.

        Args:
            left: How many episodes have not come to an end.
            now: The time.
        """
        missing = self.wanted(left) - sum(bool(place.job) for place in self.places)
        able = [p.number for p in self.places if not p.job and not p.is_given_up and p.not_before <= now]
        return able[: max(0, missing)]

    def superfluous(self, left: int, waiting: Collection[str]) -> list[WorkerPlace]:
        """Returns the places whose jobs cannot be needed any more, of those that wait for their turn.

        Args:
            left: How many episodes have not come to an end; 0: nobody knows what comes next.
            waiting: The numbers of the jobs that wait.
        """
        over = sum(bool(place.job) for place in self.places) - self.wanted(left) if left else 0
        return [place for place in reversed(self.places) if place.job in waiting][: max(0, over)]

    def place_of(self, task: int) -> WorkerPlace | None:
        """Returns the place that a task of an array is for."""
        return self.places[task] if 0 <= task < len(self.places) else None

    def submitted(self, numbers: Sequence[int], job: str) -> None:
        """Notes that a job array was submitted for places."""
        for number in numbers:
            self.places[number].job, self.places[number].restarts = f"{job}_{number}", 0

    def started_again(self, place: WorkerPlace, restarts: int, *, results: int) -> bool:
        """Notes that Slurm starts the job of a place again; returns whether it may go on.

        Args:
            place: Of the job.
            restarts: How often it was started again by now.
            results: That came of it before.
        """
        place.restarts = restarts
        place.fruitless = 0 if results else place.fruitless + 1
        return place.fruitless <= self._max_restarts

    def ended(
        self, place: WorkerPlace, end: JobEnd, *, results: int, now: float, last_words: str, others: bool = False
    ) -> float:
        """Notes that the job of a place has ended; returns the seconds until another may have it.

        Args:
            place: Of the job.
            end: How it has ended.
            results: That came of it.
            now: The time.
            last_words: Of its log.
            others: Whether another worker has delivered, and goes on: then it is not what all have in common.

        Raises:
            LaunchFailed: If replacing it is of no use.
        """
        job, place.job, place.restarts = place.job, "", 0
        place.fruitless = 0 if results else place.fruitless + 1
        self._failures = 0 if results or others else self._failures + end.is_own_fault
        if self._rules.gives_up_workers(self._failures):
            raise LaunchFailed(
                f"workers of {self.label} die before they finish an episode, {self._failures} times in a row; job "
                f"{job} {end}. Its log ends with:\n{last_words}"
            )
        if place.fruitless > self._max_restarts:
            place.is_given_up = True
            log.warning("job %s %s; it is not replaced, because nothing came of its last %d", job, end, place.fruitless)
        if all(one.is_given_up for one in self.places):
            raise LaunchFailed(
                f"no worker of {self.label} is left: nothing came of the jobs that replaced them "
                f"({Hint('max_restarts', value=self._max_restarts)}); the last one, {job}, {end}. "
                f"Its log ends with:\n{last_words}"
            )
        pause = self._rules.pause(place.fruitless)
        place.not_before = now + pause
        return pause
