"""Workers as steps of the allocation that the run itself is in: one srun each."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.base import WorkerOrder
from sparring.orchestrator.launchers.cluster import share_workers
from sparring.orchestrator.launchers.command import CommandWorker
from sparring.orchestrator.launchers.keep_alive import Death, keep_all, keep_worker
from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed
from sparring.orchestrator.launchers.slurm.container import ContainedProgram
from sparring.orchestrator.launchers.slurm.settings import SlurmSettings
from sparring.orchestrator.launchers.slurm.shared_files import SharedFiles
from sparring.orchestrator.machine.logs import tail_of
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0
_TELL_SECONDS: Final = 15.0
"""After which it is told that a step waits."""
_CORES: Final = re.compile(r"(?:^|,)(\d+)(?:\(x(\d+)\))?")
_FIRST_SPECIAL: Final = 2**32 - 16
"""From here on numbers of steps stand for those that take no cores from others: batch scripts, shells of salloc."""
_BEGUN: Final = "step of worker"
_SAYS_SO: Final = 'echo "$0 begins on ${SLURMD_NODENAME:-$(hostname)}"; exec "$@"'
_MEMORY: Final = ("mem", "mem-per-cpu", "mem-per-gpu")
_SLURM_SAYS: Final = re.compile(r"^(?:srun|slurmstepd)[^:]*: (?:error: )?(.*)$", re.MULTILINE)


def check_room(own: SlurmSettings) -> None:
    """Checks that some node of the allocation has the cores that a worker needs.

    Raises:
        UsageError: If none has: no step of the run would ever begin.
    """
    told = os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")  # 2(x3),4: three nodes with two, and one with four
    nodes = [(int(cores), int(times or 1)) for cores, times in _CORES.findall(told)]
    wanted = own.slurm.get("cpus-per-task", str(own.slots_per_worker))
    if not nodes or not wanted.isdecimal() or "overcommit" in own.slurm:
        return
    most, taken = max(cores for cores, _ in nodes), _own_cores()
    if int(wanted) > most:
        raise UsageError(
            f"each worker needs {wanted} cores of one node, and this allocation has at most {most} on a node. Ask for "
            f"more, have fewer with {Hint('slots_per_worker')}, or have workers as jobs of their own with "
            f"{Hint('slurm_by', value='sbatch')}."
        )
    if int(wanted) > sum(cores * times for cores, times in nodes) - taken:
        raise UsageError(
            f"this runs in a step of its allocation, as the shell of `srun --pty` is one, and that has {taken} of its "
            f"cores: there is no room for a worker, which needs {wanted}. Begin with salloc instead, leave out "
            f"{Hint('launcher', value='slurm')} to have workers here, beside the run, or have them as jobs of their "
            f"own with {Hint('slurm_by', value='sbatch')}."
        )


def _own_cores() -> int:
    """Returns how many cores the step has that this program runs in; 0: it is in none, or nobody can tell."""
    job, step = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_STEP_ID", "")
    if not step.isdecimal() or int(step) >= _FIRST_SPECIAL:
        return 0
    try:
        told = commands.call("scontrol", "--oneliner", "show", "step", f"{job}.{step}")
    except SlurmFailed:
        return 0
    found = re.search(r"\bCPUs=(\d+)", told)
    return int(found[1]) if found else 0


def step_command(
    own: SlurmSettings, name: str, worker: Sequence[str], container: ContainedProgram | None = None
) -> list[str]:
    """Returns what starts a worker as a step.

    Args:
        own: The launcher's settings.
        name: Of the worker.
        worker: Its program and arguments.
        container: What it is started in; None: it is on the node.
    """
    contained, worker = ([], worker) if container is None else container.in_step(worker)
    # Else a step has all memory that an allocation has on a node, if it was made with --mem, and the next one waits.
    memory = {} if any(key in own.slurm for key in _MEMORY) else {"mem": "0"}
    options = {"nodes": "1", "ntasks": "1", "cpus-per-task": str(own.slots_per_worker), **memory, **own.slurm}
    flags = [f"--{key}" if value == "true" else f"--{key}={value}" for key, value in options.items()]
    # Exactly what it asks for, so that others have their place beside it; else a step takes all of a node.
    head = ["srun", "--exact", "--unbuffered", f"--job-name=sparring-{name}", *flags, *contained]
    return [*head, "sh", "-c", _SAYS_SO, f"{_BEGUN} {name}", *worker]


async def keep_steps(
    order: WorkerOrder,
    own: SlurmSettings,
    files: SharedFiles,
    pythons: Mapping[str, str],
    containers: Mapping[str, ContainedProgram | None],
) -> None:
    """Has steps for all workers, until cancelled; those for which there is no room wait until there is.

    Args:
        order: Which workers to have.
        own: The launcher's settings.
        files: That they need.
        pythons: The Python of each benchmark.
        containers: What it is in; None: it is on the nodes.

    Raises:
        LaunchFailed: If replacing them is of no use.
    """
    queue = _Queue()
    shares = share_workers(own, order.slots)  # by the slots that each benchmark is to have, as for jobs
    order = replace(
        order,
        slots=dict.fromkeys(order.slots, own.slots_per_worker),
        rules=replace(order.rules, worker_deaths=own.max_restarts + 1),
    )
    kept = [
        _keep(order, own, files, pythons[label], containers[label], label, place, queue)
        for label, workers in shares.items()
        for place in range(min(workers, max(1, math.ceil(order.left(label) / own.slots_per_worker))))
    ]
    await keep_all([*kept, queue.tell()])


async def _keep(
    order: WorkerOrder,
    own: SlurmSettings,
    files: SharedFiles,
    python: str,
    container: ContainedProgram | None,
    label: str,
    place: int,
    queue: _Queue,
) -> None:
    path = order.logs / f"worker-{label}-{place}.log"
    ca = [] if files.ca is None else [f"--ca={files.ca if container is None else container.seen(files.ca)}"]

    async def start(name: str) -> _Step:
        worker = [python, *order.program(label, name, orchestrator=order.public), *ca]
        command = step_command(own, name, worker, container)
        queue.waits(path)
        return _Step(await CommandWorker.start(command, log=path, secret=order.join_token))

    async def given_up(name: str) -> str:
        while f"{_BEGUN} {name} " not in tail_of(path):  # it waits for its turn
            await asyncio.sleep(_LOOK_SECONDS)
        queue.begins(path)
        return await order.given_up(name)

    def on_death(name: str, death: Death) -> None:
        order.explain(name, f"worker {name} {death}")

    await keep_worker(
        f"{label}-{place}",
        start,
        rules=order.rules,
        results_of=order.results_of,
        on_death=on_death,
        given_up=given_up,
    )


class _Queue:
    """The steps that wait for room in the allocation, by their logs, and what is told of them."""

    def __init__(self) -> None:
        self._since: dict[Path, float] = {}
        self._begun: set[Path] = set()

    def waits(self, log: Path) -> None:
        """Hears that a step was asked for."""
        self._begun.discard(log)
        self._since[log] = asyncio.get_running_loop().time()

    def begins(self, log: Path) -> None:
        """Hears that it has begun."""
        self._begun.add(log)
        self._since.pop(log, None)

    async def tell(self) -> None:
        """Logs how many wait, and why, when that changes; never returns."""
        told = 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = asyncio.get_running_loop().time()
            late = [path for path, since in self._since.items() if now - since > _TELL_SECONDS]
            if late and len(late) != told:
                said = [*_said(tail_of(late[0]))]
                why = f"; srun says: {said[-1]}" if said else ""
                others = len(late) + len(self._begun)
                log.log(
                    logging.INFO if self._begun else logging.WARNING,
                    "%d of %d steps wait for room in this allocation%s",
                    *(len(late), others, why),
                )
            told = len(late)


class _Step:
    """A step, as the keeper sees it: its command, and what Slurm says of its end."""

    def __init__(self, command: CommandWorker) -> None:
        self._command = command
        self.log = command.log

    async def wait(self) -> Death:
        death = await self._command.wait()
        said = list(_said(tail_of(self.log)))
        return replace(death, reason=f"{death}: {said[-1]}") if said else death

    async def end(self) -> None:
        await self._command.end()

    def last_words(self) -> str:
        return self._command.last_words()


def _said(told: str) -> Iterator[str]:
    """Returns what Slurm has said of the last step in a log."""
    last = told[max(0, told.rfind(_BEGUN)) :]
    for found in _SLURM_SAYS.finditer(last):
        yield found[1].strip("* ")
