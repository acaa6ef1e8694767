"""The files of a run while it goes: its journal, run.json and results, whole on every way out."""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.registry import installed_versions
from sparring.orchestrator.coordination.admission import FILE_NAME as TOKEN_FILE
from sparring.orchestrator.coordination.program_check import ProgramCheck
from sparring.orchestrator.execution.invocation import Invocation
from sparring.orchestrator.execution.plugins import plugins
from sparring.orchestrator.machine.shared_storage import shared_storage
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.damage import DamagedJournal, check_same_run, document_of
from sparring.orchestrator.results.document import RUN_FILE, RunDocument, RunStatus, tasks_of, write_document
from sparring.orchestrator.results.document_parts import RunExecution, RunHost, RunPolicy, RunRate, ServerStats
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.programs import NOTE, changes, programs_in
from sparring.orchestrator.results.reading import FILE_NAME
from sparring.orchestrator.results.results import RESULT_FILES, Results, write_results
from sparring.orchestrator.run.early_stopping import EarlyStopping
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.listeners import Listeners, RunEnd, RunStart
from sparring.orchestrator.run.make_plan import identity
from sparring.orchestrator.run.protocols import protocols_played
from sparring.orchestrator.run.slot_time import SlotClock
from sparring.orchestrator.serving.policy_host import policy_identity
from sparring.orchestrator.serving.stats import StatsWatch
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.trackers.kept_ids import IDS_FILE
from sparring.policy_server.client import Description
from sparring.protos.advice import FLAGS, Dialect, Hint, render
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.tracebacks import FOLDER as TRACEBACKS

log = logging.getLogger(__name__)

_OURS: Final = frozenset({RUN_FILE, *RESULT_FILES, TOKEN_FILE, IDS_FILE, "logs", "videos", TRACEBACKS})
"""What a run that came to nothing may have left in its folder, beside its journal."""


