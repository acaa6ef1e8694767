"""Conditions: what episodes are played by, beside the task. Only by the same ones do actions come to the same end."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sparring.protos import policy_pb2 as pb
from sparring.protos.errors import SparringError


@dataclass(frozen=True)
class Conditions:
    """Settings, rules and versions that decide what a simulator does; what JSON can hold.

    Attributes:
        settings: Of the benchmark, without those that only change what is seen.
        rules: Of episodes.
        versions: Of packages.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_message(self) -> pb.Conditions:
        """Returns them as they go over the wire."""
        return pb.Conditions(
            settings={name: json.dumps(value) for name, value in self.settings.items()},
            rules={name: json.dumps(value) for name, value in self.rules.items()},
            versions=self.versions,
        )

    @classmethod
    def from_message(cls, message: pb.Conditions) -> Conditions:
        """Reads them as they came over the wire.

        Raises:
            SparringError: If they are none.
        """
        try:
            settings, rules = (
                {name: json.loads(text) for name, text in found.items()} for found in (message.settings, message.rules)
            )
        except (ValueError, RecursionError) as error:
            raise SparringError(f"the conditions of the hello are not JSON: {error}.") from error
        return cls(settings, rules, dict(message.versions))

    def to_json(self) -> dict[str, Any]:
        """Returns them for a file."""
        return {part.name: dict(getattr(self, part.name)) for part in fields(self)}

    @classmethod
    def from_json(cls, content: Any) -> Conditions:
        """Reads them from a file.

        Raises:
            ValueError: If they are none.
        """
        if not isinstance(content, Mapping) or not all(isinstance(part, Mapping) for part in content.values()):
            raise ValueError("its conditions are no mappings")
        return cls(**{part.name: dict(content.get(part.name, {})) for part in fields(cls)})

    def differences(self, now: Conditions) -> list[tuple[str, str, Any, Any]]:
        """Returns kind, name and both values of each one that is another now; one that either does not know is none."""
        return [
            (part.name, name, there[name], here[name])
            for part in fields(self)
            for there, here in [(getattr(self, part.name), getattr(now, part.name))]
            for name in _in_both(there, here)
            if there[name] != here[name]
        ]


def plain(value: Any) -> Any:
    """Returns what JSON can hold of a value: words for numbers that are not finite, lists for tuples."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _in_both(there: Iterable[str], here: Iterable[str]) -> list[str]:
    return sorted(set(there) & set(here))
