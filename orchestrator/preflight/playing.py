"""Plays what is looked at: a few steps of the policy, and some of its training again; then the policy is asked more.

A run like any other, in a folder that is thrown away, so that the policy may be of any kind and the benchmark in any
Python or container. The policy stays for a while after the last episode, to be asked about frames of its training.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sparring.env_worker.episode.session import Session
from sparring.orchestrator.execution.execution import Execution
from sparring.orchestrator.execution.run_files import output_folder
from sparring.orchestrator.execution.tasks import until_signal
from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.preflight.evidence import Ask, is_picture
from sparring.orchestrator.preflight.script import EVERY, Script, nothing_done
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.file_names import FileNames
from sparring.orchestrator.run.listeners import Listeners, RunListener
from sparring.orchestrator.run.orders import LeaseOrder
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import PolicyClient
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.action_list import pack
from sparring.protos.chunk import Chunk
from sparring.protos.errors import SparringError
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import ignore_poller_races
from sparring.protos.rules import NotApplicable
from sparring.protos.spec import Offer
from sparring.protos.tensor import Array
from sparring.protos.tracebacks import Tracebacks

EVERYTHING: Final = "*"


@dataclass(frozen=True)
class Rehearsed:
    """What came of it.

    Attributes:
        episodes: That the policy has played.
        probe: With actions of the training set; None: there is none.
    """

    episodes: Sequence[RecordedEpisode]
    probe: RecordedEpisode | None


Examine = Callable[[Rehearsed, Ask], None]
"""Looks at what was played, while the policy can still be asked."""


@dataclass(frozen=True)
class Rehearsal:
    """What is played.

    Attributes:
        settings: Of the run: of one task, with a folder for recordings.
        plan: One task; its last episode is the probe.
        script: What is played in the probe; None: nothing is done in it.
    """

    settings: RunSettings
    plan: Plan
    script: Script | None

    @property
    def label(self) -> str:
        """Of the one part of the run."""
        return self.settings.plan.parts[0].label

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.plan.tasks[self.label][0].name

    @property
    def played_by_policy(self) -> int:
        """How many of the episodes are the policy's."""
        return self.plan.episodes - 1

    def recording(self, index: int) -> Path:
        """Returns where an episode's recording will be."""
        folder = self.settings.output.record
        assert folder is not None
        return FileNames(self.plan).recording(folder, EpisodeId(self.label, self.task, index))

    @property
    def steps(self) -> int:
        """Of an episode, at most."""
        return self.settings.plan.rules.max_steps

    def order(self, episode: EpisodeId, lease: pb.Lease) -> None:
        """Makes the last episode the probe, as soon as the first has told what actions may be."""
        if episode.index < self.played_by_policy or not self.recording(0).is_file():
            return
        first = RecordedEpisode(self.recording(0))
        space = first.about.action_space
        if space is None:
            return
        scripted = None if self.script is None else self.script.played(space, self.steps)
        lease.replay = pack(nothing_done(space, self.steps) if scripted is None else scripted)
        # Who looks at no images may be where none can be drawn.
        draws = any(is_picture(spec) for spec in first.observations.values())
        lease.watch.extend([EVERYTHING] if draws else list(first.observations))
        lease.watch_every = self.steps if scripted is None else EVERY

    def asking(self, played: Rehearsed, opener: _Opener) -> Ask:
        """Returns what asks the policy, as if it played another episode."""
        benchmark = self.settings.plan.parts[0].benchmark
        return asking(opener, played, benchmark=benchmark, task=self.task, seed=self.plan.seed)

    def played(self, rows: Iterable[EpisodeRow]) -> Rehearsed:
        """Returns what came of it.

        Raises:
            RunStopped: If the policy has played no episode.
        """
        found = [self.recording(index) for index in range(self.played_by_policy)]
        episodes = [RecordedEpisode(path) for path in found if path.is_file()]
        if not episodes:
            errors = [row.error for row in rows if row.error]
            raise RunStopped(f"no episode came to its end: {errors[0] if errors else 'nothing was recorded.'}")
        probe = self.recording(self.played_by_policy)
        is_probe = episodes[0].about.action_space is not None and probe.is_file()
        return Rehearsed(episodes, RecordedEpisode(probe) if is_probe else None)


