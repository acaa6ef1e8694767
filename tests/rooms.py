"""The code of the rooms, for tests that read it: files, and what they parse to."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path
from typing import Final

from support import ROOT

ROOMS: Final = ("protos", "policy_server", "env_worker", "orchestrator")


@cache
def code_files() -> tuple[Path, ...]:
    """Every Python file of the rooms."""
    return tuple(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))


@cache
def tree_of(text: str) -> ast.Module:
    """What a text parses to. It is kept, and the garbage collector does not look at it, which would take longer."""
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.freeze()
        gc.enable()
