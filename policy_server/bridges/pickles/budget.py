"""What one message of pickles may take of the time of all: steps, and what its references would be if written out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from sparring.policy_server.bridges.arrays import BadMessage

_MOST_STEPS: Final = 100_000
"""Of one message, the pickles in its pickle included; a chunk of a hundred actions has twenty thousand."""
_BYTES_OF_A_STEP: Final = 4096
"""A step that reads more bytes than these counts as several: pickles in a pickle may be read again and again."""
_DEEPEST: Final = 32
"""Things in things; C's own stack ends where they are hashed or compared at some ten thousand."""


class PickleBudget:
    """What one message may still take, whatever it consists of.

    Args:
        parts: Returns what a thing consists of; nothing, if it has no parts.
    """

    def __init__(self, parts: Callable[[Any], Collection[Any]]) -> None:
        self._parts = parts
        self._left = _MOST_STEPS

    def take(self, steps: int = 1, read: int = 0) -> None:
        """Counts steps, and the bytes that they have read.

        Raises:
            BadMessage: If there have been too many.
        """
        self._left -= steps + read // _BYTES_OF_A_STEP
        if self._left < 0:
            raise BadMessage(f"a pickle of more than {_MOST_STEPS} steps, with all that it refers to.")

    def take_whole(self, value: Any) -> None:
        """Counts all parts of a thing, those that are in it several times as often as they are.

        A few references to references are as much as one likes for whoever prints, compares or hashes it.

        Raises:
            BadMessage: If there are too many, or too deep in each other.
        """
        waiting = [(value, 0)]
        while waiting:
            whole, depth = waiting.pop()
            parts = self._parts(whole)
            self.take(len(parts))
            if parts and depth >= _DEEPEST:
                raise BadMessage(f"a pickle of things that are in each other more than {_DEEPEST} times.")
            waiting.extend((part, depth + 1) for part in parts)
