"""An evaluation, from settings to a table and an exit code: what `run`, `resume` and `lerobot-eval` have in common."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.text import Text

from sparring.orchestrator.cli.by_protocols import by_protocols_json, show_by_protocols
from sparring.orchestrator.cli.finished import changed_files, finished_already
from sparring.orchestrator.cli.viewing import ViewFlags, viewed
from sparring.orchestrator.display.errors import attempts_in_short
from sparring.orchestrator.display.progress import make_display
from sparring.orchestrator.display.screen import ConsoleHandler, error_console, show
from sparring.orchestrator.display.table import print_table
from sparring.orchestrator.display.title import title
from sparring.orchestrator.execution.broken_code import broken_code_kept
from sparring.orchestrator.execution.execution import run as run_plan
from sparring.orchestrator.execution.invocation import Invocation
from sparring.orchestrator.execution.prepare import prepare
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.reading import FILE_NAME
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.errors import Interrupted, RunStopped
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import (
    RunSettings,
)
from sparring.orchestrator.trackers.tracking import tracking
from sparring.protos.advice import FLAGS, Dialect, Hint, RenderedFormatter
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.plain_text import plain
from sparring.protos.tracebacks import located, references

log = logging.getLogger(__name__)

EXIT_ERRORS: Final = 3
EXIT_INTERRUPTED: Final = 130
_ERRORS: Final = 3
"""That are told when a run has ended before its plan."""
_LINES: Final = 40
"""Of a traceback that are shown; the file has all of them."""
_SECRET: Final = re.compile(
    r"(?is)^((?:--[\w.-]+=)?[\w.-]*(?:token|secret|password|passwd|api_?key|credential)(?![\w-]*-file)[\w.-]*)=.*$"
)
"""An argument of a policy or a benchmark; settings of ours name files."""


def evaluate_settings(
    settings: RunSettings,
    as_json: bool,
    dialect: Dialect = FLAGS,
    *,
    accept_changes: bool = False,
    view: ViewFlags | None = None,
) -> int:
    """Runs what settings ask for, tells what came of it in the user's words, and returns the exit code.

    Args:
        settings: Of the run.
        as_json: Whether results are told for a program.
        dialect: The user's words.
        accept_changes: Whether a run goes on though the policy or a benchmark is another one now.
        view: What was said of the live page.
    """
    if (finished := finished_already(settings)) is not None:
        if view is not None and view.wanted:
            log.info(
                "this run is finished; look at it with: sparring view %s", shlex.quote(str(settings.output.folder))
            )
        return tell_finished(finished, as_json)
    folder = settings.output.folder or _new_folder(settings)
    with broken_code_told(folder, dialect):
        plan = make_plan(settings)
        prepare(settings, plan)
    _note_wrapping(plan)
    settings = settings.writing_to(folder)
    invocation = Invocation(command_line(sys.argv), accept_changes)
    errors = error_console()
    log_through(errors, dialect)
    page = viewed(view or ViewFlags(), folder, insecure=settings.worker.insecure)
    with page as viewers, tracking(settings) as trackers:  # who may still be busy when the table is on the screen
        return _run(settings, plan, folder, [*trackers, *viewers], errors, as_json, dialect, invocation)


def _run(
    settings: RunSettings,
    plan: Plan,
    folder: Path,
    listeners: Iterable[RunListener],
    errors: Console,
    as_json: bool,
    dialect: Dialect,
    invocation: Invocation,
) -> int:
    policy = settings.policy.name or f"policy at {settings.policy.policy_server}"
    display = make_display(errors, title(policy, plan), plain=settings.plan.in_process)
    watching = [display, *listeners]
    try:
        if settings.plan.in_process:
            from sparring.orchestrator.execution.in_process import (
                run_in_process,  # imports what is a worker's otherwise
            )

            results = run_in_process(settings, plan, folder, watching, dialect=dialect, invocation=invocation)
        else:
            running = run_plan(settings, plan, folder, watching, dialect=dialect, invocation=invocation)
            results = asyncio.run(running)
    except SparringError as error:
        display.close()
        told = _located(error, folder, dialect)
        if not settings.plan.in_process:  # where it was logged as it came
            _show_traceback(error, folder, errors)
        if not isinstance(error, (Interrupted, RunStopped)):
            raise told from error
        _tell_partial(told, folder, errors)
        return EXIT_INTERRUPTED if isinstance(error, Interrupted) else 1
    finally:
        display.close()  # it is off the screen already, unless something went wrong with it
    return tell_results(results, as_json)


@contextmanager
def broken_code_told(folder: Path | None, dialect: Dialect = FLAGS) -> Iterator[None]:
    """Shows the traceback of users' code that raises inside, before a run has begun, and says where it is kept.

    Args:
        folder: The output folder of the run; None: it has none yet.
        dialect: The user's words.
    """
    try:
        with broken_code_kept(folder):
            yield
    except UsageError as error:
        if folder is None or not references(error.sentence):
            raise
        _show_traceback(error, folder, error_console())
        raise _located(error, folder, dialect) from error


def tell_finished(results: Results, as_json: bool) -> int:
    """Prints the results of a run that has nothing left to play, as `tell_results`, and says so."""
    log.info("this run is finished: nothing was played")
    if changed := changed_files(results):
        log.warning(
            "%s changed since these episodes were played. To evaluate what is there now, name a new folder with %s.",
            f"{changed[0]} has" if len(changed) == 1 else f"{', '.join(changed)} have",
            Hint("output"),
        )
    return tell_results(results, as_json)


def tell_results(results: Results, as_json: bool) -> int:
    """Prints the results on standard output, and returns the exit code."""
    if as_json:
        sys.stdout.write(json.dumps(finite(results.to_json() | by_protocols_json(results)), allow_nan=False) + "\n")
    else:
        print_table(results, Console())
        show_by_protocols(results)
    return EXIT_ERRORS if results.overall.errors else 0


def command_line(arguments: Sequence[str]) -> str:
    """Returns the command as it was typed, for the record: values of what is called a secret are left out."""
    shown = ["sparring", *(_SECRET.sub(r"\1=...", argument) for argument in arguments[1:])]
    return shlex.join(shown)


def _note_wrapping(plan: Plan) -> None:
    for label, (_, task) in plan.labels().items():
        if 0 < task.initial_states < plan.episodes:
            log.info(
                "%s has %d initial states: later episodes begin in the same ones again", label, task.initial_states
            )


def _located(error: SparringError, folder: Path, dialect: Dialect) -> SparringError:
    """Returns the error as the user is told it: the files it refers to can be opened from here."""
    return (UsageError if isinstance(error, UsageError) else SparringError)(located(error.told(dialect), folder))


def _show_traceback(error: SparringError, folder: Path, console: Console) -> None:
    """Shows the traceback of a user's code that has ended a run; the sentence comes after it, as in Python."""
    for name in references(error.sentence)[:1]:
        with suppress(OSError):
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            lines = text.partition("\n\n")[2].splitlines()
            left_out = len(lines) - _LINES
            shown = lines if left_out <= 0 else [*lines[:3], f"  ... {left_out} lines ...", *lines[3 - _LINES :]]
            console.print(plain("\n".join(shown)), highlight=False, markup=False, soft_wrap=True)


