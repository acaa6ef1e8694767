"""The command's root: subcommands, exit codes, and how errors are told."""

from __future__ import annotations

import ast
import importlib
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import click

from sparring.orchestrator.cli import commands
from sparring.orchestrator.run.errors import Interrupted
from sparring.protos.advice import FLAGS, RenderedFormatter
from sparring.protos.errors import CodeBroken, SparringError, UsageError, unknown
from sparring.protos.plain_text import plain
from sparring.protos.tracebacks import traceback_of

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
_PAIRS: Final = ("-arg", "--rename", "--image", "--retries-of")
"""Ends of flags that take KEY=VALUE."""


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # which takes as long to import as all else here

    try:
        return version("sparring")
    except PackageNotFoundError:
        return "0+unknown"


class _Subcommands(click.Group):
    """Finds subcommands in files, and imports the one that is asked for: the others would cost it seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in self.list_commands(ctx):
            raise unknown("command", cmd_name, self.list_commands(ctx), hint="See: sparring --help")
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"{commands.__name__}.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the subcommands without importing them, which would take seconds: what each is for is in its source."""
        rows = [
            (name, _short_help(name) or self.get_command(ctx, name).short_help or "")
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _short_help(command: str) -> str:
    """Reads what a subcommand is for in its file: the `short_help` that it is decorated with."""
    name = command.replace("-", "_")
    source = Path(next(iter(commands.__path__)), f"{name}.py")
    for node in ast.parse(source.read_text()).body if source.is_file() else ():
        if isinstance(node, ast.FunctionDef) and node.name == name:
            given = [word for call in node.decorator_list if isinstance(call, ast.Call) for word in call.keywords]
            for word in given:
                if word.arg == "short_help" and isinstance(word.value, ast.Constant):
                    return str(word.value.value)
    return ""


def _say_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"sparring, version {_version()}")
        ctx.exit()


@click.group(cls=_Subcommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_say_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Puts robot policies through simulation benchmarks."""


def main() -> None:
    """Runs the `sparring` command."""
    _keep_standard_streams()
    # gRPC's own notes on handshakes that fail, beside the sentence of ours that says so; children inherit it.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RenderedFormatter(FLAGS))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("sparring").setLevel(logging.INFO)
    try:
        _run()
    finally:
        _drop_unwritten()


def _run() -> NoReturn:
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # new in click 8.2: the whole help
            _show(error.format_message())
        else:
            hint = _list_hint(error, sys.argv)
            _tell(f"{error.format_message().rstrip('.')}. {hint}" if hint else error.format_message())
        raise SystemExit(EXIT_USAGE) from None
    except SparringError as error:
        if isinstance(error, CodeBroken) and error.__cause__ is not None:  # no run has kept it
            _show(traceback_of(error.__cause__))
        _tell(error.told(FLAGS))
        if isinstance(error, Interrupted):
            raise SystemExit(EXIT_INTERRUPTED) from None
        raise SystemExit(EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _list_hint(error: click.ClickException, arguments: Sequence[str]) -> str:
    """Returns what is to be said to somebody who gives a flag two words, or none: `--task a b`, `--task $NOT_SET`."""
    if not isinstance(error, click.UsageError):
        return ""
    if any(argument.endswith(",") for argument in arguments):
        return "A list has no space after its commas."
    extra = re.fullmatch(r"Got unexpected extra arguments? \((.+)\)\.?", error.message)
    first = extra[1].split()[0] if extra else ""
    for flag, value, more in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if more != first or not flag.startswith("--") or "=" in flag:
            continue
        if value.startswith("--") and _takes_a_value(error, flag):
            return f"{flag} has no value: {value} was taken for it."
        if value.startswith("-"):
            continue
        if flag.endswith(_PAIRS) and "=" not in value:
            return f"{flag} takes KEY=VALUE, as in {flag} {value}={more}"
        if "=" not in value:
            return f"Several values are one word, with commas in between, as in {flag} {value},{more}"
    return ""


def _takes_a_value(error: click.UsageError, flag: str) -> bool:
    options = error.ctx.command.params if error.ctx else []
    return any(flag in option.opts and isinstance(option, click.Option) and not option.is_flag for option in options)


def _keep_standard_streams() -> None:
    """Opens those of the standard streams that whoever started this has closed, to nowhere.

    Otherwise the next file that is opened takes their place, and whatever writes to standard error writes to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # as Python has it for a stream that is closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the program


def _drop_unwritten() -> None:
    """Drops what standard error still holds and cannot write: Python would end with an exit code of its own for it."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _show(text: str) -> None:
    with suppress(OSError):
        click.echo(plain(text.rstrip()), err=True)


def _tell(sentence: str) -> None:
    with suppress(OSError):  # nobody can read it, but the exit code is there for all
        click.echo(f"{click.style('error:', fg='red', bold=True)} {plain(sentence)}", err=True)
