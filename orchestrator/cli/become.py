"""How `sparring serve` and `sparring worker` become the programs of the other two rooms."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def become(module: str, *arguments: str, python: Path | None = None) -> None:
    """Replaces this process with another room's program: it inherits nothing that the command line has imported.

    A worker's slots are forked from its process, and the policy server is no business of this room.
    """
    program = str(python or sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, "-m", module, *arguments])
