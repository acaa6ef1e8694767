"""A file whose time says that the worker's event loop turns: what a container's HEALTHCHECK looks at.

Where that file is asked for, a loop that does not turn also ends the process, so that it is started again.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from sparring.protos.watchdog import watch_loop

log = logging.getLogger(__name__)

VARIABLE: Final = "SPARRING_HEARTBEAT"
_LIMIT: Final = 60.0
"""Longer than a HEALTHCHECK takes to say so, and than an orchestrator waits for a silent worker."""


async def beat() -> None:
    """Touches the file that the environment names, every second; does nothing if it names none."""
    if named := os.environ.get(VARIABLE):
        try:
            await watch_loop(_LIMIT, Path(named).touch)
        except OSError as error:
            log.warning("%s=%s cannot be written: %s", VARIABLE, named, error.strerror)
