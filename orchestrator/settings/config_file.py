"""A YAML file of settings: what it says, on which line, and in whose words its mistakes are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from sparring.orchestrator.settings.yaml_text import compose_yaml, read_yaml
from sparring.protos.advice import Hint, flag
from sparring.protos.errors import UsageError
from sparring.protos.named_file import read_named

_MOST_BYTES: Final = 2**20
_MOST_ENTRIES: Final = 20_000
"""With what aliases stand for, each time: a few lines of them can stand for more than any memory holds."""
_DEEPEST: Final = 50


@dataclass(frozen=True)
class ConfigFile:
    """A file that settings are read from.

    Attributes:
        path: Of the file.
        values: The settings in it, by their names.
        lines: The line of each key and each entry of a list, by the way to it: `("evaluations", 0, "task")`.
    """

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[tuple[str | int, ...], int]

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """Reads a file.

        Raises:
            UsageError: If it cannot be read, or is something else.
        """
        try:
            text = read_named(path, _MOST_BYTES).decode()
            lines = _lines(compose_yaml(text), path)
            content = read_yaml(text)
        except OSError as error:
            raise UsageError(f"the config file {str(path)!r} cannot be read: {error.strerror}.") from error
        except RecursionError:
            raise _too_much(path) from None
        except (yaml.YAMLError, ValueError) as error:  # no text
            raise UsageError(f"the config file {str(path)!r} is not valid YAML: {error}") from error
        if not isinstance(content, dict):
            raise UsageError(f"the config file {str(path)!r} must hold settings as `key: value` lines.")
        # A flag's name works as a key, too.
        values = {str(key).replace("-", "_"): value for key, value in content.items()}
        return cls(path, values, lines)

    def without(self, names: Iterable[str]) -> ConfigFile:
        """Returns it without settings that others have the say of."""
        others = {name: value for name, value in self.values.items() if name not in set(names)}
        return replace(self, values=others)

    def where(self, way: Sequence[str | int]) -> str:
        """Returns the file, and the line of the nearest thing to what a way leads to."""
        for length in range(len(way), 0, -1):
            if (line := self.lines.get(tuple(way[:length]))) is not None:
                return f"{self.path}, line {line}"
        return str(self.path)


@dataclass(frozen=True)
class FileKeys:
    """The words of those who have a file of settings: its keys, but for settings that were given as flags.

    Attributes:
        flags: Names of settings that were given as flags.
    """

    flags: frozenset[str]

    def phrase(self, hints: Sequence[Hint]) -> str:
        """Returns one key after the other; the same one is not said twice."""
        return ", ".join(
            dict.fromkeys(flag(hint) if hint.setting in self.flags else f"`{_key(hint)}`" for hint in hints)
        )


def _key(hint: Hint) -> str:
    """Returns a setting as a file has it."""
    value = _value(hint.value) if hint.has_value else "..."
    if hint.key:
        return f"{hint.setting}: {{{_value(hint.key)}: {value}}}"
    return f"{hint.setting}: {value}" if hint.has_value else hint.setting


def _value(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").rstrip("\n")


def _too_much(path: Path) -> UsageError:
    return UsageError(
        f"the config file {str(path)!r} is nested too deep, or holds too much: at most {_DEEPEST} levels and "
        f"{_MOST_ENTRIES} entries, with those that aliases stand for."
    )


def _lines(tree: Any, path: Path) -> dict[tuple[str | int, ...], int]:
    """Returns the line, counted from 1, of whatever has a name or a place in a file.

    Raises:
        UsageError: If there is more of it than settings can be.
    """
    found: dict[tuple[str | int, ...], int] = {}
    entries = 0
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), tree)]
    while waiting:
        way, node = waiting.pop()
        parts: list[tuple[str | int, Any, Any]] = []
        if isinstance(node, yaml.MappingNode):
            parts = [(str(key.value), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            parts = [(number, item, item) for number, item in enumerate(node.value)]
        for name, at, inner in parts:
            name = name.replace("-", "_") if isinstance(name, str) and not way else name  # as `values` has it
            found[(*way, name)] = at.start_mark.line + 1
            waiting.append(((*way, name), inner))
        entries += len(parts)
        if len(way) > _DEEPEST or entries > _MOST_ENTRIES:
            raise _too_much(path)
    return found
