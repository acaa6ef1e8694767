"""Commands of the pages: taken apart, and held against what there is, without being run."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
from support import ROOT

from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.cli.options import given
from sparring.orchestrator.settings import read_settings

NOT_HERE: Final = {
    "make": "the tests run inside of it",
    "pip": "it would change the environment that the tests run in",
    "source": "the tests run inside of an environment already",
    "docker": "tests/docker builds and runs images",
    "ssh": "there is no other machine",
}
"""Programs that no test of a page runs, and why: what they are given is held against what there is."""

INSTALLS: Final = (("env", "create"), ("fetch",))
"""Subcommands that take minutes to fetch and to install: other tests do that."""

ANYTHING: Final = {
    "run": "--benchmark metaworld --task reach-v3 --policy expert",
    "serve": "--benchmark metaworld --policy expert",
    "worker": "--orchestrator 127.0.0.1:50052",
}
"""What `...` stands for in `sparring run ...`, by the subcommand."""

_ASSIGNMENTS: Final = re.compile(r"""\s*(?:\w+=(?:\$\([^)]*\)|'[^']*'|"[^"]*"|[^\s'"$]|\$)*(?:\s+|$))*""")


@dataclass(frozen=True)
class Command:
    """A line of a shell block.

    Attributes:
        line: As it stands there, without comment and continuation.
        words: As a shell would split it, without variables that are set for it.
    """

    line: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """Its first word; empty for a line that only sets variables."""
        return self.words[0] if self.words else ""

    @property
    def is_run_here(self) -> bool:
        """Whether a test may run it."""
        return self.program not in NOT_HERE and not (
            self.program == "sparring" and any(self.words[1 : 1 + len(sub)] == sub for sub in INSTALLS)
        )


def commands_of(code: str) -> list[Command]:
    """Returns the commands of a shell block; what one of them goes on with is part of it."""
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        if kept := _without_comment(line).strip():
            words = shlex.split(_ASSIGNMENTS.sub("", kept, count=1))
            found.append(Command(re.sub(r"\s{2,}", " ", kept), tuple(words)))
    return found


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


def check(command: Command, folder: Path) -> None:
    """Holds a command against what there is: flags, settings, targets, extras, files.

    Raises:
        AssertionError: If it would be refused.
    """
    words = list(command.words)
    match words:
        case ["sparring", *rest]:
            _sparring(rest, folder)
        case ["make", *targets]:
            known = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            assert [t for t in targets if not t.startswith("-") and "=" not in t and t not in known] == []
        case ["pip" | "docker" as program, *rest]:
            _files(rest)
            _extras(rest) if program == "pip" else _image(rest, folder)
        case ["python" | "pytest", *rest]:
            _files(rest)
            if "-m" in rest:
                module = rest[rest.index("-m") + 1].split(".")
                assert ROOT.joinpath(*module).is_dir() or ROOT.joinpath(*module).with_suffix(".py").is_file(), module


def _sparring(words: Sequence[str], folder: Path) -> None:
    anything = ANYTHING.get(words[0], "")
    if "--policy-server" in words:
        anything = anything.replace("--policy expert", "")
    line = shlex.join(words).replace("...", anything)
    parsed: click.Command = cli
    context = click.Context(cli, info_name="sparring")
    rest = shlex.split(line)
    while isinstance(parsed, click.Group):
        assert rest, f"{line}: a subcommand is missing"
        name = rest.pop(0)
        if name.startswith("-"):
            return
        found = parsed.get_command(context, name)
        assert found is not None, f"there is no command {name!r}"
        parsed, context = found, click.Context(found, parent=context, info_name=name)
    with parsed.make_context(context.info_name or "", rest, parent=context.parent) as parsed_context:
        if parsed.name == "run":
            values = dict(parsed_context.params)
            config = values.pop("config", None)
            read_settings(given(values), folder / config if config else None)


def unknown_flags(line: str) -> list[str]:
    """Returns what is not there of a command that is named in a sentence: `sparring run --config FILE`.

    It need not be whole, so that only names are looked at: of commands, and of flags.
    """
    parsed: click.Command = cli
    context = click.Context(cli, info_name="sparring")
    words = line.split()[1:]
    while isinstance(parsed, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = parsed.get_command(context, words[0])
        if found is None:
            return [words[0]]
        parsed = found
        words = words[1:]
    if parsed.name == "lerobot-eval":
        return []  # it takes somebody else's flags
    known = {flag for parameter in parsed.get_params(context) for flag in (*parameter.opts, *parameter.secondary_opts)}
    named = [word.partition("=")[0].rstrip(",.…") for word in words if re.match(r"--?[a-z]", word)]
    return [flag for flag in named if flag not in known | {"-h", "--help"}]


def _files(words: Sequence[str]) -> None:
    """Files of the repository that a command names must be there."""
    for flag, value in pairwise(words):
        if flag in ("-f", "-c", "-r"):
            assert (ROOT / value).is_file(), f"there is no {value}"
    for word in words:
        if word.startswith(("tests/", "constraints/", "tools/", "examples/")):
            assert (ROOT / word.partition("::")[0]).exists(), f"there is no {word}"


def _extras(words: Sequence[str]) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if found := re.fullmatch(r"(?:\.|sparring)\[([\w,-]+)\]", word):
            assert [extra for extra in found[1].split(",") if extra not in known] == []


def _image(words: Sequence[str], folder: Path) -> None:
    """What a container of ours is started with is a command of ours."""
    names = [place for place, word in enumerate(words) if re.fullmatch(r"sparring/[\w-]+:[\w.]+", word)]
    if "run" in words and names and (rest := words[names[-1] + 1 :]):
        _sparring(rest, folder)
