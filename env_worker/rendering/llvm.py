"""Two LLVMs in one process: that of Mesa's software renderer, and that of triton, which torch for GPUs brings.

A process that has drawn with the one crashes when it loads the other; the other way round both work. Slots have no
torch. Who plays in the process of a training program, or makes environments there, has: an optimizer loads triton.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from functools import cache


@cache
def load_triton_first() -> None:
    """Loads triton, if this process has torch and torch has triton; to be called before anything is drawn."""
    if "torch" in sys.modules and "triton" not in sys.modules:
        with suppress(Exception):  # it is not here, or does not work: then nobody will load it later either
            importlib.import_module("triton")
