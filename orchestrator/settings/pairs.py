"""KEY=VALUE, as flags take it that may be repeated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from sparring.orchestrator.settings.yaml_text import read_yaml
from sparring.protos.errors import UsageError


def parse_pairs(pairs: Sequence[str], flag: str, *, text: bool = False) -> dict[str, Any]:
    """Reads KEY=VALUE pairs of a flag; values are YAML: numbers, lists and booleans are what they look like.

    Args:
        pairs: As they were given.
        flag: For sentences.
        text: Whether values are text, whatever they look like: YAML takes a time of 1:00:00 for a number.

    Raises:
        UsageError: If a pair has no key or no value.
    """
    parsed: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not all(part.replace("-", "_").isidentifier() for part in re.split("[.:]", key)):
            raise UsageError(f"{flag} {pair!r} is not KEY=VALUE.")
        try:
            parsed[key] = value if text else read_yaml(value)
        except (yaml.YAMLError, RecursionError) as error:
            raise UsageError(f"the value in {flag} {pair!r:.300} cannot be read: {error}") from error
    return parsed
