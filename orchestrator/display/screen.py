"""How things are put on the screen, or in a file where there is none."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from typing import IO, Any, Final, cast

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from sparring.protos.plain_text import plain

_WIDTH_OF_A_PIPE: Final = 200


def count(number: int, one: str, many: str = "") -> str:
    """Writes a number and its noun: 1 slot, 2 slots; `many` where it is not made with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def bounds(low: float | None, high: float | None) -> str:
    """Writes two rates that something is between, in percent; nothing if they are not known."""
    return "" if low is None or high is None else f"{100 * low:.1f} - {100 * high:.1f}"


def numbers(values: Sequence[float]) -> list[str]:
    """Writes numbers that belong together, all with the same digits: four of the largest, or a few more."""
    largest = max(map(abs, values))
    if largest >= 1e9 or 0 < largest < 1e-4:
        return [f"{value:.3e}" for value in values]
    digits = 0 if largest >= 1000 else 3 - math.floor(math.log10(largest)) if largest else 1
    return [f"{value + 0.0:.{digits}f}" for value in values]


class LastingStream:
    """A stream that whoever writes to it may take for granted: if it is closed, broken or full, nothing is said.

    What is shown of a run is not the run: it goes on when nobody can see it.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes, if that is possible."""
        try:
            return len(text) if self._stream is None else self._stream.write(text)
        except (OSError, ValueError):  # broken, full, or closed
            return len(text)

    def flush(self) -> None:
        """Passes on what was written, if that is possible."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            return

    def isatty(self) -> bool:
        """Returns whether it is a terminal."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def error_console() -> Console:
    """Makes a console on standard error that takes no run down, whatever becomes of standard error."""
    stream = LastingStream(sys.stderr)
    # In a notebook, rich would put everything into cells of its own, from whichever thread: text is text there, too.
    # And kernels ask for colours (FORCE_COLOR), from which rich concludes that there is a cursor to move.
    return Console(file=cast("IO[str]", stream), force_jupyter=False, force_terminal=None if stream.isatty() else False)


class ConsoleHandler(logging.Handler):
    """Prints log lines above a live display. They are not broken: a command in one can be copied from the terminal.

    Args:
        console: Of the display.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line."""
        self._console.print(Text(self.format(record)), soft_wrap=True, highlight=False)


class Plain:
    """Something on the screen whose text has no control characters of its own: they are written out.

    What is shown may be from anywhere: tasks of a plug-in, errors of a policy, the results of somebody else.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def show(renderable: RenderableType, console: Console | None = None) -> None:
    """Prints on standard output, or on a console that is given.

    A pipe has no width to fit into, and lines in a file have no blanks at their end.
    """
    console = console or Console()
    renderable = Plain(renderable)
    if console.is_terminal:
        console.print(renderable, highlight=False)
        return
    console.width = _WIDTH_OF_A_PIPE
    with console.capture() as captured:
        console.print(renderable, highlight=False, soft_wrap=True)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)