def _tell_partial(error: SparringError, folder: Path, console: Console) -> None:
    """Shows what there is of a run that has ended before its plan: a table, the errors, and how to go on."""
    said = plain(error.told(FLAGS))
    try:
        results = Results.load(folder)
    except UsageError:  # it did not come to a journal, or that is damaged
        results = None
    if results is not None:
        begun = {(row.benchmark, row.task) for row in results.rows}
        tasks = {name: [t for t in tasks if (name, t.name) in begun] for name, tasks in results.plan.tasks.items()}
        if results.overall.n:  # else there is nothing to see but errors
            shown = replace(results.plan, tasks={name: left for name, left in tasks.items() if left})
            print_table(replace(results, plan=shown), console, missing=results.missing)
        others = [line for line in attempts_in_short(results, _ERRORS) if line.partition(" (")[0] not in said]
        if others and not (results.overall.n and results.overall.errors):  # else they stand under the table
            show(Group("errors so far:", *(Text(f"  {line}") for line in others)), console)
    console.print(f"[bold red]stopped:[/] {_escaped(said)}", highlight=False, soft_wrap=True)
    if results is not None:
        recorded = f"Recorded: {len(results.rows)} of {len(results.plan.ids())} episodes."
        advice = f"{recorded} Go on with: sparring resume {shlex.quote(str(folder))}"
    elif (folder / FILE_NAME).exists():
        advice = f"What is recorded cannot be read now. See: sparring show {shlex.quote(str(folder))}"
    else:  # there is no folder that could be resumed
        advice = "Nothing was recorded. The same command begins anew."
    console.print(advice, highlight=False, soft_wrap=True)


def _new_folder(settings: RunSettings) -> Path:
    policy = re.sub(r"[^A-Za-z0-9.-]+", "-", settings.policy.name or "remote")
    return (
        Path("outputs")
        / f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{'+'.join(part.label for part in settings.plan.parts)}_{policy}"
    )


def log_through(console: Console, dialect: Dialect) -> None:
    """Sends log lines through the console, so that they do not tear the live display; where there is none, plainly."""
    handler = ConsoleHandler(console) if console.is_terminal else logging.StreamHandler(console.file)
    handler.setFormatter(RenderedFormatter(dialect, "%(asctime)s %(message)s"))
    logging.getLogger().handlers = [handler]


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
