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
@click.group(short_help="list benchmarks, tasks, protocols, policies, launchers and trackers")
def ls() -> None:
    """Lists benchmarks, tasks, protocols, policies, launchers and trackers."""


@ls.command("benchmarks", short_help="benchmarks, and whether they are installed here")
def benchmarks() -> None:
    """Lists the benchmarks, and whether what they need is installed here."""
    from sparring.env_worker.registry import all_benchmarks, broken_benchmarks
    from sparring.orchestrator.machine.environments import state

    rows = [(name, benchmark.summary, state(benchmark).detail) for name, benchmark in all_benchmarks().items()]
    rows += [(name, error.told(FLAGS), "broken") for name, error in broken_benchmarks().items()]
    _print(("benchmark", "what it is", "here"), rows)


@ls.command("tasks", short_help="tasks and groups of a benchmark")
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


@ls.command("launchers", short_help="what --launcher takes, with its settings")
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


@ls.command("trackers", short_help="what --track takes, with its settings")
def trackers() -> None:
    """Lists the trackers that --track takes, whether they can be used here, and their settings."""
    from sparring.orchestrator.trackers.registry import get_tracker, tracker_names

    rows = []
    for name in tracker_names():
        try:
            tracker = get_tracker(name)
        except SparringError as error:
            rows.append((name, error.told(FLAGS), "broken", ""))
            continue
        rows.append((name, tracker.summary, tracker.lacking() or "ready", ", ".join(tracker.settings.model_fields)))
    _print(("tracker", "what it is", "here", "its settings (--track-arg)"), rows)


@ls.command("protocols", short_help="what --protocol takes")
@click.option("--benchmark", help="of this benchmark only")
def protocols(benchmark: str | None) -> None:
    """Lists the protocols that --protocol takes: whose rules a benchmark can be played by."""
    from sparring.env_worker.protocol import protocols_of, whole
    from sparring.env_worker.registry import all_benchmarks, get_benchmark

    owners = list(all_benchmarks().values()) if benchmark is None else [get_benchmark(benchmark)]
    rows = []
    for owner in owners:
        for found in protocols_of(owner).values():
            rows.append((owner.name, found.name, str(found.version), whole(owner, found).sha256[:12], found.summary))
    _print(("benchmark", "protocol", "version", "hash", "whose rules"), rows)


@ls.command("policies", short_help="what --policy takes")
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
    from sparring.orchestrator.display.listing import print_listing

    print_listing(headings, rows)
