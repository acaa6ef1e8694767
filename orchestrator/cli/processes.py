"""`sparring serve` and `sparring worker`: the other two rooms, by the same command.

Each replaces this process with the room's own program: a worker's slots are forked from it and must
not inherit what the command line has imported, and the policy server is no business of this room.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sparring.env_worker.registry import experts_of, get_benchmark
from sparring.env_worker.worker.addresses import orchestrator_address
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.settings import parse_pairs
from sparring.protos.errors import UsageError


@click.command(short_help="host a policy for others")
@click.option(
    "--policy", required=True, help="a shipped policy, an installed one, or module:Class; see: sparring ls policies"
)
@click.option("--policy-arg", multiple=True, metavar="KEY=VALUE", help="an argument of the policy; may be repeated")
@click.option(
    "--rename",
    multiple=True,
    metavar="CAMERA=NAME",
    help="an observation of the policy and the benchmark's name for it; may be repeated",
)
@click.option("--benchmark", default="", help="whose expert, for --policy expert; several with commas")
@click.option(
    "--listen",
    multiple=True,
    default=["127.0.0.1:50051"],
    show_default=True,
    help="HOST:PORT or unix:///path; may be repeated",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="file with a secret that every caller must bring; health checks need none",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    help="PEM certificate (chain): encrypts --listen HOST:PORT; unix sockets stay plain",
)
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM private key of --tls-cert, without a passphrase")
@click.option(
    "--max-batch",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="the most observations in one forward pass",
)
@click.option(
    "--max-queue-delay",
    default="0",
    show_default=True,
    help="seconds that an observation may wait for others to fill its batch; auto: as long as it pays",
)
@click.option("--metrics", help="serve Prometheus metrics at HOST:PORT, or at :PORT on every address")
@click.option(
    "--max-sessions", type=click.IntRange(1), default=256, show_default=True, help="the most sessions at once"
)
@click.option(
    "--grace", type=float, default=10.0, show_default=True, help="seconds that running episodes have to end on SIGTERM"
)
def serve(
    policy: str,
    policy_arg: tuple[str, ...],
    rename: tuple[str, ...],
    benchmark: str,
    listen: Sequence[str],
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    max_batch: int,
    max_queue_delay: str,
    metrics: str | None,
    max_sessions: int,
    grace: float,
) -> None:
    """Hosts a policy until Ctrl-C or SIGTERM; use it with sparring run --policy-server."""
    arguments = parse_pairs(policy_arg, "--policy-arg")
    if rename and "rename" in arguments:
        raise UsageError("--rename and --policy-arg rename=... are the same; give one of them.")
    if rename:
        arguments["rename"] = parse_pairs(rename, "--rename")
    named = [name.strip() for name in benchmark.split(",") if name.strip()]
    files = {"token-file": token_file, "tls-cert": tls_cert, "tls-key": tls_key}
    _become(
        "sparring.policy_server",
        f"--policy={policy}",
        f"--policy-args={json.dumps(arguments)}",
        f"--experts={json.dumps(experts_of(named) if policy == 'expert' else {})}",
        *(f"--listen={address}" for address in listen),
        *(f"--{flag}={path}" for flag, path in files.items() if path is not None),
        f"--max-batch={max_batch}",
        f"--max-queue-delay={max_queue_delay}",
        *([f"--metrics={metrics}"] if metrics else []),
        f"--max-sessions={max_sessions}",
        f"--grace={grace}",
    )


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
