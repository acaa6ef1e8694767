"""Jobs of a run's workers, looked after: with a made-up Slurm, which does what a real one does seldom."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.orchestrator.launchers.base import LaunchFailed, WorkerOrder
from sparring.orchestrator.launchers.cluster import share_workers
from sparring.orchestrator.launchers.slurm import commands, end_jobs, steps, worker_jobs
from sparring.orchestrator.launchers.slurm.commands import SlurmUnreachable
from sparring.orchestrator.launchers.slurm.guard import guarded
from sparring.orchestrator.launchers.slurm.job import COMPLETING, PENDING, RUNNING, Job, JobEnd
from sparring.orchestrator.launchers.slurm.part_workers import PartWorkers
from sparring.orchestrator.launchers.slurm.settings import SlurmSettings
from sparring.orchestrator.launchers.slurm.shared_files import SharedFiles
from sparring.orchestrator.launchers.slurm.worker_jobs import WorkerJobs
from sparring.orchestrator.retry import DEFAULT_RULES
from sparring.orchestrator.settings import read_settings
from sparring.protos.net.address import Address

LOOK = 0.05
NAME = "sparring-toy-first-abc"


class MadeUpSlurm:
    """Answers for the commands: the real ones do not fail when a test wants them to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue: list[Job] = []
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        """How often a command fails from now on."""
        for name in ("jobs", "submit", "cancel", "cancel_names"):
            monkeypatch.setattr(commands, name, getattr(self, name))
        monkeypatch.setattr(worker_jobs, "LOOK_SECONDS", LOOK)
        monkeypatch.setattr(end_jobs, "_END_LOOK", LOOK)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fails.get(name, 0):
            self.fails[name] -= 1
            raise SlurmUnreachable(f"{name} timed out.")

    def jobs(self, names: Sequence[str]) -> list[Job]:
        self._call("jobs")
        return list(self.queue)

    def submit(self, script: str) -> str:
        number = 7 + self.calls.count("submit")
        self.queue.append(Job(f"{number}_0", RUNNING, 0, NAME, "node1", ""))  # also if nobody hears of it
        self._call("submit")
        return str(number)

    def cancel(self, jobs: Sequence[str]) -> None:
        self._call("cancel")

    def cancel_names(self, names: Sequence[str]) -> None:
        self._call("cancel_names")
        self.queue.clear()


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> MadeUpSlurm:
    return MadeUpSlurm(monkeypatch)


def jobs_of_one_worker(given_up: asyncio.Future[str]) -> WorkerJobs:
    return jobs_of_workers(1, given_up)


def jobs_of_workers(
    workers: int, given_up: asyncio.Future[str], results_of: Callable[[str], int] = lambda name: 0
) -> WorkerJobs:
    async def wait(name: str) -> str:
        return await asyncio.shield(given_up)

    order: Any = SimpleNamespace(
        left=lambda label: 4 * workers, results_of=results_of, explain=lambda *told: None, given_up=wait
    )
    script: Any = SimpleNamespace(name=NAME, text=lambda places: "", log_of=lambda job: Path("none.log"))
    return WorkerJobs(order, {PartWorkers("toy", workers, 4, max_restarts=5, rules=DEFAULT_RULES): script})


async def run_until(jobs: WorkerJobs, condition: Callable[[], object]) -> None:
    task = asyncio.create_task(jobs.run())
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(LOOK / 5)
            if task.done():
                task.result()
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()


def test_a_worker_given_up_whose_job_is_coming_to_its_end_does_not_make_us_ask_all_the_time(slurm: MadeUpSlurm) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        given_up, over = loop.create_future(), asyncio.Event()
        task = asyncio.create_task(run_until(jobs_of_one_worker(given_up), over.is_set))
        while slurm.calls.count("jobs") < 2:
            await asyncio.sleep(LOOK / 5)
        slurm.queue[:] = [Job("7_0", COMPLETING, 0, NAME, "node1", "")]
        given_up.set_result("it is silent.")
        loop.call_later(30 * LOOK, over.set)
        await task

    asyncio.run(play())
    assert 2 < slurm.calls.count("jobs") <= 33


def test_nothing_is_submitted_again_until_a_look_shows_whether_it_was_taken(slurm: MadeUpSlurm) -> None:
    async def play() -> None:
        slurm.fails = {"submit": 1, "jobs": 4}
        jobs = jobs_of_one_worker(asyncio.get_running_loop().create_future())
        await run_until(jobs, lambda: slurm.calls.count("jobs") > 12)  # it is seen in the end

    asyncio.run(play())
    assert slurm.calls.count("submit") == 1


@pytest.mark.parametrize(
    ("state", "reason"), [(PENDING, "launch failed requeued held"), (COMPLETING, "None")], ids=["held", "completing"]
)
def test_a_job_that_does_not_come_to_anything_is_replaced_although_slurm_still_knows_it(
    slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch, state: str, reason: str
) -> None:
    """Its node could not start it, or does not answer while the job is coming to its end."""
    monkeypatch.setattr(worker_jobs, "_COMPLETING_SECONDS", 2 * LOOK)

    async def play() -> None:
        jobs = jobs_of_one_worker(asyncio.get_running_loop().create_future())
        task = asyncio.create_task(run_until(jobs, lambda: slurm.calls.count("submit") == 2))
        while not slurm.queue:
            await asyncio.sleep(LOOK / 5)
        slurm.queue[:] = [Job("7_0", state, 1, NAME, "", reason)]
        await task

    asyncio.run(play())
    assert slurm.calls.count("submit") == 2


