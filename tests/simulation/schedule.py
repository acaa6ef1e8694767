"""One simulated run: a seed decides the plan, the workers, what goes wrong and when."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import virtual_time
from simulation.faults import OF_ORCHESTRATORS, Faults
from simulation.grounds import Grounds
from simulation.ledger import Expected, Ledger
from simulation.orchestrator import Orchestrator
from simulation.plans import SEED, plan_of, recording_of, settings_of
from simulation.wire import LAUNCHED, TOKEN, Stream
from simulation.workers import SimulatedWorker

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.retry import RetryRules

LONGEST = 6 * 3600.0
"""Virtual seconds in which every run ends, whatever its faults."""
REASONS = ("same error", "got a session", "nobody", "fit", "get ready")
"""Why runs are stopped, a word of each."""


@dataclass(frozen=True)
class Simulated:
    """What came of a schedule."""

    rows: dict[EpisodeId, Expected]
    faults: Counter[str]
    seconds: float
    executions: int
    losses: int
    returned: int
    stops: Counter[str]


class _Simulation:
    def __init__(self, seed: int, folder: Path, *, calm: bool) -> None:
        self._dice = rng = Random(seed)
        self._folder = folder
        tasks, episodes = rng.randrange(1, 5), rng.randrange(1, 5)
        self._plan = plan_of(tasks, episodes)
        self._record = folder.parent / "recordings" if rng.random() < 0.3 else None
        self._shape = (tasks, episodes, rng.choice((0, 0, 1, 2)), self._record)
        self._launcher = rng.choice(("process", "process", "none"))
        self._max_errors = rng.choice((0, 2, 4, 20))
        self._policy_seconds = rng.choice((5.0, 60.0))
        self._trouble = "" if calm else rng.choices(("", "missing", "full", "gone"), (14, 3, 2, 2))[0]
        self._trouble_ends = rng.uniform(0, 400)
        self.stops: Counter[str] = Counter()
        self._rules = RetryRules(retries=rng.choice((0, 1, 3)), losses=rng.choice((2, 3, 20)))
        self.ledger = Ledger(self._plan, self._rules)
        budget, chance = rng.choice((3, 10, 30)), rng.choice((0.1, 0.3, 0.7))
        self.faults = Faults(Random(rng.random()), budget=0 if calm else budget, chance=chance)
        self._fleet = rng.randrange(1, 5)
        self._orchestrator: Orchestrator | None = None
        self._names = 0
        self.executions = 0

    @property
    def trouble(self) -> str:
        # What is missing stays so until somebody installs it; a policy may come back by itself.
        passes = self._trouble != "missing" and virtual_time.clock().time() > self._trouble_ends
        return "" if passes else self._trouble

    def dial(self, *, launched: bool) -> Stream | None:
        if self._orchestrator is None:
            return None
        stream = Stream(Random(self._dice.random()), LAUNCHED if launched else TOKEN)
        self._orchestrator.accept(stream)
        return stream

    def held_by_others(self, worker: str) -> list[int]:
        # The orchestrator adds a number to a name that somebody has already.
        return [lease for lease, (_, who) in self.ledger.held.items() if who.partition(".")[0] != worker]

    async def run(self) -> None:
        """Runs until a row is there for every episode."""
        tasks = [asyncio.create_task(self._respawn()) for _ in range(self._fleet)]
        try:
            while not await self._execute():
                await asyncio.sleep(self._dice.uniform(0.1, 60))
        finally:
            for worker in tasks:
                worker.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _execute(self) -> bool:
        """Starts the orchestrator, or resumes the run; returns whether it has finished."""
        self.executions += 1
        fault = self.faults.draw(OF_ORCHESTRATORS)
        settings = settings_of(
            *self._shape,
            launcher=self._launcher,
            max_errors=self._max_errors,
            policy_timeout=self._policy_seconds,
        )
        grounds = Grounds(
            max_errors=self._max_errors,
            policy_seconds=self._policy_seconds,
            starts_workers=self._launcher != "none",
            played=any(row.outcome != "error" for row in self.ledger.rows.values()),
            now=virtual_time.clock().time,
        )
        orchestrator = self._orchestrator = Orchestrator(
            self._folder,
            self._plan,
            settings,
            self._rules,
            self.ledger,
            grounds,
            writes_left=self._dice.randrange(1, 12) if fault == "killed at a write" else -1,
        )
        try:
            limit = self._dice.uniform(1, 200) if fault in ("killed", "interrupted") else None
            try:
                async with asyncio.timeout(limit):
                    ended = await orchestrator.ended()
            except TimeoutError:
                ended = fault
            if ended == "finished":
                journal = orchestrator.journal
                self.ledger.check_whole(journal.rows(), journal.failed_attempts(), SEED)
                orchestrator.coordinator.abandon()  # as it is at the end of every run
                self._check_recordings()
        finally:
            self._orchestrator = None
            await (orchestrator.interrupt() if fault == "interrupted" else orchestrator.kill())
        if ended == "stopped":
            self._stopped(str(orchestrator.coordinator.ended.exception()), grounds)
        return ended == "finished"

    def _stopped(self, reason: str, grounds: Grounds) -> None:
        """Checks why a run was stopped; its user repairs what was wrong, and resumes it in any case."""
        grounds.check(reason)
        self._trouble = ""
        self._max_errors = 0
        self.stops[next(word for word in REASONS if word in reason)] += 1

    def _check_recordings(self) -> None:
        """Checks that everything that was played to its end was recorded, and that nothing else is there."""
        if self._record is None:
            return
        files = {path: path.read_bytes() for path in self._record.rglob("*") if path.is_file()}
        assert all(path.suffix == ".npz" for path in files), f"left behind: {files.keys()}"
        for episode, row in self.ledger.rows.items():
            if row.outcome != "error":
                path = self._record / "toy" / episode.task / f"{episode.index:04d}.npz"
                assert files.get(path) == recording_of(episode), f"the recording of {episode}"

    async def _respawn(self) -> None:
        """Keeps one worker alive, as a launcher does."""
        while True:
            self._names += 1
            worker = SimulatedWorker(
                f"w{self._names}",
                self._dice.randrange(1, 4),
                self,
                self.faults,
                Random(self._dice.random()),
                launched=self._launcher != "none" and self._dice.random() < 0.5,
            )
            await worker.live()
            await asyncio.sleep(self._dice.uniform(0.2, 10))


def simulate(seed: int, folder: Path, *, calm: bool = False, frozen: bool = False) -> Simulated:
    """Simulates the run that a seed stands for; raises AssertionError where it is not as it must be.

    Args:
        seed: Of everything.
        folder: For the journal.
        calm: Leave out the faults.
        frozen: Stop the whole machine now and then, calm or not.
    """

    async def freeze() -> None:
        rng = Random(seed)
        while True:
            await asyncio.sleep(rng.uniform(5, 40))
            virtual_time.clock().now += rng.uniform(20, 500)

    async def limited() -> Simulated:
        simulation = _Simulation(seed, folder, calm=calm)
        freezing = asyncio.create_task(freeze()) if frozen else None
        async with asyncio.timeout(LONGEST):
            await simulation.run()
        if freezing is not None:
            freezing.cancel()
        return Simulated(
            dict(simulation.ledger.rows),
            simulation.faults.drawn,
            virtual_time.clock().time(),
            simulation.executions,
            simulation.ledger.losses,
            simulation.ledger.returned,
            simulation.stops,
        )

    return virtual_time.run(limited())
