"""`sparring clean`: removes what killed runs have left behind."""

from __future__ import annotations

import click

from sparring.orchestrator.launchers.registry import working_launchers
from sparring.protos.errors import SparringError


@click.command(short_help="remove what a killed run has left")
@click.option("--all", "everything", is_flag=True, help="also those of runs that are going on, here or elsewhere")
@click.option("--dry-run", is_flag=True, help="only say what would be removed")
def clean(everything: bool, dry_run: bool) -> None:
    """Removes the containers of runs whose orchestrator is gone, and what other launchers left; results stay.

    A run removes its workers itself, however it ends, but for SIGKILL, a power cut, or a container engine that has gone
    before it.
    """
    found = False
    failures: list[SparringError] = []
    for launcher in working_launchers().values():
        try:
            for leftover in launcher.leftovers(everything=everything):
                found = True
                if leftover.kept:
                    click.echo(f"left {leftover.what}: {leftover.kept} Or remove everything, with --all.")
                    continue
                if not dry_run:
                    leftover.remove()
                click.echo(f"{'would remove' if dry_run else 'removed'} {leftover.what}")
        except SparringError as error:  # the others' are removed all the same
            failures.append(error)
    if failures:
        raise failures[0]
    if not found:
        click.echo("There is nothing to remove.")
