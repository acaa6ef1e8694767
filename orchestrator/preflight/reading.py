"""Files of checkpoints and data sets are strangers': whatever comes of reading them is said in a sentence."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from sparring.protos.errors import UsageError


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Says of all that fails in here that it cannot be read.

    Args:
        what: Is read, with its name.

    Raises:
        UsageError: If it cannot be.
    """
    try:
        yield
    except KeyError as error:
        raise UsageError(f"{what} cannot be read: it has no {error}.") from error
    except (
        *(ArithmeticError, AttributeError, LookupError, NotImplementedError, OSError, RecursionError),
        *(SyntaxError, TypeError, ValueError, struct.error),
    ) as error:
        raise UsageError(f"{what} cannot be read: {error}.") from error
