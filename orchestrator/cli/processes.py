"""`sparring serve` and `sparring worker`: the other two rooms, by the same command.

Each replaces this process with the room's own program: a worker's slots are forked from it and must
not inherit what the command line has imported, and the policy server is no business of this room.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from sparring.env_worker.registry import experts_of, get_benchmark
from sparring.env_worker.worker.addresses import orchestrator_address
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.settings import parse_pairs
from sparring.policy_server.client import Option, ServerOptions, server_options
from sparring.protos.errors import UsageError


def _for_people() -> list[Option]:
    return [option for option in server_options() if not option.by_program]


def _flag(option: Option) -> str:
    """Returns the server's own flag, or for KEY=VALUE the same in the singular."""
    return option.flag.removesuffix("s") if option.pairs else option.flag


def _value(option: Option, text: Any) -> Any:
    if option.pairs:
        return parse_pairs(text, _flag(option))
    if option.repeated:
        return tuple(text)
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{option.flag} {text}: {error}.") from error


def _server_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Returns a flag for each option of a policy server; one that is not given stays out: defaults are the server's."""
    for option in reversed(_for_people()):
        shown = f" [default: {', '.join(option.default) if option.repeated else option.default}]"
        help_text = option.pairs or option.help + ("" if option.default in ("", None) else shown)
        function = click.option(
            _flag(option),
            option.name,
            multiple=option.repeated or bool(option.pairs),
            metavar="KEY=VALUE" if option.pairs else None,
            required=option.name == "policy",
            help=help_text,
        )(function)
    return function


@click.command(short_help="host a policy for others")
@_server_flags
@click.option(
    "--rename",
    multiple=True,
    metavar="CAMERA=NAME",
    help="an observation of the policy and the benchmark's name for it; may be repeated",
)
@click.option("--benchmark", default="", help="whose expert, for --policy expert; several with commas")
def serve(rename: tuple[str, ...], benchmark: str, **given: Any) -> None:
    """Hosts a policy until Ctrl-C or SIGTERM; use it with sparring run --policy-server."""
    options = {option.name: _value(option, given[option.name]) for option in _for_people() if given[option.name]}
    arguments = options.get("policy_args", {})
    if rename and "rename" in arguments:
        raise UsageError("--rename and --policy-arg rename=... are the same; give one of them.")
    if rename:
        options["policy_args"] = {**arguments, "rename": parse_pairs(rename, "--rename")}
    if options["policy"] == "expert":
        options["experts"] = experts_of([name.strip() for name in benchmark.split(",") if name.strip()])
    _become("sparring.policy_server", *ServerOptions(**options).arguments())


@click.command(short_help="add a worker to a run")
@click.option("--orchestrator", required=True, help="where the run listens, HOST:PORT")
@click.option(
    "--slots", type=click.IntRange(0), default=0, help="episodes at once; 0: as many as the run's own workers have"
)
@click.option("--benchmark", default="", help="work for this benchmark only")
@click.option("--name", default="", help="name of the worker in logs and displays; default: host and process")
@click.option(
    "--connect-timeout", type=float, default=30.0, show_default=True, help="seconds to wait for the run to be reached"
)
@click.option(
    "--stay",
    is_flag=True,
    help="wait for the next run when one has ended or none is there yet, until SIGTERM or Ctrl-C",
)
def worker(orchestrator: str, slots: int, benchmark: str, name: str, connect_timeout: float, stay: bool) -> None:
    """Runs episodes for a run that is going on somewhere, until it has ended.

    With --stay it is a persistent worker: it serves one run after the other at that address, for as long as it is left.
    """
    address = orchestrator_address(orchestrator)
    python = interpreter(get_benchmark(benchmark)) if benchmark else Path(sys.executable)
    _become(
        "sparring.env_worker",
        f"--orchestrator={address}",
        f"--slots={slots}",
        f"--benchmark={benchmark}",
        f"--name={name}",
        f"--connect-timeout={connect_timeout}",
        *(["--stay"] if stay else []),
        python=python,
    )


def _become(module: str, *arguments: str, python: Path | None = None) -> None:
    program = str(python or sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, "-m", module, *arguments])


COMMANDS: Final = (serve, worker)
