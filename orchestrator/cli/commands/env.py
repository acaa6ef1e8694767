"""`sparring env`: the environments of benchmarks that cannot share an interpreter."""

from __future__ import annotations

import time
from pathlib import Path

import click

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.display.listing import print_listing
from sparring.orchestrator.machine.environments import create as create_environment
from sparring.orchestrator.machine.environments import environment_state, recipes, state, venvs_folder
from sparring.orchestrator.machine.environments import remove as remove_environment


@click.group(short_help="make and list environments of benchmarks")
def env() -> None:
    """Makes and lists the environments of benchmarks that need a Python of their own."""


@env.command("create", short_help="make the environment of a benchmark")
@click.argument("name")
@click.option(
    "--with",
    "packages",
    multiple=True,
    metavar="PACKAGE",
    help="install this there, too, named as pip does (gym-aloha==0.1.5, ./mine); may be repeated. Such an environment "
    "is used even if the benchmark is installed here",
)
@click.option("--force", is_flag=True, help="make it anew even if it is ready")
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="make it in this folder, for example on storage that all machines of a cluster share; workers are started "
    "from there, wherever they run. Any benchmark may have such an environment",
)
def create(name: str, packages: tuple[str, ...], force: bool, prefix: Path | None) -> None:
    """Makes the environment of the benchmark NAME; `sparring run` finds it by itself.

    Made again, it is where it was, with what it was made with before, unless --prefix or --with names something else.
    """
    began = time.monotonic()
    try:
        python = create_environment(name, packages=packages, force=force, prefix=prefix)
    except KeyboardInterrupt:
        click.echo(f"stopped: interrupted. The environment {name} is as it was before: {_kind(name)}.", err=True)
        raise SystemExit(130) from None
    folder = python.parent.parent
    size = sum(file.lstat().st_size for file in folder.rglob("*"))
    click.echo(f"{name} is ready in {str(folder)!r}: {size / 1e9:.1f} GB, {time.monotonic() - began:.0f} s.")


@env.command("remove", short_help="remove the environment of a benchmark")
@click.argument("name")
def remove(name: str) -> None:
    """Removes the environment of the benchmark NAME."""
    there = remove_environment(name)
    click.echo(f"The environment {name} is removed." if there else f"There is no environment {name}.")


@env.command("ls", short_help="list environments and their state")
def ls() -> None:
    """Lists the environments there are, and their state."""
    rows = []
    for name in recipes():
        found = environment_state(name)
        needless = found.kind == "missing" and state(get_benchmark(name)).kind == "here"
        detail = "not needed: what it requires is installed here" if needless else found.detail
        rows.append((name, found.kind, detail))
    print_listing(("environment", "state", "detail"), rows)
    click.echo(f"They are kept in {_short(venvs_folder())!r}.")


def _kind(name: str) -> str:
    return environment_state(name).kind


def _short(folder: Path) -> str:
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else str(folder)
