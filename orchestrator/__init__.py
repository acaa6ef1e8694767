"""Plans episodes, launches and feeds workers, keeps the journal, reports; the `sparring` command.

For training loops: `from orchestrator import evaluate`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.live import Evaluator, close, evaluate

__all__ = ["Evaluator", "close", "evaluate"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for: the command need not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Before gRPC is: training programs fork (torch's data loaders do), and its handlers for that crash the forks, which
    # do not use it.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from orchestrator import live

    return getattr(live, name)
