"""`sparring submit`: a run as a job of Slurm's, which is started again until it is done."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sparring.orchestrator.settings import parse_pairs
from sparring.protos.errors import UsageError

if TYPE_CHECKING:
    from sparring.orchestrator.settings import RunSettings

_MOST: Final = 100
_NO_SETTINGS: Final = ("config", "as_json", "debug", "pdb", "index", "dry_run", "accept_changes")
"""Flags of a run that are none of its settings."""
_OURS: Final = {"output": "output", "error": "output"}
"""Options of sbatch that are not the user's to give, and the setting that says the same."""


@click.command(
    short_help="a run as a Slurm job that resumes itself",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--slurm",
    multiple=True,
    metavar="KEY=VALUE",
    help="an option of sbatch for this job, such as time=4:00:00 or partition=cpu; true for one without a value; may "
    "be repeated",
)
@click.option(
    "--max-requeues",
    type=click.IntRange(min=0),
    default=_MOST,
    help=f"how often the job may be started again [default: {_MOST}]",
)
@click.option("--dry-run", is_flag=True, help="print the batch script, and submit nothing")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="run FLAGS...")
def submit(slurm: tuple[str, ...], max_requeues: int, dry_run: bool, arguments: tuple[str, ...]) -> int:
    """Submits a run as a job of Slurm's. What comes after `run` is what sparring run takes, with an --output.

    \b
        sparring submit --slurm time=4:00:00 run --benchmark metaworld --task mt50 --policy expert --slots 16 \\
            --output results

    When its time limit comes, the run stops, keeps what it has, and the job is started again, until the plan is done.
    The job has a core for each of --slots, unless --slurm says how many (cpus-per-task=…).
    With --launcher slurm its workers are jobs of their own; with --slurm nodes=… they are steps of this one.
    """  # noqa: D301 - click wants the very character
    # Not at the top: --help needs none of it.
    from sparring.orchestrator.launchers.slurm import commands
    from sparring.orchestrator.launchers.slurm.script import check_printable
    from sparring.orchestrator.launchers.slurm.submission import Submission

    if arguments[:1] != ("run",):
        raise UsageError("say what to run: sparring submit [--slurm KEY=VALUE] run FLAGS..., as for sparring run.")
    folder = _output(arguments[1:])
    check_printable(folder)
    options, run = _options(slurm), _checked(arguments[1:])
    is_open = _leaves_cores_open(run, options)
    if is_open and isinstance(run.plan.slots, int):
        options["cpus-per-task"] = str(run.plan.slots)
    if _starts_jobs(run, options):
        arguments = (*arguments, "--slurm-by=sbatch")
    script = Submission(
        name=re.sub(r"[^A-Za-z0-9_.-]+", "-", f"sparring-run-{folder.name}"),
        folder=folder,
        log=folder.with_name(f"{folder.name}-%j.log"),
        options=options,
        command=[sys.executable, "-m", "sparring", *arguments],
        most=max_requeues,
    )
    if dry_run:
        click.echo(script.text(), nl=False)
        return 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    number = commands.submit(script.text())
    click.echo(f"submitted job {number}; its log: {str(script.log).replace('%j', number)}")
    click.echo(f"see how far it is: sparring show {folder}")
    if is_open and run.plan.slots == "auto":
        click.echo("it has as many cores as is usual there, often one; for more: --slurm cpus-per-task=N, or --slots N")
    return 0


def _output(arguments: tuple[str, ...]) -> Path:
    """Returns where the run's results go. Without a name of its own, each start of the job would begin anew.

    Raises:
        UsageError: If that is not said, or the name cannot be that of a job's log.
    """
    given = ""
    for flag, value in pairwise([*arguments, ""]):
        if flag == "--output":
            given = value
        elif flag.startswith("--output="):
            given = flag.removeprefix("--output=")
    if not given:
        raise UsageError("say where the results go, with --output: a job that is started again finds its run by that.")
    if "%" in given:
        raise UsageError(f"--output {given}: Slurm takes a % in the name of a log for something else.")
    return Path(given).absolute()


def _starts_jobs(run: RunSettings, options: Mapping[str, str]) -> bool:
    """Returns whether a run's workers are to be jobs, where its flags leave it open: its own has no room for steps."""
    from sparring.orchestrator.launchers.slurm.settings import SlurmSettings
    from sparring.orchestrator.launchers.slurm.submission import ROOM

    own = run.worker.own
    is_open = isinstance(own, SlurmSettings) and own.slurm_by == "auto"
    return is_open and not options.keys() & ROOM


def _leaves_cores_open(run: RunSettings, options: Mapping[str, str]) -> bool:
    """Returns whether a run plays in its own job, and nobody has said how many cores that has."""
    from sparring.orchestrator.launchers.slurm.submission import CORES

    plays_here = run.launcher.starts_workers and run.launcher.slot_count(run) is None and not run.plan.in_process
    return plays_here and not options.keys() & CORES


def _checked(arguments: tuple[str, ...]) -> RunSettings:
    """Reads the run's flags now, and not when the job starts, which may be tomorrow.

    Raises:
        UsageError: If there is something wrong with them.
    """
    from sparring.orchestrator.cli.commands.run import run
    from sparring.orchestrator.cli.options import given
    from sparring.orchestrator.cli.viewing import check_view, view_flags
    from sparring.orchestrator.settings import read_settings

    with run.make_context("sparring run", list(arguments), resilient_parsing=False) as context:
        values = {name: value for name, value in context.params.items() if name not in _NO_SETTINGS}
        settings = read_settings(given(values), context.params["config"])
        page = view_flags(*(context.params[name] for name in ("view", "view_listen", "view_token_file")))
        check_view(page, insecure=settings.worker.insecure)
        return settings


def _options(given: tuple[str, ...]) -> dict[str, str]:
    from sparring.orchestrator.launchers.slurm.batch_options import read_batch_options

    try:
        options: dict[str, str] = read_batch_options(parse_pairs(given, "--slurm", text=True), _OURS)
    except ValueError as error:
        raise UsageError(f"--slurm: {error}.") from error
    return options
