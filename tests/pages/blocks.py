"""The code blocks of the pages that people read, and what each page says of how its blocks are tested.

A block has a language, and the language says what is done with it. A comment right above it says otherwise:

    <!-- run: with --episodes 1; requires libero; everything; at once -->
    <!-- checked: why it is not run -->
    <!-- not run: why it is not even checked -->
    <!-- not here: which test runs its commands such as make and pip, or why none does -->
    <!-- before: code that readers do not see, and that the block needs -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest
from markdown_it import MarkdownIt
from support import ROOT

PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/README.md")],
    key=lambda page: (page.parent != ROOT, str(page)),
)
"""What users read: every command and every piece of code in there is tested."""

RUN: Final = ("python", "sh")
"""Languages that are run."""
DATA: Final = ("json", "toml", "yaml")
"""Languages that are read; YAML as settings of a run."""
SHOWN: Final = ("text",)
"""What is no code: what a command prints, how a folder looks."""

LANGUAGES: Final = (*RUN, *DATA, *SHOWN, "dockerfile")

How = Literal["run", "checked", "not run"]

_COMMENT: Final = re.compile(r"<!--\s*(run|checked|not run|not here|before)\b:?(.*?)-->", re.DOTALL)
_FILE: Final = re.compile(r"#\s*([\w./-]+\.(?:py|ya?ml|toml|json))\s*$")
_COMMAND: Final = re.compile(r"(sparring|make|pip|docker|python|pytest|import|from \S+ import)\s")


class BlockError(Exception):
    """A block, or what its page says of it, cannot be understood."""


@dataclass(frozen=True)
class Block:
    """A piece of code on a page.

    Attributes:
        page: Where it is.
        line: The line of the page that it begins at, from 1.
        language: Of the code.
        code: What readers see.
        how: What tests do with it.
        why: Why it is not run, where it is not.
        not_here: Which test runs the commands in it that are not run here, or why none does; empty: there are none.
        before: Code that comes before it, for tests only.
        flags: What `sparring` commands are given beside what readers see: fewer episodes.
        requires: What must be there, by the names of tests/requirements.py.
        everything: Whether it is run by `make test-all` only.
        at_once: Whether its commands are running at the same time, as they would on several machines.
    """

    page: Path
    line: int
    language: str
    code: str
    how: How = "run"
    why: str = ""
    not_here: str = ""
    before: str = ""
    flags: str = ""
    requires: tuple[str, ...] = ()
    everything: bool = False
    at_once: bool = False

    @property
    def where(self) -> str:
        """The page and the line, as editors know it."""
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The file that readers are to write it to, if its first line says one: `# my_module.py`."""
        found = _FILE.match(self.code.partition("\n")[0])
        return found[1] if found else ""

    @property
    def apart(self) -> bool:
        """Whether it is a test of its own, because not every machine can run it, or not every time."""
        return self.how == "run" and bool(self.requires or self.everything)

    @property
    def of_libero(self) -> bool:
        """Whether it needs LIBERO's environment, which is made while other tests run."""
        return any(name.startswith("libero") for name in self.requires)

    def marks(self) -> list[pytest.MarkDecorator]:
        """Returns when it is tested, for pytest."""
        marks = [pytest.mark.requires(*self.requires)] if self.requires else []
        return [*marks, pytest.mark.everything] if self.everything else marks


@dataclass
class _Said:
    """What comments said since the last block."""

    how: How = "run"
    why: str = ""
    not_here: str = ""
    before: str = ""
    options: list[str] = field(default_factory=list)


def blocks_of(page: Path) -> list[Block]:
    """Returns the code blocks of a page, from top to bottom.

    Raises:
        BlockError: If one has no language, or its comment is not understood.
    """
    return list(_blocks(page, page.read_text()))


def _blocks(page: Path, text: str) -> Iterator[Block]:
    said = _Said()
    for token in MarkdownIt("commonmark").parse(text):
        line = token.map[0] + 1 if token.map else 0
        where = f"{page.name}:{line}"
        if token.type == "html_block":
            _listen(token.content, said, where)
        elif token.type == "code_block":
            raise BlockError(
                f"{where}: write this block between ``` and give it a language: {', '.join(LANGUAGES)} "
                "(docs/contributing.md says what tests do with each)"
            )
        elif token.type == "fence":
            yield _block(page, line, token.info.strip(), token.content, said)
            said = _Said()
        elif token.nesting >= 0 and said != _Said():
            raise BlockError(f"{where}: a comment about a block must stand right above it")


def _listen(html: str, said: _Said, where: str) -> None:
    for kind, rest in _COMMENT.findall(html):
        text = rest.strip()
        if kind == "before":
            said.before += rest.strip("\n ") + "\n"
        elif kind == "run":
            said.options = [part.strip() for part in text.split(";") if part.strip()]
        else:
            if len(text) < 8:
                raise BlockError(f"{where}: say why: <!-- {kind}: because … -->")
            if kind == "not here":
                said.not_here = text
            else:
                said.how, said.why = kind, text


def _block(page: Path, line: int, language: str, code: str, said: _Said) -> Block:
    where = f"{page.name}:{line}"
    if language not in LANGUAGES:
        raise BlockError(f"{where}: the language of a block is one of {', '.join(LANGUAGES)}, not {language!r}")
    if language == "dockerfile" and said.how == "run":
        raise BlockError(f"{where}: a dockerfile is not built here: say why above it, <!-- not run: … -->")
    if language in SHOWN and (commands := [line for line in code.splitlines() if _COMMAND.match(line)]):
        raise BlockError(f"{where}: {commands[0].strip()!r} is a command, so its block is not of the language text")
    flags, requires, everything, at_once = "", (), False, False
    for option in said.options:
        name, _, value = option.partition(" ")
        match name:
            case "with":
                flags = value
            case "requires":
                requires = tuple(value.replace(",", " ").split())
            case "everything":
                everything = True
            case "at" if value == "once":
                at_once = True
            case _:
                raise BlockError(f"{where}: <!-- run: … --> takes `with FLAGS`, `requires NAMES`, `everything` and "
                                 f"`at once`, not {option!r}")  # fmt: skip
    return Block(
        page, line, language, code, said.how, said.why, said.not_here, said.before, flags, requires, everything, at_once
    )
