"""What was found out about a machine, for `sparring doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingState = Literal["ok", "note", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: Was looked at.
        state: Whether something should be done about it (note), or must be (bad).
        detail: A sentence, with what to do.
    """

    what: str
    state: FindingState
    detail: str
