"""Workers as jobs of a Slurm cluster: a job array from a login node, or steps inside an allocation."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.launchers.base import (
    WORKER_PROGRAM,
    Launcher,
    LaunchFailed,
    Leftover,
    WorkerOrder,
    worker_flags,
)
from sparring.orchestrator.launchers.cluster import check_cluster, share_workers, slots_of
from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed, SlurmUnreachable, inside_allocation
from sparring.orchestrator.launchers.slurm.container import ContainedProgram, WorkerContainer, containers_of
from sparring.orchestrator.launchers.slurm.end_jobs import cancel_earlier
from sparring.orchestrator.launchers.slurm.guard import guarded
from sparring.orchestrator.launchers.slurm.hosting import SlurmHosting
from sparring.orchestrator.launchers.slurm.own_address import found_address
from sparring.orchestrator.launchers.slurm.part_workers import PartWorkers
from sparring.orchestrator.launchers.slurm.script import (
    BatchScript,
    check_printable,
    comment,
    job_name,
    log_pattern,
    read_comment,
)
from sparring.orchestrator.launchers.slurm.secret_notes import secret_notes
from sparring.orchestrator.launchers.slurm.settings import SlurmHostingSettings, SlurmSettings
from sparring.orchestrator.launchers.slurm.shared_files import SharedFiles
from sparring.orchestrator.launchers.slurm.steps import check_room, keep_steps, step_command
from sparring.orchestrator.launchers.slurm.worker_jobs import WorkerJobs
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.machine.finding import Finding
from sparring.orchestrator.machine.owner import owner, owner_state
from sparring.orchestrator.serving.hosting import ClusterHosting
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.settings.assets import assets_of, fetch_assets
from sparring.protos.advice import Advice, Hint
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

log = logging.getLogger(__name__)

_NO_FOLDER: Final = Path("OUTPUT")
"""Stands for the folder of a run that has not begun."""
_NO_PORT: Final = 50052
_EXECUTION: Final = "EXECUTION"
_TOO_LARGE: Final = "node configuration is not available"
_TOO_MANY: Final = "Invalid job array specification"


def _hint(refused: SlurmFailed) -> str:
    """Returns what may help, where Slurm's own words say that a job is too large and not for what."""
    slots = Hint("slots_per_worker")
    if _TOO_MANY in refused.sentence:
        return (
            f" An array has a job for each of {Hint('workers')}, and Slurm takes at most MaxArraySize of `scontrol "
            f"show config`: fewer of them, with more slots each ({slots})."
        )
    if _TOO_LARGE not in refused.sentence:
        return ""
    return f" A job asks for one node, and there a core for each slot unless it is told otherwise: fewer with {slots}."


def _known_elsewhere(done: str, whose: str) -> str:
    """Returns why what a run on another machine has left, if it has, is not removed."""
    host = whose.partition("/")[0]
    return f"it was {done} on {host!r}; whether that run goes on is known there only: clean there."


