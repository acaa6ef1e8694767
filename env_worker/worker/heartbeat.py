"""A file whose time says that the worker's event loop turns: what a container's HEALTHCHECK looks at.

Where that file is asked for, a loop that does not turn also ends the process. An engine says of a container that it is
unhealthy and leaves it at that; what has ended it starts again.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

VARIABLE: Final = "SPARRING_HEARTBEAT"
_SECONDS: Final = 1.0
_LIMIT: Final = 60.0
"""Longer than a HEALTHCHECK takes to say so, and than an orchestrator waits for a silent worker."""


async def beat() -> None:
    """Touches the file that the environment names, every second; does nothing if it names none.

    If it does not get to it for a minute, the process says where each of its threads is, and ends with exit code 1.
    Nothing of ours has to run for that, not even Python.
    """
    named = os.environ.get(VARIABLE)
    try:
        while named:
            faulthandler.dump_traceback_later(_LIMIT, exit=True)
            try:
                Path(named).touch()
            except OSError as error:
                log.warning("%s=%s cannot be written: %s", VARIABLE, named, error.strerror)
                return
            await asyncio.sleep(_SECONDS)
    finally:
        faulthandler.cancel_dump_traceback_later()
