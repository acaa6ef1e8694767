"""How things are put on the screen, or in a file where there is none."""

from __future__ import annotations

from typing import Final

from rich.console import Console, RenderableType

_WIDTH_OF_A_PIPE: Final = 200


def count(number: int, one: str, many: str = "") -> str:
    """Writes a number and its noun: 1 slot, 2 slots; `many` where it is not made with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def bounds(low: float | None, high: float | None) -> str:
    """Writes two rates that something is between, in percent; nothing if they are not known."""
    return "" if low is None or high is None else f"{100 * low:.1f} - {100 * high:.1f}"


def show(renderable: RenderableType, console: Console | None = None) -> None:
    """Prints on standard output, or on a console that is given.

    A pipe has no width to fit into, and lines in a file have no blanks at their end.
    """
    console = console or Console()
    if console.is_terminal:
        console.print(renderable, highlight=False)
        return
    console.width = _WIDTH_OF_A_PIPE
    with console.capture() as captured:
        console.print(renderable, highlight=False, soft_wrap=True)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)
