"""`sparring run --dry-run`: what a run would do. Starts nothing, fetches nothing and writes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from sparring.env_worker.registry import get_benchmark
from sparring.env_worker.worker.memory import format_memory
from sparring.orchestrator.coordination.admission import Admission, check_admission
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.execution.run_files import check_output
from sparring.orchestrator.launchers.base import share_slots
from sparring.orchestrator.launchers.registry import hosting_of
from sparring.orchestrator.machine.capacity import SLOT_BYTES, capacity
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.machine.memory import parse_memory
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.journal import check_identity
from sparring.orchestrator.results.reading import FILE_NAME, read_journal
from sparring.orchestrator.run.early_stopping import early_stopping
from sparring.orchestrator.run.make_plan import identity, make_plan
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.trackers.tracking import make_trackers
from sparring.protos.advice import FLAGS, Hint, render


def preview(settings: RunSettings, *, accept_changes: bool = False) -> list[str]:
    """Returns lines on what a run of these settings would play, how many slots it would have, and what it would start.

    Args:
        settings: Of the run.
        accept_changes: Whether it would go on though a benchmark has other settings now.

    Raises:
        SparringError: If it would be refused before anything starts.
    """
    plan = make_plan(settings)
    folder = settings.output.folder
    if folder is not None:
        check_output(folder)
    if not settings.plan.in_process:
        check_admission(settings)
    early_stopping(settings, plan)
    make_trackers(settings)
    done = _recorded(settings, plan, accept_changes)
    waiting = Counter(episode.benchmark for episode in plan.ids() if episode not in done)
    left = waiting.total()
    slots = 1 if settings.plan.in_process else settings.slot_count(left)
    lines = [*_plan(settings, plan), *_folder(folder, len(done), left)]
    if not left:
        return [*lines, "nothing would be started: every episode has an outcome"]
    return [
        *lines,
        *_slots(settings, left, slots),
        *_policy(settings),
        *_workers(settings, waiting, slots),
        "nothing was started, nothing was written",
    ]


def _plan(settings: RunSettings, plan: Plan) -> Iterator[str]:
    tasks, each, all_of_them = len(plan.labels()), count(plan.episodes, "episode"), count(len(plan.ids()), "episode")
    if plan.repeats > 1:
        each, all_of_them = f"{each} × {count(plan.repeats, 'policy seed')}", count(len(plan.ids()), "play")
    yield f"plan: {count(tasks, 'task')} × {each} = {all_of_them}"
    if settings.stop.is_asked:
        yield "  at most: it may stop early, after a whole round (one episode of every task)"
    if not plan.seeds:
        yield f"  seeds of each task's episodes: {_seeds(plan.seed, plan.episodes)}"
    for part in settings.plan.parts:
        if part.protocol is not None:
            whole = part.protocol.whole()
            yield f"  {part.label} by the protocol {whole.label} ({whole.sha256[:12]})"
        if part.label in plan.seeds:
            yield f"  seeds of {part.label}: {_seeds(plan.seeds[part.label], plan.episodes)}"
        given = "".join(f" {key}={value}" for key, value in part.benchmark_arg.items())
        yield f"  {part.label}{given}: {', '.join(task.name for task in plan.tasks[part.label])}"
    asked = {part.label: settings.plan.rules_of(part).max_steps for part in settings.plan.parts}
    most = [_most_steps(asked[label], task.max_steps) for label, tasks in plan.tasks.items() for task in tasks]
    if all(most):
        yield f"  at most {sum(most) * plan.plays} steps"


def _seeds(first: int, episodes: int) -> str:
    return f"{first} to {first + episodes - 1}" if episodes > 1 else str(first)


def _most_steps(asked: int, own: int) -> int:
    """Returns how many steps an episode has at most; 0: only the simulator knows."""
    return min(asked, own) if asked and own else asked or own


def _recorded(settings: RunSettings, plan: Plan, accept_changes: bool) -> Set[EpisodeId]:
    """Returns the episodes of the plan that its folder has, and that need not be played again.

    Raises:
        UsageError: If the folder is another plan's.
    """
    folder = settings.output.folder
    if folder is None or not (folder / FILE_NAME).exists():
        return set()
    journal = read_journal(folder)
    check_identity(folder, journal.meta.get("identity"), identity(settings, plan), accept_changes=accept_changes)
    return {row.id for row in journal.rows if row.outcome != "error"} & set(plan.ids())


def _folder(folder: Path | None, done: int, left: int) -> Iterator[str]:
    if folder is None:
        yield "output: a new folder in outputs/"
    elif done:
        yield f"output: {folder}, which has {count(done, 'episode')}; {left} are left"
    else:
        yield f"output: {folder}"


def _slots(settings: RunSettings, left: int, slots: int) -> Iterator[str]:
    if not settings.plan.in_process and settings.launcher.slot_count(settings) is not None:
        yield f"slots: {slots}: as the launcher {settings.worker.launcher} is told"
        return
    here = capacity()
    why = f"as {render(str(Hint('slots')), FLAGS)} says"
    if settings.plan.in_process:
        why = "everything is played in this process, one episode after the other"
    elif settings.plan.slots == "auto":
        why = settings.slot_reason(left)
    yield f"slots: {slots}: {why}"
    free = "" if here.memory is None else f"; {format_memory(here.memory)} may be used here"
    limit = parse_memory(settings.plan.slot_memory)
    replaced = f", and replaced between episodes above {format_memory(limit)}" if limit else ""
    each = f"{format_memory(SLOT_BYTES)} each{replaced}"
    yield f"memory: {format_memory(slots * SLOT_BYTES)} for simulators ({each}){free}"


def _policy(settings: RunSettings) -> Iterator[str]:
    policy = settings.policy
    if policy.name is None:
        yield f"policy: at {', '.join(map(str, policy.servers))}, which was not asked"
        return
    given = "".join(f" {key}={value}" for key, value in policy.arguments.items())
    where = (
        "made in this process"
        if settings.plan.in_process
        else f"served by a process of {sys.executable} at a unix socket and a TCP port"
    )
    hosting = hosting_of(settings)
    if hosting is None:
        yield f"policy: {policy.name}{given}, {where}"
        return
    yield f"policy: {policy.name}{given}, hosted on {policy.serve_on}"
    yield from (f"  {line}" for line in hosting.preview())


def _workers(settings: RunSettings, waiting: Mapping[str, int], slots: int) -> Iterator[str]:
    if settings.plan.in_process:
        for name in waiting:
            python = interpreter(get_benchmark(settings.plan.part(name).benchmark))
            yield f"workers: none; {name} is played by {python}"
        return
    lines = settings.launcher.preview(settings, share_slots(slots, waiting))
    yield f"workers: by the launcher {settings.worker.launcher}"
    yield from (f"  {line}" for line in lines)
    if settings.launcher.starts_workers and (listen := settings.worker.listen_address) is not None:
        yield f"  others may dial in at {Admission.of(settings, listen).reached_at(listen)}"
