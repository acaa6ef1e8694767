"""The root of all errors, and the sentence that every failure becomes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from sparring.protos.advice import PYTHON, Dialect, Hint, hints_in, render


class SparringError(Exception):
    """A failure with a sentence that says what happened and what to do about it.

    The sentence may hold hints (`sparring.protos.advice`). Who reads the error itself, with `str()`, has a Python
    program in front of them, and reads keyword arguments. Programs that pass it on pass `sentence` on; those that show
    it to people of another kind say so, with `dialect` or `told`.
    """

    dialect: Dialect | None = None
    """How its readers talk; None: nobody has said so yet."""

    @property
    def sentence(self) -> str:
        """What happened and what to do, with hints that are not rendered: for whoever passes it on."""
        return super().__str__()

    @property
    def hints(self) -> Sequence[Hint]:
        """The settings that it tells to give."""
        return hints_in(self.sentence)

    def told(self, dialect: Dialect) -> str:
        """Returns the sentence in the words of a reader, unless somebody who knew better has chosen others."""
        return render(self.sentence, self.dialect or dialect)

    def __str__(self) -> str:
        return self.told(PYTHON)


class UsageError(SparringError):
    """The user asked for something that cannot be: an unknown name, a wrong value, a missing file."""


class CodeBroken(UsageError):
    """Code that users have named or installed raised, as its cause says, when it was imported, made or asked."""

    whose: str = "plugin"
    """The code is, in a word: policy, benchmark, launcher."""


def unknown(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> UsageError:
    """Returns an error for a name that is not known, with the nearest names that are.

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