class RunFiles:
    """What one go at a run, from its start or resume to its end or interruption, leaves in the output folder.

    Args:
        settings: Of the run.
        plan: Of the run.
        folder: Its output folder.
        journal: Of that folder.
        listener: Hears of the start and the end.
        dialect: The words of those who read about this run; files are in those of the command, which are for everybody.
        invocation: How this execution was asked for.
        stopping: Says whether the run stops early; None: it does not.
    """

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        folder: Path,
        journal: Journal,
        listener: Listeners,
        dialect: Dialect = FLAGS,
        invocation: Invocation | None = None,
        stopping: EarlyStopping | None = None,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._stopping = stopping or EarlyStopping(plan)
        self._folder = folder
        self._journal = journal
        self._listener = listener
        self._dialect = dialect
        self._invocation = invocation or Invocation()
        self._executions: list[dict[str, Any]] = [*(journal.meta("executions") or []), self._this_execution()]
        self._began = time.monotonic()
        self._told: set[str] = set()
        self._seconds_before = float(journal.meta("seconds") or 0.0)
        self._clock = SlotClock(journal.meta("slot_seconds"), is_first=not self._seconds_before)
        listener.add(self._clock)
        self._policy: Description | None = None
        self._programs: ProgramCheck | None = None
        self._results: Results | None = None
        self.stats_watch: StatsWatch | None = None
        """Has an eye on whoever answers for the policy."""
        used = [part.benchmark for part in settings.plan.parts]
        self.versions = {**(journal.meta("versions") or {}), "orchestrator": installed_versions(used)}
        """Of what is installed, by where that is."""
        self._protocols = protocols_played(settings)
        self._machines: dict[str, Mapping[str, str]] = dict(journal.meta("machines") or {})

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Lets a run go on inside; saves what came of it, whether it comes to its end or not.

        Raises:
            UsageError: If the folder is another plan's.
            SparringError: If the results cannot be saved.
        """
        accept = self._invocation.accept_changes
        self._journal.check(identity(self._settings, self._plan), accept_changes=accept)
        self._listener.on_start(self._start())
        if kind := shared_storage(self._folder):
            self.warn(
                f"the output folder {str(self._folder)!r} is on {kind}, which machines share: a journal there is "
                "only as safe as the locks of that storage, and slower. Let one machine at a time write to it, or put "
                f"{Hint('output')} on a disk of this machine and copy the folder when the run has ended."
            )
        try:
            try:
                yield
            except BaseException:
                self._results = self._save_what_there_is()
                raise
            self._results = self._save_finished()
        except BaseException as error:
            if isinstance(error, SparringError):
                error.dialect = error.dialect or self._dialect
            self._listener.on_end(RunEnd(self._results, error))
            raise
        self._listener.on_end(RunEnd(self._results, None))

    @property
    def results(self) -> Results:
        """What came of the run, when it has ended."""
        assert self._results is not None, "the run has not ended"
        return self._results

    @property
    def claimed(self) -> bool:
        """Whether the folder is known to be this plan's."""
        return self._policy is not None

    @property
    def programs(self) -> ProgramCheck:
        """What the benchmarks of workers are to be held against."""
        if self._programs is None:
            accept = self._invocation.accept_changes
            self._programs = ProgramCheck(self._settings, self._plan, self._journal, accept=accept, warn=self.warn)
        return self._programs

    def claim(self, policy: Description) -> None:
        """Ties the folder to the plan and the policy.

        Raises:
            UsageError: If it is another plan's or policy's, with the difference.
        """
        accept = self._invocation.accept_changes
        plan = {**identity(self._settings, self._plan), "policy": policy_identity(policy)}
        self._journal.check(plan, accept_changes=accept)
        program = self.programs.policy(policy)
        self._journal.claim(plan, accept_changes=accept)
        if self._journal.meta("run") is None:
            self._journal.set_meta("run", uuid.uuid4().hex)
        packages = {} if policy.program is None else dict(policy.program.packages)
        programs = {
            "orchestrator": self.versions["orchestrator"],
            "policy_server": {"sparring": policy.server_version, **packages},
        }
        self._journal.set_meta("programs", programs)  # for the makers of the rows to come
        self._journal.set_meta("policy_program", program)
        self._policy = policy
        self._write_run("running")

    def heard_of(self, versions: Mapping[str, Mapping[str, str]], machines: Mapping[str, Mapping[str, str]]) -> None:
        """Takes down what workers have, and what they run on: versions by worker, machines by host."""
        self.versions.update({name: dict(found) for name, found in versions.items()})
        self._machines.update(machines)

    def _this_execution(self) -> dict[str, Any]:
        return {"began": _now(), "ended": None, "command": self._invocation.command or None}

    def keep(self) -> None:
        """Notes what the next execution goes on from, should this one be killed, and what readers see meanwhile."""
        self._journal.set_meta("seconds", self._seconds)
        self._journal.set_meta("slot_seconds", self._clock.to_json())
        if self.stats_watch is not None:
            self._journal.set_meta("server_counts", self.stats_watch.to_json())
            self._journal.set_meta("server_stats", self.stats_watch.summary())
            if (load := self.stats_watch.load()) is not None:
                self._listener.on_stats(load)

    def warn(self, sentence: str) -> None:
        """Says what people should know about this run, each sentence once."""
        told = render(sentence, self._dialect)
        if told in self._told:
            return
        self._told.add(told)
        log.warning("%s", told)
        self._listener.on_warning(told)

    def _start(self) -> RunStart:
        recorded = [row for row in self._journal.rows() if row.outcome != "error"]
        return RunStart(self._plan, recorded, self._settings.flat(), self._results_folder, self._protocols)

    @property
    def _results_folder(self) -> Path | None:
        """The folder that is told to others; None if it is thrown away."""
        return None if self._settings.output.folder is None else self._folder

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._began

    def _save_finished(self) -> Results:
        """Saves the results of a run that has come to its end, if it has: every episode of the plan must have a row."""
        recorded = {row.id for row in self._journal.rows()}
        planned = self._stopping.plan.ids()
        missing = [episode for episode in planned if episode not in recorded]
        if not missing:
            return self._save("finished")
        self._results = self._save("unfinished")
        raise RunStopped(
            f"{len(missing)} of {len(planned)} episodes were not recorded, the first of them {missing[0]}: a "
            "mistake in Sparring, please tell us. Resume the run to play them."
        )

    def _save_what_there_is(self) -> Results | None:
        if not self.claimed:
            return None
        try:
            return self._save("unfinished")
        except SparringError as error:  # the first failure is the one to report
            log.error("%s", error)
            return None

    def _save(self, status: RunStatus) -> Results:
        self._executions[-1]["ended"] = _now()
        self._journal.set_meta("versions", self.versions)
        self._journal.set_meta("machines", {host: dict(found) for host, found in self._machines.items()})
        self.keep()
        document = self._write_run(status)
        results = Results(
            plan=self._stopping.plan,
            rows=self._stopping.kept(self._journal.rows()),
            seconds=document.seconds,
            folder=self._folder,
            status=status,
            policy=document.policy,
            versions=document.versions,
            server_stats=self._told_stats() or document.server_stats,
            events=self._journal.events(),
            makers=self._journal.makers(),
            metric=self._settings.plan.rules.metric,
            programs=document.programs,
            settings=document.settings,
            early_stop=document.early_stop,
            protocols=document.protocols,
            id=document.id,
        )
        write_results(results)
        return replace(results, folder=self._results_folder)

    def _told_stats(self) -> ServerStats | None:
        """Returns what the servers did, with advice for those who read about this run."""
        told = self.stats_watch.summary(self._dialect) if self.stats_watch else None
        return None if told is None else ServerStats.model_validate(told)

    def _write_run(self, status: RunStatus) -> RunDocument:
        rows, makers = self._stopping.kept(self._journal.rows()), self._journal.makers()
        self._journal.set_meta("executions", self._executions)
        named = sorted({sha256 for maker in makers.values() for sha256 in maker.programs.values()})
        notes = {f"{NOTE}{sha256}": self._journal.meta(f"{NOTE}{sha256}") for sha256 in named}
        # Of a journal that was damaged, and salvaged, one may be missing.
        programs = programs_in({key: note for key, note in notes.items() if note is not None})
        results = Results(plan=self._stopping.plan, rows=rows, seconds=0.0, folder=None, protocols=self._protocols)
        document = RunDocument(
            id=self._journal.meta("run"),
            status=status,
            settings=self._settings.flat(),
            seed=self._plan.seed,
            seeds=dict(self._plan.seeds),
            protocols=self._protocols,
            episodes=self._plan.episodes,
            policy_seeds=self._plan.repeats,
            tasks=tasks_of(self._plan),
            policy=None if self._policy is None else RunPolicy.of(self._policy),
            versions={name: dict(found) for name, found in self.versions.items()},
            makers={str(number): maker for number, maker in makers.items()},
            programs=programs,
            changes=changes(rows, makers, programs),
            executions=[RunExecution.model_validate(execution) for execution in self._executions],
            plugins=plugins(),
            machines={host: dict(found) for host, found in self._machines.items()},
            host=RunHost.here(),
            seconds=self._seconds,
            server_stats=ServerStats.noted(self._journal.meta("server_stats")),
            recorded=len(rows),
            overall=RunRate.of_all(results),
            group_rates={name: RunRate.of(summary) for name, summary in results.groups.items()},
            task_rates={name: RunRate.of(summary) for name, summary in results.tasks.items()},
            out_of_range=sum(row.out_of_range for row in rows),
            renderers=results.renderers,
            early_stop=self._stopping.state(),
        )
        write_document(self._folder, document)
        return document


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def check_output(folder: Path) -> None:
    """Checks that a folder is a run's, or has nothing but hidden files: a run would strew its own among somebody's.

    Raises:
        UsageError: If something else is in there, or it is a file.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except NotADirectoryError:
        raise UsageError(f"{str(folder)!r} is a file, and results need a folder: {Hint('output')}.") from None
    except OSError:  # not there yet; or it cannot be read, which is told when it is written to
        return
    journal = Path(FILE_NAME).stem
    if RUN_FILE in names or any(name.startswith(f"{journal}.") for name in names):
        return
    if foreign := [name for name in names if name not in _OURS and not name.startswith(".")]:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UsageError(
            f"the folder {str(folder)!r} has something else in it than a run ({foreign[0]}{more}). Name a new or an "
            f"empty one with {Hint('output')}."
        )


@contextmanager
def output_folder(folder: Path) -> Iterator[Journal]:
    """Opens the journal of an output folder; both are made, and removed again if it never comes to a run.

    Raises:
        UsageError: If the folder cannot be used: its journal is another run's, gone or damaged, or being written.
    """
    new, unused = not folder.exists(), not (folder / FILE_NAME).exists()
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    journal = Journal(folder)
    mistaken = False
    try:
        _check_journal(folder, journal)
        yield journal
    except DamagedJournal:  # while it was written: what there is of it is kept
        raise
    except UsageError:
        mistaken = new and not journal.rows()
        raise
    finally:
        claimed = not unused or _is_claimed(journal)
        journal.close()
        if new and (mistaken or not claimed):  # leave no debris of a mistyped command
            _remove_debris(folder, made)
        elif unused and not claimed:  # the folder is as free for the next run as it was
            journal.path.unlink(missing_ok=True)


def _is_claimed(journal: Journal) -> bool:
    try:
        return journal.meta("identity") is not None
    except SparringError:  # it cannot be read any more: it is no debris
        return True


def _remove_debris(folder: Path, made: Sequence[Path]) -> None:
    """Removes what a run that never came to anything has written, and its folder, unless something else is in there.

    A worker may be to blame for the end; what the user has put there meanwhile is not its to delete.

    Args:
        folder: The output folder.
        made: It and those around it, from the inside, as far as the run has made them.
    """
    shutil.rmtree(folder / "logs", ignore_errors=True)
    ours = [RUN_FILE, *RESULT_FILES, IDS_FILE, *(path.name for path in folder.glob(f"{Path(FILE_NAME).stem}.*"))]
    for name in ours:
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        for path in made:
            path.rmdir()


def _check_journal(folder: Path, journal: Journal) -> None:
    """Checks that a journal is the one that run.json tells of, and says if it knows of fewer episodes."""
    check_same_run(folder, journal.meta("run"), claimed=journal.meta("identity") is not None)
    document = document_of(folder) if (folder / RUN_FILE).exists() else None
    recorded = len(journal.rows())
    if document is not None and (document.recorded or 0) > recorded:
        log.warning(
            "the journal in %r has %d episodes, run.json tells of %d: what is missing is played again",
            str(folder),
            recorded,
            document.recorded,
        )
