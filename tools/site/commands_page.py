"""The reference of the `sparring` command, from click."""

from __future__ import annotations

from collections.abc import Iterator

import click
from tables import code, prose, table

from sparring.orchestrator.cli.main import cli

_INTRODUCTION = """# Commands

`sparring COMMAND --help` says the same. This page is made from the code. [Settings](settings.md) has more about the
flags of `sparring run`: types, defaults, and how they are written in a file.
"""


def commands_page() -> str:
    """Returns the page."""
    return "\n\n".join([_INTRODUCTION, *_of(cli, click.Context(cli, info_name="sparring"))]) + "\n"


def _of(command: click.Command, context: click.Context) -> Iterator[str]:
    """A part for a command, and those of its subcommands."""
    if context.parent is not None:
        yield f"{'#' * min(4, 1 + _depth(context))} {context.command_path}"
        yield "```text\n" + " ".join([context.command_path, *command.collect_usage_pieces(context)]) + "\n```"
        yield _help(command)
        flags = [flag for flag in command.get_params(context) if isinstance(flag, click.Option) and flag.name != "help"]
        if rows := [record for flag in flags if (record := flag.get_help_record(context))]:
            yield table(("flag", "meaning"), [(code(flag.removesuffix(" RANGE")), prose(said)) for flag, said in rows])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None and not found.hidden:
                yield from _of(found, click.Context(found, parent=context, info_name=name))


def _help(command: click.Command) -> str:
    """The help text; paragraphs that begin with a backspace keep their lines."""
    parts = []
    for part in (command.help or "").replace("\r", "").split("\n\n"):
        if part.startswith("\b"):
            parts.append("```text\n" + part.removeprefix("\b").strip("\n") + "\n```")
        else:
            parts.append(prose(" ".join(part.split())))
    return "\n\n".join(parts)


def _depth(context: click.Context) -> int:
    return 0 if context.parent is None else 1 + _depth(context.parent)
