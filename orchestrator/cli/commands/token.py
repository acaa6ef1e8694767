"""`sparring token`: a secret that nobody guesses, in a file that nobody else reads."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import click

from sparring.protos.errors import SparringError, UsageError

_BYTES: Final = 32


@click.command(short_help="make a secret for --token-file")
@click.argument("file", type=click.Path(path_type=Path))
def token(file: Path) -> None:
    """Writes a new secret to FILE, which must not exist, and which only you can read."""
    try:
        # Made with its mode: between making it and changing that, others could open it.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise UsageError(f"there is a file {str(file)!r} already: remove it, or name another.") from error
    except OSError as error:
        raise SparringError(f"{str(file)!r} cannot be written: {error.strerror}.") from error
    with os.fdopen(descriptor, "w") as out:
        out.write(secrets.token_hex(_BYTES) + "\n")
    click.echo(f"{file}: give it to servers and clients with --token-file, and to nobody else.", err=True)
