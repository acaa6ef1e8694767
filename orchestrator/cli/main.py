"""The command's root: subcommands, exit codes, and how errors are told."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from sparring.orchestrator import cli as subcommands
from sparring.protos.errors import SparringError, UsageError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


def _version() -> str:
    try:
        return version("sparring")
    except PackageNotFoundError:
        return "0+unknown"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="sparring")
def cli() -> None:
    """Puts robot policies through simulation benchmarks."""


def _add_subcommands() -> None:
    """Adds what each file beside this one has in its COMMANDS: a new subcommand is a new file."""
    for found in pkgutil.iter_modules(subcommands.__path__):
        if found.name != "main":
            module = importlib.import_module(f"{subcommands.__name__}.{found.name}")
            for command in getattr(module, "COMMANDS", ()):
                cli.add_command(command)


_add_subcommands()


def main() -> None:
    """Entry point of the `sparring` command."""
    # gRPC's own notes on handshakes that fail, beside the sentence of ours that says so; children inherit it.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("sparring").setLevel(logging.INFO)
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        raise SystemExit(130) from None
    except click.ClickException as error:
        _tell(error.format_message())
        raise SystemExit(EXIT_USAGE) from None
    except SparringError as error:
        _tell(str(error))
        raise SystemExit(EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _tell(sentence: str) -> None:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {sentence}", err=True)
