"""Which way a setting usually moves a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Effect:
    """What usually becomes of a success rate if a setting has another value, in words for people.

    Attributes:
        more: If the second value is the larger one.
        less: If it is the smaller one.
        other: If values have no order; or else, whichever it is.
    """

    more: str = ""
    less: str = ""
    other: str = ""

    def told(self, first: Any, second: Any) -> str:
        """Returns what usually becomes of a score if the second value is taken instead of the first."""
        ordered = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (first, second))
        found = (self.more if second > first else self.less) if ordered else ""
        return found or self.other or "not known"
