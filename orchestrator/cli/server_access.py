"""What it may take to be let in by a policy server that a command is given the address of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS: Final = {
    "--token-file": "file with the secret that it wants",
    "--ca": "PEM file with its CA; turns TLS on, as tls://HOST:PORT does",
    "--tls-cert": "PEM certificate to show to it, if it wants one",
    "--tls-key": "PEM private key of --tls-cert",
}


def server_access_options(function: F) -> F:
    """Adds these options to a command."""
    for flag, help_text in reversed(_FLAGS.items()):
        function = click.option(flag, type=click.Path(path_type=Path), help=help_text)(function)
    return function
