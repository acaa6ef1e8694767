"""How a run ends before its plan does."""

from __future__ import annotations

from sparring.protos.errors import SparringError


class RunStopped(SparringError):
    """The run cannot go on. What was recorded is whole, and the run can be resumed."""


class Interrupted(SparringError):
    """The user asked the run to end; what was recorded is whole."""
