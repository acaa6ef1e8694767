"""The root of all errors, and the sentence that every failure becomes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SparringError(Exception):
    """A failure with a sentence that says what happened and what to do about it."""


class UsageError(SparringError):
    """The user asked for something that cannot be: an unknown name, a wrong value, a missing file."""


def unknown(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> UsageError:
    """An error for a name that is not known, with the nearest names that are.

    Args:
        kind: What the name was meant to be, for example "task".
        name: What was given.
        known: What could have been given.
        hint: Where to see them all.
    """
    candidates = sorted(set(known))
    near = difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    if near:
        advice = f"Did you mean {' or '.join(repr(n) for n in near)}?"
    elif len(candidates) <= 12:
        advice = f"Known: {', '.join(candidates) or 'none'}."
    else:
        advice = ""
    return UsageError(" ".join(part for part in (f"unknown {kind} {name!r}.", advice, hint) if part))