@pytest.mark.parametrize("delivers", [True, False])
def test_a_worker_that_is_wrongly_started_ends_the_run_unless_others_are_not(
    slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch, delivers: bool
) -> None:
    """One node may not see the run's folder where others do."""
    wrong = JobEnd("FAILED", code=2, nodes="node2", reason="NonZeroExitCode")
    monkeypatch.setattr(commands, "end_of", lambda job, state: wrong)

    async def play() -> None:
        given_up = asyncio.get_running_loop().create_future()
        jobs = jobs_of_workers(2, given_up, results_of=lambda name: 3 if delivers and name == "toy-7_0" else 0)
        is_bad = [False]

        def seen() -> bool:
            if len(slurm.queue) == 1:
                slurm.queue.append(Job("7_1", RUNNING, 0, NAME, "node2", ""))
            if not is_bad[0] and slurm.calls.count("jobs") > 3:
                is_bad[0] = True
                slurm.queue[1] = Job("7_1", "FAILED", 0, NAME, "node2", "NonZeroExitCode")
            return slurm.calls.count("submit") > 1

        await run_until(jobs, seen)

    if delivers:
        asyncio.run(play())
    else:
        with pytest.raises(LaunchFailed, match="failed on node2"):
            asyncio.run(play())


@pytest.mark.parametrize("failed", ["cancel_names", "jobs"])
def test_at_the_end_a_slurm_that_does_not_answer_is_asked_again(slurm: MadeUpSlurm, failed: str) -> None:
    async def play() -> None:
        jobs = jobs_of_one_worker(asyncio.get_running_loop().create_future())

        def submitted() -> bool:
            slurm.fails = {failed: 3} if slurm.queue else {}
            return bool(slurm.queue)

        await run_until(jobs, submitted)
        assert not jobs.may_be_left

    asyncio.run(play())
    assert slurm.queue == []


def test_jobs_of_which_no_end_is_seen_are_told_as_that(slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_jobs, "_END_SECONDS", 20 * LOOK)

    async def play() -> None:
        slurm.fails = {"cancel_names": 10_000}
        jobs = jobs_of_one_worker(asyncio.get_running_loop().create_future())
        await run_until(jobs, lambda: slurm.queue)
        assert jobs.may_be_left

    asyncio.run(play())
    assert slurm.calls.count("cancel_names") > 1


@pytest.mark.processes
@pytest.mark.parametrize("needed", [False, True])
def test_the_guard_cancels_what_is_left_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: bool
) -> None:
    scancel, asked = tmp_path / "scancel", tmp_path / "asked"
    scancel.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    scancel.chmod(0o755)
    # One pause is enough here: the others only take time.
    sleep = tmp_path / "sleep"
    sleep.write_text("#!/bin/sh\n")
    sleep.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async def play() -> None:
        async with guarded([NAME]) as guard:
            guard.is_needed = needed

    asyncio.run(play())
    deadline = time.monotonic() + (60 if needed else 0.3)
    while time.monotonic() < deadline and not (asked.exists() and asked.read_text().count("\n") == 4):
        time.sleep(0.02)
    told = asked.read_text().splitlines() if asked.exists() else []
    assert told == ([f"--quiet --user={os.getuid()} --name={NAME}"] * 4 if needed else [])


def test_steps_are_divided_as_jobs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []

    async def keep(
        order: Any, own: Any, files: Any, python: str, container: Any, label: str, place: int, queue: Any
    ) -> None:
        assert order.slots[label] == own.slots_per_worker
        kept.append(label)
        if len(kept) == own.workers:
            raise LaunchFailed("all of them")

    monkeypatch.setattr(steps, "_keep", keep)  # a step needs Slurm; how many there are does not
    own = SlurmSettings(workers=8, slots_per_worker=4)
    slots = {"a": 30, "b": 2}
    order = WorkerOrder(
        run=read_settings({"benchmark": "toy", "policy": "zero", "task": "short"}),
        folder=tmp_path,
        slots=slots,
        orchestrator=Address("tcp", "h", 1),
        public=Address("tcp", "h", 1),
        sockets=tmp_path,
        logs=tmp_path,
        rules=DEFAULT_RULES,
        results_of=lambda name: 0,
        explain=lambda name, why: None,
        join_token="",
    )
    files = SharedFiles.of(own.slurm_folder, tmp_path, "abc")
    with pytest.raises(LaunchFailed, match="all of them"):
        asyncio.run(steps.keep_steps(order, own, files, dict.fromkeys(slots, "python"), dict.fromkeys(slots)))
    assert {label: kept.count(label) for label in slots} == share_workers(own, slots) == {"a": 7, "b": 1}


def test_it_is_told_how_many_steps_wait_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(steps, "_LOOK_SECONDS", LOOK)
    monkeypatch.setattr(steps, "_TELL_SECONDS", LOOK)
    logs = [tmp_path / f"worker-toy-{number}.log" for number in range(3)]
    for log in logs:
        log.write_text("srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n")

    async def play() -> None:
        queue = steps._Queue()
        for log in logs:
            queue.waits(log)
        telling = asyncio.create_task(queue.tell())
        for log in logs:
            async with asyncio.timeout(60):
                while not (told := caplog.messages):
                    await asyncio.sleep(LOOK / 5)
            said.append((caplog.records[0].levelname, *told))
            caplog.clear()
            queue.begins(log)
        telling.cancel()

    said: list[tuple[str, ...]] = []
    with caplog.at_level("INFO"):
        asyncio.run(play())
    why = "Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)"
    assert said == [
        ("WARNING", f"3 of 3 steps wait for room in this allocation; srun says: {why}"),
        ("INFO", f"2 of 3 steps wait for room in this allocation; srun says: {why}"),
        ("INFO", f"1 of 3 steps wait for room in this allocation; srun says: {why}"),
    ]
