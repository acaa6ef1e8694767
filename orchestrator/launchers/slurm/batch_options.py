"""Options of Slurm's sbatch that a user gives, as KEY=VALUE."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_NOBODYS: Final = (
    "array",
    "comment",
    "job-name",
    "open-mode",
    "parsable",
    "test-only",
    "wait",
    "wrap",
    "help",
    "usage",
    "version",
)


def read_batch_options(given: Any, ours: Mapping[str, str]) -> Any:
    """Returns options of sbatch by their long names, as text.

    Args:
        given: By the user: a mapping; what is none is for others to refuse.
        ours: Options that are not the user's to give, and the setting that says the same.

    Raises:
        ValueError: If one is none of the user's to give, or has no value.
    """
    if not isinstance(given, dict):
        return given
    found: dict[str, str] = {}
    for name, value in given.items():
        key = str(name).replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z-]+", key):
            raise ValueError(f"{name!r} is no long option of sbatch, as partition is one")
        if key in ours:
            raise ValueError(f"{key} is not to be given here: `{ours[key]}` says that")
        if key in _NOBODYS:
            raise ValueError(f"{key} is not to be given here: the launcher sets it, or has no use for it")
        if key == "time" and not isinstance(value, str):
            raise ValueError("time must be in quotes in a file, because YAML takes 1:00:00 for a number")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not text or not text.isprintable():
            raise ValueError(f"{key} has no value; give true for an option that needs none")
        found[key] = text
    return found
