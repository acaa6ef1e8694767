"""`sparring salvage`: saves what can be read of a damaged journal."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from sparring.orchestrator.display.screen import count
from sparring.orchestrator.results.salvage import salvage as salvage_folder


@click.command(short_help="save what can be read of a damaged journal")
@click.argument("folder", type=click.Path(path_type=Path))
def salvage(folder: Path) -> None:
    """Reads what can be read of the damaged journal in FOLDER, row by row, and makes a new one of it.

    The damaged journal is kept beside it. A row that is not what was recorded is left out; `sparring resume` plays its
    episode again, with the same outcome.
    """
    done = salvage_folder(folder)
    if done.kept is None:
        click.echo(f"The journal is whole: it has {count(done.saved, 'episode')}, and nothing was changed.")
        return
    click.echo(f"Saved: {done.saved} of the plan's {count(done.planned, 'episode')}.")
    click.echo(f"The damaged journal is kept: {done.kept}")
    click.echo(f"sparring resume {shlex.quote(str(folder))} plays {count(done.again, 'episode')} again.")
