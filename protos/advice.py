"""Advice: which setting to give, said in the words of whoever reads it.

The rooms below do not know whether their words are read on a command line, in a Python program or by somebody who uses
LeRobot's flags. So a sentence of theirs holds hints, `{{benchmark_arg.resolution=224}}`, and who shows it to people
renders it: as `--benchmark-arg resolution=224`, as `benchmark_arg={"resolution": 224}`, and so on.

A hint is written into the text, not sent beside it, because text is what every way out is made of (statuses of gRPC,
reasons on the wire, warnings in statistics, logs of child processes): whatever passes a sentence on passes its hints
on, too. Somebody else's client, which does not render it, shows something that can still be read.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sparring.protos.plain_text import plain

_OPEN: Final = "{{"
_CLOSE: Final = "}}"
_BETWEEN: Final = ", "
_NAME: Final = re.compile(r"[a-z_]+")
_KEY: Final = re.compile(r"[\w-]+(\.[\w-]+)*")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True)
class Hint:
    """A setting, and what to set it to where that is known. In a sentence, `str()` writes it for `render` to read.

    Attributes:
        setting: By the name that it has in a file: `policy_ca`.
        key: Of a setting that holds several by name: `resolution` of `benchmark_arg`.
        value: What JSON can hold; left out, the setting is only named.
    """

    setting: str
    key: str = ""
    value: Any = ...

    @property
    def has_value(self) -> bool:
        """Whether it says what to set."""
        return self.value is not ...

    def __str__(self) -> str:
        return together([self])

    @property
    def _notation(self) -> str:
        key = self.key if _KEY.fullmatch(self.key) else json.dumps(self.key)
        value = f"={json.dumps(self.value)}" if self.has_value else ""
        return f"{self.setting}{f'.{key}' if self.key else ''}{value}"


def together(hints: Sequence[Hint]) -> str:
    """Writes hints that are followed together as they stand in a sentence; nothing, if there are none."""
    return f"{_OPEN}{_BETWEEN.join(hint._notation for hint in hints)}{_CLOSE}" if hints else ""


class Dialect(Protocol):
    """The words of one kind of reader."""

    def phrase(self, hints: Sequence[Hint]) -> str:
        """Returns how these settings are given, all of them together."""


def render(text: str, dialect: Dialect) -> str:
    """Writes a text's hints in the words of a reader; what only looks like a hint is left as it is."""
    return "".join(part if isinstance(part, str) else dialect.phrase(part) for part in _parts(text))


def hints_in(text: str) -> list[Hint]:
    """Returns all the hints that a text holds."""
    return [hint for part in _parts(text) if not isinstance(part, str) for hint in part]


def shortened(text: str, length: int) -> str:
    """Returns the beginning of a text, without the half of a hint at its end."""
    kept = text[:length]
    start = kept.rfind(_OPEN)
    return kept[:start] if start >= 0 and _CLOSE not in kept[start:] and _CLOSE in text[start:] else kept


def _parts(text: str) -> Iterator[str | list[Hint]]:
    """Yields plain text and groups of hints, as they follow each other."""
    done = 0
    at = text.find(_OPEN)
    while at >= 0:
        found = _group(text, at + len(_OPEN))
        if found is None:
            at = text.find(_OPEN, at + 1)
            continue
        hints, end = found
        yield text[done:at]
        yield hints
        done = end
        at = text.find(_OPEN, end)
    yield text[done:]


def _group(text: str, at: int) -> tuple[list[Hint], int] | None:
    hints = []
    while True:
        found = _hint(text, at)
        if found is None:
            return None
        hint, at = found
        hints.append(hint)
        if text.startswith(_CLOSE, at):
            return hints, at + len(_CLOSE)
        if not text.startswith(_BETWEEN, at):
            return None
        at += len(_BETWEEN)


