"""`sparring check`: holds what others have made against the rules that Sparring relies on."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from sparring.env_worker.compliance import verdicts_of
from sparring.env_worker.compliance.subject import EPISODES, STEPS
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.cli.options import given, setting_options
from sparring.orchestrator.cli.server_access import server_access_options
from sparring.orchestrator.compliance.launcher import settings_of_check
from sparring.orchestrator.compliance.launcher import verdicts_of as launcher_verdicts
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.settings import launcher_fields, parse_pairs
from sparring.protos.advice import FLAGS, render
from sparring.protos.errors import UsageError
from sparring.protos.plain_text import plain
from sparring.protos.rules import Verdict


@click.group(short_help="hold a benchmark, a launcher or a server of yours against the rules")
def check() -> None:
    """Holds what you have made against the rules that Sparring relies on: a line per rule, exit code 1 if one fails."""


@check.command("benchmark", short_help="play episodes: are they repeatable, and as promised?")
@click.argument("name")
@click.option("--task", default="", help="which tasks to try; default: that of its smoke test, else the first")
@click.option(
    "--episodes", type=click.IntRange(1), default=EPISODES, show_default=True, help="how many of each task are compared"
)
@click.option("--steps", type=click.IntRange(1), default=STEPS, show_default=True, help="the most steps of each")
@click.option("--benchmark-arg", multiple=True, metavar="KEY=VALUE", help="a setting of the benchmark; may be repeated")
def benchmark(name: str, task: str, episodes: int, steps: int, benchmark_arg: tuple[str, ...]) -> int:
    """Checks the benchmark NAME: determinism, looking, resetting, spaces, ends, names of tasks, settings."""
    found = get_benchmark(name)
    python = interpreter(found)
    if python != Path(sys.executable):  # its own environment has the simulator, and this command, too
        return subprocess.run([str(python), "-m", "sparring", *sys.argv[1:]], check=False).returncode
    settings = parse_pairs(benchmark_arg, "--benchmark-arg")
    return report(verdicts_of(found, task=task, episodes=episodes, steps=steps, settings=settings))


@check.command("launcher", short_help="start, replace and end workers")
@click.argument("name")
@setting_options(["benchmark", "task", "benchmark_arg", "assets", "listen", *launcher_fields()])
def launcher(name: str, **values: Any) -> int:
    """Checks the launcher NAME: starting workers, replacing one that is killed, ending them, giving up.

    A tiny run of the benchmark is played with it.
    """
    settings = given(values)
    if "benchmark" not in settings:
        raise UsageError("name a benchmark whose workers it can start: --benchmark.")
    return report(launcher_verdicts(settings_of_check(name, settings)))


@check.command("policy-server", short_help="try every rule of the protocol")
@click.argument("address")
@server_access_options
@click.option("--benchmark", "of", default="", help="the benchmark of --task")
@click.option("--task", default="", help="a task that its policy knows, if it cares")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="that a stream may take, with up to 200 observations in a row; more for a slow policy [default: 20]",
)
def policy_server(address: str, of: str, task: str, **more: Any) -> int:
    """Checks the policy server at ADDRESS: every rule of the protocol, whatever it is written in."""
    command = [
        sys.executable,
        "-m",
        "sparring.policy_server.compliance",
        address,
        f"--benchmark={of}",
        f"--task={task}",
    ]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in more.items() if value is not None]
    # The policy server's room has a program for that: what is in there is not for this one to import.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as checking:
        assert checking.stdout is not None
        first = checking.stdout.readline()
        if not first:  # it has said why
            return checking.wait()
        code = report(Verdict(**json.loads(line)) for line in itertools.chain([first], checking.stdout))
    return code or checking.returncode


def report(verdicts: Iterable[Verdict]) -> int:
    """Prints a line per rule as it is judged, and a last one; returns the exit code."""
    kinds: list[str] = []
    for verdict in verdicts:
        colour = {"ok": "green", "FAILED": "red"}.get(verdict.kind, "yellow")
        kind, _, rest = render(str(verdict), FLAGS).partition(" ")
        click.echo(f"{click.style(kind, fg=colour)} {plain(rest)}")
        kinds.append(verdict.kind)
    failed, skipped = kinds.count("FAILED"), kinds.count("skipped")
    click.echo(f"{count(len(kinds), 'rule')}: {kinds.count('ok')} ok, {skipped} skipped, {failed} failed.")
    return 1 if failed else 0
