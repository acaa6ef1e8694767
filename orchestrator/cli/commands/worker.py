"""`sparring worker`: a worker, by the same command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.cli.become import become
from sparring.orchestrator.machine.environments import interpreter
from sparring.protos.net.address import Address


@click.command(short_help="add a worker to a run")
@click.option("--orchestrator", required=True, help="where the run listens, HOST:PORT, or tls://HOST:PORT")
@click.option(
    "--slots", type=click.IntRange(0), default=0, help="episodes at once; 0: as many as the run's own workers have"
)
@click.option("--benchmark", default="", help="work for this benchmark only, by its name or as module:Class")
@click.option("--evaluation", default="", help="work for this part of the run only, by its name in `evaluations`")
@click.option("--name", default="", help="name of the worker in logs and displays; default: host and process")
@click.option(
    "--connect-timeout", type=float, default=30.0, show_default=True, help="seconds to wait for the run to be reached"
)
@click.option(
    "--join-token-file",
    default="",
    help="file with the run's join token, without which nobody joins: the run says where it is; -: standard input",
)
@click.option("--ca", default="", help="PEM file with the CA of the run's certificate; turns TLS on")
@click.option("--tls-cert", default="", help="PEM certificate to show to a run that wants one (--listen-client-ca)")
@click.option("--tls-key", default="", help="PEM private key of --tls-cert")
@click.option(
    "--stay",
    is_flag=True,
    help="wait for the next run when one has ended or none is there yet, until SIGTERM or Ctrl-C",
)
def worker(
    orchestrator: str,
    slots: int,
    benchmark: str,
    evaluation: str,
    name: str,
    connect_timeout: float,
    stay: bool,
    **access: str,
) -> None:
    """Runs episodes for a run that is going on somewhere, until it has ended.

    With --stay it is a persistent worker: it serves one run after the other at that address, for as long as it is left.
    """
    address = Address.parse(orchestrator)
    python = interpreter(get_benchmark(benchmark)) if benchmark else Path(sys.executable)
    become(
        "sparring.env_worker",
        f"--orchestrator={address}",
        f"--slots={slots}",
        f"--benchmark={benchmark}",
        f"--evaluation={evaluation}",
        f"--name={name}",
        f"--connect-timeout={connect_timeout}",
        *(f"--{name.replace('_', '-')}={value}" for name, value in access.items() if value),
        *(["--stay"] if stay else []),
        python=python,
    )
