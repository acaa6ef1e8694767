"""Rules that others can hold their own work against, and what came of that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from sparring.protos.errors import SparringError


class RuleBroken(SparringError):
    """A rule does not hold; the message says what happened, and when."""


class NotApplicable(SparringError):
    """A rule has nothing to say about what is checked; the message says why."""


class CheckFailed(SparringError):
    """At least one rule does not hold."""


@dataclass(frozen=True)
class Verdict:
    """What came of checking one rule.

    Attributes:
        rule: What should hold, as a sentence.
        kind: Whether it does.
        detail: What happened instead, or why it could not be checked.
    """

    rule: str
    kind: Literal["ok", "skipped", "FAILED"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind:7}  {self.rule}" + (f"\n         {self.detail}" if self.detail else "")


def judge(rule: Callable[..., None], *subject: Any) -> Verdict:
    """Checks a rule: a function that raises if it does not hold, and whose docstring's first line says what should."""
    sentence = (inspect.getdoc(rule) or rule.__name__).partition("\n")[0]
    try:
        rule(*subject)
    except NotApplicable as reason:
        return Verdict(sentence, "skipped", reason.sentence)
    except RuleBroken as failure:
        return Verdict(sentence, "FAILED", failure.sentence)
    except Exception as error:  # noqa: BLE001  # what is checked is somebody else's, and raises what it pleases
        return Verdict(sentence, "FAILED", f"it raised {type(error).__name__}: {error}")
    return Verdict(sentence, "ok")


def expect(holds: object, otherwise: str) -> None:
    """Raises RuleBroken with a sentence unless something is true. Not an assert: python -O must not skip it."""
    if not holds:
        broken(otherwise)


def broken(sentence: str) -> NoReturn:
    """Raises RuleBroken."""
    raise RuleBroken(sentence)


def raise_failures(what: str, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Returns the same verdicts, if all rules hold.

    Args:
        what: That was checked, for the message.
        verdicts: Of all its rules.

    Raises:
        CheckFailed: If one does not, with every one that does not.
    """
    found = list(verdicts)
    failures = [verdict for verdict in found if verdict.kind == "FAILED"]
    if failures:
        lines = "\n".join(str(failure) for failure in failures)
        raise CheckFailed(f"{what}: {len(failures)} of {len(found)} rules do not hold:\n{lines}")
    return found
