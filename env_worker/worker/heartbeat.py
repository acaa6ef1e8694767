"""A file whose time says that the worker's event loop turns: what a container's HEALTHCHECK looks at."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

VARIABLE: Final = "SPARRING_HEARTBEAT"
_SECONDS: Final = 1.0


async def beat() -> None:
    """Touches the file that the environment names, every second; does nothing if it names none."""
    named = os.environ.get(VARIABLE)
    while named:
        try:
            Path(named).touch()
        except OSError as error:
            log.warning("%s=%s cannot be written: %s", VARIABLE, named, error.strerror)
            return
        await asyncio.sleep(_SECONDS)
