"""Text of others, such as errors of policies and names of tasks, made fit for a terminal."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # with them a terminal is told to do things; tabs and ends of lines are text
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # and with these, to show text in another order than it has
)


def plain(text: str) -> str:
    r"""Returns a text with its control characters written out: `\x1b` for an escape."""
    return _CONTROL.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
