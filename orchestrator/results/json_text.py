"""JSON of strangers: a short file may be unpacked to a long one, and a long one take far more memory than its bytes."""

from __future__ import annotations

import json
from typing import Any, Final

MOST_TEXT: Final = 256 << 20
"""Bytes of a document: of run.json, and of each text in a bundle."""
_MOST_PARTS: Final = 16_000_000
"""Things in lists and maps, and these themselves; 200,000 episodes of a bundle have ten million."""


def parse_json(content: bytes) -> Any:
    """Returns what JSON stands for.

    Raises:
        ValueError: If it is none, or holds more than any run has.
        RecursionError: If it is nested too deep.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_PARTS:
        raise ValueError(f"it holds more than {_MOST_PARTS:,} things")
    return json.loads(content.decode())
