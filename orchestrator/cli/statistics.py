"""What commands that need scipy have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command


@contextmanager
def needs_scipy(what: str) -> Iterator[None]:
    """Says how to install scipy if it is missing: workers do without, so it does not come with everything.

    Raises:
        UsageError: If it is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "scipy":
            raise
        raise UsageError(
            f"{what} needs scipy; install it: {install_command('compare') or 'pip install scipy'}"
        ) from None
