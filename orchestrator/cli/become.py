"""How `sparring serve` and `sparring worker` become the programs of the other two rooms."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def become(module: str, *arguments: str, python: Path | None = None) -> None:
    """Replaces this process with another room's program: it inherits nothing that the command line has imported.

    A worker's slots are forked from its process, and the policy server is no business of this room. Nothing is imported
    from the current folder, which may be anybody's, unless the program looks there itself.
    """
    program = str(python or sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, "-P", "-m", module, *arguments])