def _hint(text: str, at: int) -> tuple[Hint, int] | None:
    name = _NAME.match(text, at)
    if name is None:
        return None
    at, key, value = name.end(), "", ...
    try:
        if text.startswith(".", at):
            bare = _KEY.match(text, at + 1)
            key, at = (bare[0], bare.end()) if bare else _DECODER.raw_decode(text, at + 1)
        if text.startswith("=", at):
            value, at = _DECODER.raw_decode(text, at + 1)
    except (ValueError, RecursionError):  # no JSON, or more brackets than anybody means
        return None
    return (Hint(name[0], key, value), at) if isinstance(key, str) else None


@dataclass(frozen=True)
class Flags:
    """The words of the command line: `--benchmark-arg resolution=224`."""

    def phrase(self, hints: Sequence[Hint]) -> str:
        """Returns one flag after the other; the same one is not said twice."""
        return " ".join(dict.fromkeys(flag(hint) for hint in hints))


def flag(hint: Hint) -> str:
    """Returns a setting as it is given to `sparring run`."""
    name = f"--{hint.setting.replace('_', '-')}"
    if hint.key:
        return f"{name} {shlex.quote(hint.key)}={word(hint.value) if hint.has_value else '...'}"
    if isinstance(hint.value, bool):
        return name if hint.value else f"--no-{name.removeprefix('--')}"
    return f"{name} {word(hint.value)}" if hint.has_value else name


def word(value: Any) -> str:
    """Returns a value as one word of a command line."""
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))


@dataclass(frozen=True)
class Keywords:
    """The words of a Python program: `benchmark_arg={"resolution": 224}`.

    Attributes:
        names: Of settings that have another name there.
        made_with: Settings that are no arguments of that function, but of what the policy is made with.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    made_with: Sequence[str] = ("policy_arg", "rename")

    def phrase(self, hints: Sequence[Hint]) -> str:
        """Arguments by name; those of one mapping are put together."""
        here = self._arguments([hint for hint in hints if hint.setting not in self.made_with])
        there = self._arguments([hint for hint in hints if hint.setting in self.made_with])
        said = [", ".join(here)] if here else []
        if there:
            said.append(f"{', '.join(there)} where the policy is made")
        return " and ".join(said)

    def _arguments(self, hints: Sequence[Hint]) -> list[str]:
        single: dict[str, str] = {}
        mappings: dict[str, dict[str, str]] = {}
        for hint in hints:
            name = self.names.get(hint.setting, hint.setting)
            value = _literal(hint.value) if hint.has_value else "..." if hint.key else ""
            if hint.key and hint.setting == "policy_arg":
                single[hint.key] = f"{hint.key}={value}"
            elif hint.key:
                mappings.setdefault(name, {})[hint.key] = value
            else:
                single[name] = f"{name}={value}"
        for name, items in mappings.items():
            inner = ", ".join(f"{_literal(key)}: {value}" for key, value in items.items())
            single[name] = f"{name}={{{inner}}}"
        return list(single.values())


def _literal(value: Any) -> str:
    """Returns a value in Python's notation, with the quotes that people use."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


FLAGS: Final = Flags()

PYTHON: Final = Keywords(
    names={
        "policy_token_file": "token",
        "policy_ca": "ca",
        "policy_tls_cert": "identity",
        "policy_tls_key": "identity",
        "policy_timeout": "timeout",
    }
)
"""For who has an error of ours in hand and no command around it: users of PolicyClient and of other classes."""


class Advice:
    """A text with hints in it, for a log line: read in Python as it is, or in other words by a `RenderedFormatter`.

    Args:
        sentence: The text.
    """

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence

    def __str__(self) -> str:
        return render(self.sentence, PYTHON)


class RenderedFormatter(logging.Formatter):
    """Writes log lines, and errors and advice in them, in the words of a reader; what others write stays as it is.

    But for control characters, which are written out: what others say may come from anywhere.

    Args:
        dialect: Of that reader.
        style: The line, in logging's notation.
    """

    def __init__(self, dialect: Dialect, style: str = "%(message)s") -> None:
        super().__init__(style, datefmt="%H:%M:%S")
        self._dialect = dialect

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record."""
        told = copy.copy(record)  # others may handle it, too
        if isinstance(told.args, tuple):
            told.args = tuple(getattr(arg, "sentence", arg) for arg in told.args)
        return plain(render(super().format(told), self._dialect))
