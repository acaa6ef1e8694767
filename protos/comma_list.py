"""Names with commas in between, as flags have them."""

from __future__ import annotations


def comma_list(text: str) -> list[str]:
    """Returns the names in a text; blanks around them do not count, nor does nothing between two commas."""
    return [name for name in (part.strip() for part in text.split(",")) if name]