def play(rehearsal: Rehearsal, folder: Path, examine: Examine, listeners: Iterable[RunListener] = ()) -> Results:
    """Plays it, and has it examined while the policy is there; to be called in the main thread, for signals.

    Args:
        rehearsal: What.
        folder: For what comes of it.
        examine: Is called with it.
        listeners: Who watches.

    Raises:
        SparringError: If it could not be played.
    """
    if rehearsal.settings.plan.in_process:
        return _play_here(rehearsal, folder, examine, listeners)
    return asyncio.run(_play_hosted(rehearsal, folder, examine, listeners))


def _play_here(rehearsal: Rehearsal, folder: Path, examine: Examine, listeners: Iterable[RunListener]) -> Results:
    from sparring.orchestrator.execution.in_process import (  # imports what is a worker's otherwise
        load_local,
        run_in_process,
    )

    settings = rehearsal.settings
    results = run_in_process(settings, rehearsal.plan, folder, listeners, order=rehearsal.order)
    played = rehearsal.played(results.rows)
    policy = load_local(settings, Tracebacks(folder))
    examine(played, rehearsal.asking(played, policy))
    return results


async def _play_hosted(
    rehearsal: Rehearsal, folder: Path, examine: Examine, listeners: Iterable[RunListener]
) -> Results:
    asyncio.get_running_loop().set_exception_handler(ignore_poller_races)
    with output_folder(folder) as journal:
        execution = _RehearsedRun(rehearsal, folder, journal, Listeners(listeners), examine)
        return await execution.run(until_signal())


class _RehearsedRun(Execution):
    """A run that is looked at when its workers have gone and its policy has not."""

    def __init__(
        self, rehearsal: Rehearsal, folder: Path, journal: Journal, listener: Listeners, examine: Examine
    ) -> None:
        super().__init__(rehearsal.settings, rehearsal.plan, folder, journal, listener)
        self._rehearsal = rehearsal
        self._examine = examine
        self._is_played = False

    def _order(self, episode: EpisodeId, lease: pb.Lease) -> None:
        order: LeaseOrder = self._rehearsal.order
        order(episode, lease)

    async def _host(
        self, stack: AsyncExitStack, sockets: Path, listen: Address | None, watched: list[asyncio.Future[None]]
    ) -> PolicyAccess:
        access = await super()._host(stack, sockets, listen, watched)

        async def examine() -> None:  # after the workers' end, whose sessions at the policy have ended then
            if self._is_played:
                await asyncio.to_thread(self._examined, access, self._rehearsal.played(self._journal.rows()))

        stack.push_async_callback(examine)
        return access

    async def _play(self, stack: AsyncExitStack, interrupted: asyncio.Future[None]) -> None:
        await super()._play(stack, interrupted)
        self._is_played = True

    def _examined(self, access: PolicyAccess, played: Rehearsed) -> None:
        address = access.servers[0]
        timeout = self._settings.policy.policy_timeout
        ca = access.ca_at(address)
        with PolicyClient(address, timeout=timeout, token=access.token, ca=ca, identity=access.identity) as client:
            self._examine(played, self._rehearsal.asking(played, client))


class _Opener(Protocol):
    """Whoever opens sessions of a policy."""

    def open(self, offer: Offer, *, benchmark: str = "") -> Session:
        """Opens one."""


def asking(opener: _Opener, played: Rehearsed, *, benchmark: str, task: str, seed: int = 0) -> Ask:
    """Returns a function that asks the policy as if an episode of the benchmark began with what it is shown."""
    sessions: list[Session] = []

    def ask(sentence: str, seen: Mapping[str, Array]) -> Chunk:
        try:
            if not sessions:
                sessions.append(opener.open(_offer(played), benchmark=benchmark))
            sessions[0].start(task=task, instruction=sentence, seed=seed, index=0)
            return sessions[0].act(seen, step=0)
        except SparringError as error:
            sessions.clear()  # after an error it is over
            raise NotApplicable(f"the policy does not answer: {error.sentence}") from error

    return ask


def _offer(played: Rehearsed) -> Offer:
    """Returns what the benchmark offers, as far as it was seen."""
    first = played.episodes[0]
    observations = dict(first.observations)
    if played.probe is not None:
        observations = {**played.probe.observations, **observations}
    space = first.about.action_space
    if space is None:
        raise NotApplicable("what actions may be is not known: the worker is of an older release.")
    low, high = tuple(map(float, space.low)), tuple(map(float, space.high))
    return Offer(observations, low, high, first.about.control_hz, space.control)
