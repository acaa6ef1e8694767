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

    Where something could not be looked for or removed, as by a Slurm whose controller is gone, it is told, all else is
    removed, and the exit code is 1.
    """
    found = False
    failures: list[str] = []
    for name, launcher in working_launchers().items():
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
            failures.append(f"{name}: {error.sentence}")
    if failures:
        done = "would be removed" if dry_run else "was removed"
        rest = f"All else that was found {done}" if found else "There is nothing else to remove"
        raise SparringError(
            f"what killed runs may have left could not be looked for, or removed. {' '.join(failures)} {rest}; clean "
            "again when that answers."
        )
    if not found:
        click.echo("There is nothing to remove.")
