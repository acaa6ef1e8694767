"""`sparring ls`: what there is to name in a command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import click

from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError


# Nothing heavy is imported before it is known what is to be listed: `sparring ls` alone lists what can be.
@click.group(short_help="list benchmarks, tasks, policies and launchers")
def ls() -> None:
    """Lists benchmarks, tasks, policies and launchers."""


@ls.command("benchmarks")
def benchmarks() -> None:
    """Lists the benchmarks, and whether what they need is installed here."""
    from sparring.env_worker.registry import all_benchmarks, broken_benchmarks
    from sparring.orchestrator.machine.environments import state

    rows = [(name, benchmark.summary, state(benchmark).detail) for name, benchmark in all_benchmarks().items()]
    rows += [(name, error.told(FLAGS), "broken") for name, error in broken_benchmarks().items()]
    _print(("benchmark", "what it is", "here"), rows)


@ls.command("tasks")
@click.option("--benchmark", required=True, help="whose tasks")
def tasks(benchmark: str) -> None:
    """Lists the tasks of a benchmark with the sentence that policies get, and its groups."""
    from sparring.env_worker.registry import get_benchmark

    found = get_benchmark(benchmark)
    groups = found.groups()
    if not groups:
        click.echo(f"{benchmark} has no list of tasks: {found.summary}.")
        return
    everything = {task.name: task for group in groups for task in found.tasks(group)}
    of = {name: [group for group, names in groups.items() if name in names] for name in everything}
    _print(
        ("task", "groups", "sentence"), [(n, ", ".join(of[n]), everything[n].instruction) for n in sorted(everything)]
    )
    click.echo()
    _print(("group", "tasks"), [(group, str(len(names))) for group, names in groups.items()])


@ls.command("launchers")
def launchers() -> None:
    """Lists the launchers that --launcher takes, and their own settings."""
    from sparring.orchestrator.launchers.registry import all_launchers, get_launcher
    from sparring.orchestrator.settings.run import own_fields

    rows = []
    for name in all_launchers():
        try:
            launcher = get_launcher(name)
            rows.append((name, launcher.summary, ", ".join(own_fields(launcher))))
        except SparringError as error:
            rows.append((name, error.told(FLAGS), ""))
    _print(("launcher", "what it is", "its settings"), rows)


@ls.command("policies")
def policies() -> None:
    """Lists the policies that --policy takes."""
    from sparring.env_worker.registry import all_benchmarks

    # Asked of the policy server's own program: what is in that room is not for this one to import.
    experts = {name: benchmark.expert for name, benchmark in all_benchmarks().items() if benchmark.expert}
    asked = subprocess.run(
        [sys.executable, "-P", "-m", "sparring.policy_server", "--list", f"--experts={json.dumps(experts)}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if asked.returncode != 0:
        raise SparringError(f"the policy server cannot be asked: {asked.stderr.strip()}")
    _print(("policy", "what it is"), list(json.loads(asked.stdout).items()))


def _print(headings: tuple[str, ...], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from sparring.orchestrator.display.screen import show

    table = Table(*headings, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    show(table)
