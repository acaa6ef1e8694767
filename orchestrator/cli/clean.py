"""`sparring clean`: removes containers that a killed run has left behind."""

from __future__ import annotations

import click

from sparring.orchestrator.launchers.docker.engine import RUN_LABEL, WORKER_LABEL, connect


@click.command(short_help="remove containers that a killed run has left")
@click.option("--all", "everything", is_flag=True, help="also those of runs that are going on, here or elsewhere")
@click.option("--dry-run", is_flag=True, help="only say what would be removed")
def clean(everything: bool, dry_run: bool) -> None:
    """Removes the containers of runs whose orchestrator is gone; results are not touched.

    A run removes its containers itself, however it ends, but for SIGKILL, a power cut, or a container engine that has
    gone before it.
    """
    engine = connect()
    found = engine.containers() if everything else engine.leftovers()
    for container in found:
        if not dry_run:
            engine.remove(container)
        click.echo(
            f"{'would remove' if dry_run else 'removed'} {container.name} ({container.status}): worker "
            f"{container.labels.get(WORKER_LABEL, '?')} of the run in {container.labels[RUN_LABEL]!r}"
        )
    if not found:
        click.echo("There is nothing to remove.")
