"""Playing recorded episodes again: a run of its own, in a folder of its own, whose policy is what was recorded.

Launchers, workers, containers, deadlines and retries are those of any run (`orchestrator/execution/execution.py`); what
is different is that every lease has the actions, and says what is wanted of the replay.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.execution.execution import Execution
from sparring.orchestrator.execution.prepare import prepare
from sparring.orchestrator.execution.run_files import output_folder
from sparring.orchestrator.execution.tasks import until_signal
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.replay.leftovers import PREFIX, mark, remove_leftovers
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.settings import NOBODY, ReplaySettings
from sparring.orchestrator.replay.trust import check_trusted
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.makers import Maker, makers_of
from sparring.orchestrator.results.reading import FILE_NAME, KeptEpisode, beside_a_run, events_of, trace_of
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.file_names import FileNames
from sparring.orchestrator.run.films import difference
from sparring.orchestrator.run.listeners import Listeners, RunListener
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import Description
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.action_list import UnreadableActions, unpack
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import ignore_poller_races
from sparring.protos.spec import PolicySpec
from sparring.protos.tracebacks import traceback_of, without_references

_NOT_ASKED: Final = Description(NOBODY, {}, "", "", PolicySpec(action_dim=1, chunk_length=1))
_NOTHING_CAME: Final = "nothing came of its replay."

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """What is wanted of replays, beside that they are what was recorded.

    Attributes:
        film: How films look; None: none are made.
        steps: Of episodes that are filmed, those that alone are shown; others are shown whole.
        watch: Patterns of observations that are recorded at the reset and after every step; empty: nothing is.
        every: After how many steps they are recorded, if not after each.
        now: Settings of `sparring run` on workers: `slots`, `launcher`, `assets`, `in_process`, …
        seen: Settings of benchmarks that change what is seen and nothing else, such as `resolution`.
        trusted: Code that the run names and the user allows (`trust.py`).
    """

    film: pb.FilmStyle | None = None
    steps: Mapping[EpisodeId, Sequence[int]] = field(default_factory=dict)
    watch: Sequence[str] = ()
    every: int = 1
    now: Mapping[str, object] = field(default_factory=dict)
    seen: Mapping[str, object] = field(default_factory=dict)
    trusted: Collection[str] = ()


@dataclass(frozen=True)
class Replayed:
    """An episode that was played again. Its files are there while its listener is being told, and may be moved away.

    Attributes:
        recorded: What came of it then.
        again: What came of it now; an `error` if it could not be played to its end.
        kept: What was recorded of its steps.
        trace: What came of its steps now, as `kept.trace`; empty if nothing did.
        maker: Who has played it again: its machine and versions. None: nobody has come to that.
        film: If one was wanted, and the episode has come to its end.
        recording: Likewise: an .npz archive, as docs/recordings.md describes them.
        missing: Why something that was wanted is not there, in a sentence.
    """

    recorded: EpisodeRow
    again: EpisodeRow
    kept: KeptEpisode
    trace: bytes
    maker: Maker | None
    film: Path | None
    recording: Path | None
    missing: str = ""

    @property
    def difference(self) -> str:
        """In what it is not the episode that was recorded, as a sentence; nothing, if it is."""
        return difference(self.recorded, self.again)


def replay(
    run: RecordedRun,
    episodes: Iterable[EpisodeId],
    wanted: Wanted,
    folder: Path,
    heard: Callable[[Replayed], None],
    listeners: Iterable[RunListener] = (),
) -> Mapping[EpisodeId, str]:
    """Plays episodes of a recorded run again; to be called in the main thread, for signals.

    Args:
        run: Whose.
        episodes: Which.
        wanted: What for.
        folder: A new one for what comes of it, which the caller removes (`working_folder`).
        heard: Is told of each as soon as it has ended. What it raises ends all of it, and is raised here.
        listeners: Who watches, as any run.

    Returns:
        Those that `heard` was not told of, in their order, and why, in a sentence: nothing is kept of them, that cannot
        be read, or nothing came of their replays.

    Raises:
        UsageError: If nothing is kept of any of them, the run names code that is not trusted, or they
            cannot be played here as they are wanted.
        Interrupted, RunStopped and other SparringErrors: If it could not be finished.
    """
    check_trusted(run.parts, run.plan.tasks, wanted.trusted)
    wished = list(episodes)
    found, _ = run.kept(wished)
    unreadable = unreadable_among(found)
    kept = {episode: each for episode, each in found.items() if episode not in unreadable}
    untold = {
        episode: unreadable.get(episode, _NOTHING_CAME if episode in kept else "its actions are missing.")
        for episode in wished
    }
    if not kept:
        return untold
    made = ReplaySettings(
        wanted.now,
        wanted.seen,
        film=wanted.film is not None,
        record=bool(wanted.watch),
        cameras=() if wanted.film is None else wanted.film.cameras,
        watch=wanted.watch,
    )
    plan = replace(_of_those(run.plan, kept), only=frozenset(kept))
    settings = made.of(run.document.settings, folder, plan.tasks)
    prepare(settings)
    telling = _Telling(run, kept, folder, settings, FileNames(plan), heard)

    def order(episode: EpisodeId, lease: pb.Lease) -> None:
        telling.check()
        lease.replay = kept[episode].actions
        lease.keep_actions = True
        lease.watch.extend(wanted.watch)
        lease.watch_every = wanted.every
        if wanted.film is not None:
            lease.style.CopyFrom(wanted.film)
            lease.style.steps.extend(wanted.steps.get(episode, ()))

    try:
        if settings.plan.in_process:
            from sparring.orchestrator.execution.in_process import (
                run_in_process,  # imports what is a worker's otherwise
            )

            run_in_process(settings, plan, folder, [telling, *listeners], order=order)
        else:
            asyncio.run(_play(settings, plan, folder, [telling, *listeners], order))
    except SparringError:
        telling.check()  # it is the cause
        raise
    telling.check()
    return {episode: why for episode, why in untold.items() if episode not in telling.told}


def unreadable_among(kept: Mapping[EpisodeId, KeptEpisode]) -> dict[EpisodeId, str]:
    """Returns the episodes whose actions cannot be read, and why, in a sentence: no worker needs to try."""
    found: dict[EpisodeId, str] = {}
    for episode, each in kept.items():
        try:
            unpack(each.actions)
        except UnreadableActions as error:
            found[episode] = error.sentence
    return found


@contextmanager
def working_folder(beside: Path) -> Iterator[Path]:
    """Makes a folder for `replay`, on the disk where what comes of it will stay, and removes it.

    What killed processes have left there is removed, too. So are folders around it that it has made, if nothing came
    to stay there.

    Raises:
        SparringError: If it cannot be made.
    """
    made = [path for path in (beside, *beside.parents) if not path.exists()]
    try:
        beside.mkdir(parents=True, exist_ok=True)
        remove_leftovers(beside)
        temporary = tempfile.TemporaryDirectory(prefix=PREFIX, dir=beside)
    except OSError as error:
        raise UsageError(f"{str(beside)!r} cannot be written: {error.strerror}.") from error
    try:
        with temporary as folder:
            with suppress(OSError):  # a disk that is full is told by whoever has something to write
                mark(Path(folder))
            yield Path(folder) / "run"
    finally:
        with suppress(OSError):  # something is in there
            for path in made:
                path.rmdir()


async def _play(
    settings: RunSettings,
    plan: Plan,
    folder: Path,
    listeners: Iterable[RunListener],
    order: Callable[[EpisodeId, pb.Lease], None],
) -> None:
    asyncio.get_running_loop().set_exception_handler(ignore_poller_races)
    with output_folder(folder) as journal:
        await _ReplayExecution(settings, plan, folder, journal, Listeners(listeners), order).run(until_signal())


class _ReplayExecution(Execution):
    """A run without a policy: what it would do is known."""

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        folder: Path,
        journal: Journal,
        listener: Listeners,
        order: Callable[[EpisodeId, pb.Lease], None],
    ) -> None:
        super().__init__(settings, plan, folder, journal, listener)
        self._ordered = order

    def _order(self, episode: EpisodeId, lease: pb.Lease) -> None:
        self._ordered(episode, lease)

    async def _host(
        self, stack: AsyncExitStack, sockets: Path, listen: Address | None, watched: list[asyncio.Future[None]]
    ) -> PolicyAccess:
        return PolicyAccess(())

    async def _describe(self, access: PolicyAccess) -> Description:
        return _NOT_ASKED

    async def _watch_stats(self, stack: AsyncExitStack, access: PolicyAccess) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def _watch_program(self, stack: AsyncExitStack, coordinator: Coordinator, began_with: Description) -> None:
        return


class _Telling(RunListener):
    """Tells of each replay when it is in the replay's own journal, with its files.

    A listener that raises is dropped, so what it raises is kept, and raised where it ends the run.
    """

    def __init__(
        self,
        run: RecordedRun,
        kept: Mapping[EpisodeId, KeptEpisode],
        folder: Path,
        settings: RunSettings,
        names: FileNames,
        heard: Callable[[Replayed], None],
    ) -> None:
        self._run = run
        self._kept = kept
        self._folder = folder
        self._films = settings.output.video != "none"
        self._names = names
        self._record = settings.output.record
        self._heard = heard
        self._raised: SparringError | None = None
        self.told: set[EpisodeId] = set()
        """Whose replays were told of."""

    def check(self) -> None:
        """Raises what a listener has raised."""
        if self._raised is not None:
            raise self._raised

    def on_result(self, row: EpisodeRow) -> None:
        if self._raised is not None:
            return
        try:
            self._heard(self._replayed(row))
        except SparringError as error:
            self._raised = error
        except OSError as error:
            self._raised = RunStopped(f"what came of {row.id} cannot be written: {error.strerror}.")
        except Exception as error:  # noqa: BLE001  # whatever it is, nobody may take it for an episode that is as it was
            log.error("%s", traceback_of(error).rstrip())
            self._raised = RunStopped(f"what came of {row.id} cannot be judged: {type(error).__name__}: {error}")
        else:
            self.told.add(row.id)

    def _replayed(self, row: EpisodeRow) -> Replayed:
        played = row.outcome != "error"
        recording = None if self._record is None else self._names.recording(self._record, row.id)
        with beside_a_run(self._folder / FILE_NAME) as journal:
            trace, makers = trace_of(journal, row.id), makers_of(journal)
            film = self._folder / row.video if played and row.video else None
            recording = recording if played and recording is not None and recording.exists() else None
            lacking = (film is None and self._films) or (recording is None and self._record is not None)
            said = [event.message for event in events_of(journal) if event.episode == row.id] if lacking else []
        return Replayed(
            recorded=self._run.rows[row.id],
            again=replace(row, error=without_references(row.error)),
            kept=self._kept[row.id],
            trace=trace,
            maker=makers.get(row.maker),
            film=film,
            recording=recording,
            missing=(said[-1] if said else _NOTHING_CAME) if lacking else "",
        )


def _of_those(plan: Plan, kept: Mapping[EpisodeId, KeptEpisode]) -> Plan:
    """Returns the part of a plan that some episodes are of: workers are started for nothing else."""
    wanted = {(episode.benchmark, episode.task) for episode in kept}
    tasks = {name: [task for task in tasks if (name, task.name) in wanted] for name, tasks in plan.tasks.items()}
    return replace(plan, tasks={name: left for name, left in tasks.items() if left})
