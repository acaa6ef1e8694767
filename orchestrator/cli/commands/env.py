"""`sparring env`: the environments of benchmarks that cannot share an interpreter."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from sparring.orchestrator.display.screen import show
from sparring.orchestrator.machine.environments import create as create_environment
from sparring.orchestrator.machine.environments import environment_state, recipes, venvs_folder


@click.group(short_help="make and list environments of benchmarks")
def env() -> None:
    """Makes and lists the environments of benchmarks that need a Python of their own."""


@env.command("create")
@click.argument("name")
@click.option("--force", is_flag=True, help="make it anew even if it is ready")
def create(name: str, force: bool) -> None:
    """Makes the environment of the benchmark NAME; `sparring run` finds it by itself."""
    began = time.monotonic()
    try:
        python = create_environment(name, force=force)
    except KeyboardInterrupt:
        click.echo(f"stopped: interrupted. The environment {name} is as it was before: {_kind(name)}.", err=True)
        raise SystemExit(130) from None
    folder = python.parent.parent
    size = sum(file.lstat().st_size for file in folder.rglob("*"))
    click.echo(f"{name} is ready in {str(folder)!r}: {size / 1e9:.1f} GB, {time.monotonic() - began:.0f} s.")


@env.command("ls")
def ls() -> None:
    """Lists the environments there are, and their state."""
    table = Table("environment", "state", "detail", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in recipes():
        found = environment_state(name)
        table.add_row(Text(name), Text(found.kind), Text(found.detail))
    show(table)
    click.echo(f"They are kept in {_short(venvs_folder())!r}.")


def _kind(name: str) -> str:
    return environment_state(name).kind


def _short(folder: Path) -> str:
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else str(folder)