class SlurmLauncher(Launcher[SlurmSettings]):
    """A job array of workers for each benchmark, which are replaced when they end early; none is left at the end."""

    secures = True
    may_queue = True
    name = "slurm"
    summary = "jobs of a Slurm cluster: an array of workers from a login node, or steps inside an allocation"
    settings = SlurmSettings
    hosting_settings = SlurmHostingSettings

    def slot_count(self, run: RunSettings) -> int | None:
        return slots_of(self.own(run))

    def check(self, run: RunSettings) -> None:
        check_cluster(run)
        for part in run.plan.parts:
            if (contained := self._contained(run, part.label, self._preview_files(run))) is None:
                interpreter(get_benchmark(part.benchmark))
                fetch_assets(run, part)
                continue
            contained.check()
            if assets_of(run, part):
                fetch_assets(run, part)
            elif get_benchmark(part.benchmark).assets is not None:
                raise UsageError(
                    f"workers in a container cannot download the assets of {part.benchmark}: name a folder on storage "
                    f"that all nodes share with {Hint('assets')}."
                )
        if self._by_steps(run):
            commands.check_installed("srun")
            if not inside_allocation():
                raise UsageError("there is no allocation to have steps in: run this inside one (salloc, sbatch).")
            check_room(self.own(run))
            return
        commands.check_installed("sbatch")
        own = self.own(run)
        for label in (part.label for part in run.plan.parts):
            try:
                commands.would_take(self._preview_script(run, label, own.workers))
            except SlurmUnreachable as error:
                log.warning("Slurm does not answer now: %s", error.sentence)
            except SlurmFailed as error:
                said = f"{error.sentence}{_hint(error)}"
                raise UsageError(f"Slurm would not take the jobs of this run: {said}") from error

    def listen(self, run: RunSettings) -> Address | None:
        given = run.worker.listen_address
        if given is not None:
            return given
        return Address("tcp", "0.0.0.0" if self.own(run).advertise else self._found_address(run))

    def advertise(self, run: RunSettings, listen: Address) -> str:
        return self.own(run).advertise or (self._found_address(run) if listen.is_every_interface else listen.host)

    def preview(self, run: RunSettings, slots: Mapping[str, int]) -> Sequence[str]:
        check_cluster(run)
        own, lines = self.own(run), []
        for label, workers in share_workers(own, slots).items():
            if self._by_steps(run):
                worker = self._command(run, label, self._preview_address(run))
                command = step_command(own, label, worker, self._contained(run, label, self._preview_files(run)))
                lines.append(f"{label}: {workers} steps: {' '.join(command)}")
            else:
                lines.append(
                    f"{label}: a job array of {workers} workers with {own.slots_per_worker} slots each, by sbatch:"
                )
                lines += self._preview_script(run, label, workers).splitlines()
        return lines

    def hosting(self, run: RunSettings) -> ClusterHosting | None:
        return SlurmHosting(run)

    def leftovers(self, *, everything: bool = False) -> Iterator[Leftover]:
        for note in secret_notes():
            what = f"the secret of a run, {str(note.token)!r}"
            if everything or note.is_left:
                yield Leftover(what, note.remove)
            elif note.is_elsewhere:
                yield Leftover(what, note.remove, _known_elsewhere("written", note.owner))
        if not commands.is_installed("squeue"):
            return
        try:
            jobs = commands.own_jobs()
        except SlurmFailed as error:
            raise SlurmFailed(f"jobs of killed runs, which may wait or run: {error.sentence}") from error
        for job in jobs:
            if (noted := read_comment(job.comment)) is None:
                continue
            whose, folder = noted
            state = "dead" if everything else owner_state(whose)
            if state != "alive":
                kept = _known_elsewhere("submitted", whose) if state == "unknown" else ""
                what = f"job {job.number} ({job.state}): {job.name}, of the run in {folder!r}"
                yield Leftover(what, partial(commands.cancel, [job.number]), kept)

    def examine(self) -> Iterator[Finding]:
        if not commands.is_installed("sbatch"):
            yield Finding("slurm", "note", "not installed; only --launcher slurm needs it.")
            return
        try:
            yield Finding("slurm", "ok", commands.call("sinfo", "--version").strip())
            partitions = " ".join(dict.fromkeys(commands.call("sinfo", "--noheader", "--format=%P").split()))
            yield Finding("slurm partitions", "ok", f"{partitions} (the default has a star)")
        except SlurmFailed as error:
            yield Finding("slurm", "note", f"only --launcher slurm needs it: {error.sentence}")

    async def run(self, order: WorkerOrder) -> None:
        own, execution = self.own(order.run), secrets.token_hex(3)
        if own.slurm_folder is None and order.folder != order.run.output.folder:
            log.warning(
                "%s",
                Advice(
                    f"what workers need is in {str(order.folder)!r}. If nodes do not see that, name a folder that all "
                    f"of them share with {Hint('slurm_folder')}"
                ),
            )
        files = SharedFiles.of(own.slurm_folder, order.folder, execution, encrypted=bool(order.ca))
        try:
            with files.written(order.join_token, order.ca) as ended:
                if self._by_steps(order.run):
                    pythons = {label: self._python(order.run, label) for label in order.slots}
                    containers = {label: self._contained(order.run, label, files) for label in order.slots}
                    for container in filter(None, containers.values()):
                        container.make_ready()
                    await keep_steps(order, own, files, pythons, containers)
                else:
                    await cancel_earlier(order.folder, ended)
                    await self._run_jobs(order, files, execution)
        except SlurmFailed as error:
            raise LaunchFailed(error.sentence) from error

    async def _run_jobs(self, order: WorkerOrder, files: SharedFiles, execution: str) -> None:
        own = self.own(order.run)
        parts = {}
        for label, workers in share_workers(own, order.slots).items():
            part = PartWorkers(label, workers, own.slots_per_worker, max_restarts=own.max_restarts, rules=order.rules)
            script = parts[part] = self._script(order.run, label, order.public, files, order.folder, execution)
            if script.container is not None:
                script.container.make_ready()
        jobs = WorkerJobs(order, parts)
        async with guarded([script.name for script in parts.values()]) as guard:
            try:
                await jobs.run()
            finally:
                guard.is_needed = jobs.may_be_left

    def _by_steps(self, run: RunSettings) -> bool:
        by = self.own(run).slurm_by
        return by == "srun" or (by == "auto" and inside_allocation())

    def _found_address(self, run: RunSettings) -> str:
        return found_address(self.own(run).slurm, by_steps=self._by_steps(run))

    def _command(self, run: RunSettings, label: str, orchestrator: Address) -> list[str]:
        part, slots = run.plan.part(label), self.own(run).slots_per_worker
        return [self._python(run, label), *WORKER_PROGRAM, *worker_flags(part, orchestrator, slots)]

    def _script(
        self, run: RunSettings, label: str, orchestrator: Address, files: SharedFiles, folder: Path, execution: str
    ) -> BatchScript:
        own = self.own(run)
        check_printable(folder.absolute())
        check_printable(files.token)
        return BatchScript(
            label=label,
            name=job_name(label, folder, execution),
            comment=comment(owner(), folder),
            folder=folder.absolute(),
            log=log_pattern(files.logs, label),
            slots=own.slots_per_worker,
            options=own.slurm,
            token=files.token,
            ca=files.ca,
            command=self._command(run, label, orchestrator),
            container=self._contained(run, label, files),
        )

    def _containers(self, run: RunSettings) -> Mapping[str, WorkerContainer]:
        benchmarks = list(dict.fromkeys(part.benchmark for part in run.plan.parts))
        return containers_of(self.own(run).container, benchmarks)

    def _contained(self, run: RunSettings, label: str, files: SharedFiles) -> ContainedProgram | None:
        """Returns what the workers of a part of a run are started in; None: nothing."""
        part = run.plan.part(label)
        container = self._containers(run).get(part.benchmark)
        if container is None:
            return None
        folder, assets = assets_of(run, part), get_benchmark(part.benchmark).assets
        variables = {assets.variable: str(folder)} if assets is not None and folder is not None else {}
        folders, own = [folder] if folder is not None else [], self.own(run)
        return ContainedProgram(container, files.token.parent, folders, variables, own.slurm, own.slots_per_worker)

    def _python(self, run: RunSettings, label: str) -> str:
        benchmark = run.plan.part(label).benchmark
        contained = benchmark in self._containers(run)
        return self.own(run).container_python if contained else str(interpreter(get_benchmark(benchmark)))

    def _preview_script(self, run: RunSettings, label: str, workers: int) -> str:
        """Returns the script as it would be, but for what is known only when the run has begun."""
        folder, files = run.output.folder or _NO_FOLDER, self._preview_files(run)
        script = self._script(run, label, self._preview_address(run), files, folder, _EXECUTION)
        return script.text(range(workers))

    def _preview_files(self, run: RunSettings) -> SharedFiles:
        return SharedFiles.of(self.own(run).slurm_folder, run.output.folder or _NO_FOLDER, _EXECUTION)

    def _preview_address(self, run: RunSettings) -> Address:
        listen = run.worker.listen_address or Address("tcp", "0.0.0.0", _NO_PORT)
        return listen.with_host(self.own(run).advertise or "HOST").with_tls()
