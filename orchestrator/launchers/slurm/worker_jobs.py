"""The jobs of a run's workers: submitted, looked after by one look at all of them every few seconds, and ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparring.orchestrator.launchers.base import LaunchFailed, WorkerOrder
from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed, SlurmUnreachable
from sparring.orchestrator.launchers.slurm.end_jobs import end_jobs
from sparring.orchestrator.launchers.slurm.job import COMPLETING, PENDING, RUNNING, Job, JobEnd
from sparring.orchestrator.launchers.slurm.part_workers import PartWorkers, WorkerPlace
from sparring.orchestrator.launchers.slurm.script import BatchScript, numbers, worker_name
from sparring.orchestrator.launchers.to_the_end import to_the_end
from sparring.orchestrator.machine.logs import last_words
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two looks at all jobs: one call of squeue."""
_AGAIN_SECONDS: Final = 30.0
"""Between two attempts to submit, where the first was not taken."""
_COMPLETING_SECONDS: Final = 60.0
"""A job that takes longer to come to its end, on a node that is gone, is replaced meanwhile."""
_LINES: Final = 12


@dataclass
class _Watch:
    """Waits until the worker of a job is given up, although the job goes on."""

    restarts: int
    given_up: asyncio.Future[str]


class WorkerJobs:
    """The jobs of all benchmarks of a run.

    Args:
        order: Which workers to have, and whom to tell about them.
        parts: The places of workers, with the script that jobs for them are made of.
    """

    def __init__(self, order: WorkerOrder, parts: Mapping[PartWorkers, BatchScript]) -> None:
        self._order = order
        self._parts = parts
        self._names = [script.name for script in parts.values()]
        self._watches: dict[str, _Watch] = {}
        self._completing: dict[str, float] = {}
        self._nodes: dict[str, str] = {}
        self._replaced: set[str] = set()  # some of them Slurm goes on to tell of
        self._next_submission = 0.0
        self._unreachable = ""
        self._told_waiting = ""
        self.may_be_left = True
        """Whether there may be jobs, until it is seen that all have ended."""

    async def run(self) -> None:
        """Has jobs for all workers, until cancelled.

        Raises:
            LaunchFailed: If replacing them is of no use.
        """
        try:
            await self._submit()
            while True:
                await self._rest()
                await self._look()
                await self._submit()
        finally:
            for watch in self._watches.values():
                watch.given_up.cancel()
            self.may_be_left = not await end_jobs(self._names)

    async def _rest(self) -> None:
        """Waits for the next look, unless a worker is given up before."""
        # Who was given up and is not replaced yet, as its job is still coming to its end, is no reason to look at once.
        watched = [watch.given_up for watch in self._watches.values() if not watch.given_up.done()]
        if watched:
            await asyncio.wait(watched, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        try:
            found = await to_the_end(commands.jobs, self._names)
        except SlurmFailed as error:
            self._is_away(error)
            return
        self._is_back()
        jobs = {job.number: job for job in found}
        for part in self._parts:
            self._adopt(part, found)
            for place in part.places:
                if place.job:
                    await self._look_at(part, place, jobs.get(place.job))
            self._check_hope(part, jobs)
            await self._cancel_superfluous(part, jobs)
        self._tell_waiting(jobs)

    def _adopt(self, part: PartWorkers, jobs: Sequence[Job]) -> None:
        """Takes on jobs that were submitted although sbatch did not come to say so."""
        name, known = self._parts[part].name, {place.job for place in part.places}
        for job in jobs:
            place = part.place_of(job.task)
            is_new = job.name == name and not job.has_ended and job.number not in known | self._replaced
            if is_new and place and not place.job:
                log.info("job %s of this run was submitted after all", job.number)
                place.job, place.restarts = job.number, job.restarts

    async def _look_at(self, part: PartWorkers, place: WorkerPlace, job: Job | None) -> None:
        now = asyncio.get_running_loop().time()
        watch = self._watches.get(place.job)
        if job is None or job.has_ended:
            await self._ended(part, place, await to_the_end(commands.end_of, place.job, job.state if job else ""))
        elif job.state == COMPLETING:
            if now - self._completing.setdefault(place.job, now) > _COMPLETING_SECONDS:
                await self._ended(part, place, JobEnd(COMPLETING, nodes=job.nodes, reason=job.reason))
        elif job.was_not_launched:
            await self._end(part, place, job, job.reason)
        elif job.restarts > place.restarts:
            await self._started_again(part, place, job)
        elif watch is not None and watch.given_up.done():
            why = f"its worker is given up: {watch.given_up.result().removesuffix('.')}"
            await self._end(part, place, job, why)
        elif job.state == RUNNING:
            if place.job not in self._nodes:
                self._nodes[place.job] = job.nodes
                log.info("job %s runs on %s", place.job, job.nodes)
            if watch is None:
                self._watch(part, place)

    def _watch(self, part: PartWorkers, place: WorkerPlace) -> None:
        name = worker_name(part.label, place.job, place.restarts)
        self._watches[place.job] = _Watch(place.restarts, asyncio.ensure_future(self._order.given_up(name)))

    def _forget(self, job: str) -> None:
        self._completing.pop(job, None)
        self._nodes.pop(job, None)
        if (watch := self._watches.pop(job, None)) is not None:
            watch.given_up.cancel()

    async def _started_again(self, part: PartWorkers, place: WorkerPlace, job: Job) -> None:
        """Deals with a job that Slurm has put back in its queue: another worker comes under the same number."""
        name, results = self._account(part, place)
        self._forget(place.job)
        why = f"Slurm has put its job {place.job} back in the queue (restart {job.restarts})"
        log.warning("worker %s: %s", name, why)
        self._order.explain(name, f"worker {name} ended: {why}.")
        if not part.started_again(place, job.restarts, results=results):
            await self._end(part, place, job, "Slurm starts it again and again")

    async def _end(self, part: PartWorkers, place: WorkerPlace, job: Job, why: str) -> None:
        """Cancels a job that is of no use any more, for another to have its place."""
        await self._cancel([place.job])
        await self._ended(part, place, JobEnd("CANCELLED", nodes=job.nodes, reason=why))

    async def _ended(self, part: PartWorkers, place: WorkerPlace, end: JobEnd) -> None:
        name, results = self._account(part, place)
        job, script = place.job, self._parts[part]
        self._forget(job)
        self._replaced.add(job)
        self._order.explain(name, f"worker {name}: its job {end}.")
        words = await asyncio.to_thread(last_words, script.log_of(job), _LINES)
        if end.cannot_be_logged:
            raise LaunchFailed(
                f"job {job} {end}: its node cannot write {str(script.log_of(job))!r}. Workers need a folder that all "
                f"nodes share; name one with {Hint('slurm_folder')}."
            )
        others = any(self._account(part, other)[1] for other in part.places if other.job and other is not place)
        if end.code == 2 and not results and not others:  # it was wrongly started, and so will be the next
            raise LaunchFailed(words or f"job {job} {end}; its log {str(script.log_of(job))!r} is empty.")
        now = asyncio.get_running_loop().time()
        pause = part.ended(place, end, results=results, now=now, last_words=words, others=others)
        if not place.is_given_up:
            needed = part.to_submit(self._order.left(part.label), now + pause)
            then = f"another is submitted in {pause:.1f} s" if needed else "no other is needed"
            why = f". Its log ends with: {words.splitlines()[-1]}" if end.is_own_fault and words else ""
            log.warning("job %s %s; %s%s", job, end, then, why)

    def _account(self, part: PartWorkers, place: WorkerPlace) -> tuple[str, int]:
        """Returns the name of the worker that a job has, or had last, and how many results came of it."""
        name = worker_name(part.label, place.job, place.restarts)
        return name, self._order.results_of(name)

    async def _submit(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._unreachable or now < self._next_submission:
            return  # before another is submitted a look must show whether the last one was taken after all
        for part, script in self._parts.items():
            places = part.to_submit(self._order.left(part.label), now)
            if not places:
                continue
            try:
                job = await to_the_end(commands.submit, script.text(places))
            except SlurmUnreachable as error:
                self._is_away(error)
                self._next_submission = now + LOOK_SECONDS  # by then it is seen whether it was taken after all
                return
            except SlurmFailed as error:
                if not any(place.job for place in part.places):
                    raise LaunchFailed(f"Slurm does not take the jobs of this run: {error.sentence}") from error
                self._next_submission = now + _AGAIN_SECONDS
                log.warning("Slurm does not take another job now: %s", error.sentence)
                return
            part.submitted(places, job)
            log.info(
                "job %s[%s] was submitted: %d workers of %s; see them with: squeue --job %s",
                *(job, numbers(places), len(places), part.label, job),
            )

    def _check_hope(self, part: PartWorkers, jobs: Mapping[str, Job]) -> None:
        """Checks that some job of a benchmark may have its turn.

        Raises:
            LaunchFailed: If none ever will as it was submitted, with Slurm's own words.
        """
        ours = [jobs[place.job] for place in part.places if place.job in jobs]
        if ours and all(job.is_hopeless for job in ours):
            raise LaunchFailed(
                f"Slurm has taken the jobs of {part.label} and will never start them: {ours[0].reason}. Submit them "
                f"otherwise with {Hint('slurm', 'KEY', 'VALUE')}."
            )

    async def _cancel_superfluous(self, part: PartWorkers, jobs: Mapping[str, Job]) -> None:
        waiting = {number for number, job in jobs.items() if job.state == PENDING}
        over = part.superfluous(self._order.left(part.label), waiting)
        if over and await self._cancel([place.job for place in over]):
            log.info("jobs that still waited are not needed any more: %s", ", ".join(place.job for place in over))
            for place in over:
                self._forget(place.job)
                place.job = ""

    async def _cancel(self, jobs: Sequence[str]) -> bool:
        try:
            await to_the_end(commands.cancel, jobs)
        except SlurmFailed as error:
            log.warning("jobs %s could not be cancelled: %s", ", ".join(jobs), error.sentence)
            return False
        return True

    def _tell_waiting(self, jobs: Mapping[str, Job]) -> None:
        """Logs why jobs wait, when that changes."""
        ours = [jobs[place.job] for part in self._parts for place in part.places if place.job in jobs]
        waiting = [job for job in ours if job.state == PENDING]
        reasons = sorted({job.reason for job in waiting})
        told = f"{len(waiting)} of {len(ours)} jobs wait for their turn: {', '.join(reasons)}" if waiting else ""
        if told != self._told_waiting and told:
            stuck = any(job.waits_for_somebody for job in waiting)
            more = ", which will not pass by itself" if stuck else ""
            log.log(logging.WARNING if stuck else logging.INFO, "%s%s", told, more)
        self._told_waiting = told

    def _is_away(self, error: SparringError) -> None:
        if not self._unreachable:
            log.warning("Slurm does not answer; the run goes on with the workers that are there. %s", error.sentence)
        self._unreachable = error.sentence

    def _is_back(self) -> None:
        if self._unreachable:
            log.info("Slurm answers again")
        self._unreachable = ""
