"""How somebody asked for a run: what is true of one execution of it, and is no setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Invocation:
    """How one execution was asked for.

    Attributes:
        command: The command line; empty: it was not by one.
        accept_changes: Whether to go on with a run though the policy, a benchmark or a package is another one now.
    """

    command: str = ""
    accept_changes: bool = False
