"""Tables of figures that are never cut off, however narrow the screen is."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_NARROW: Final = 7
_LONGEST_WORD: Final = 10
_ENDLESS: Final = 10_000


class FigureTable:
    """A line of figures for each task, and one for all of them, after a gap.

    Where that is wider than the terminal, each label has a line of its own, above its figures.

    Args:
        headings: Of the columns after the first, whose is "task".
        rows: Of each task its label, its figures, and a style.
        overall: Figures of all of them.
    """

    def __init__(
        self, headings: Sequence[str], rows: Sequence[tuple[str, Sequence[str], str]], overall: Sequence[str]
    ) -> None:
        self._headings = headings
        self._rows = rows
        self._overall = overall

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        needed = Measurement.get(console, options.update(width=_ENDLESS), table).maximum
        if console.is_terminal and needed > options.max_width:
            yield from self._stacked()
        else:
            yield table

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("task", no_wrap=True)
        for heading in self._headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for label, cells, style in self._rows:
            table.add_row(Text(label), *cells, style=style)
        table.add_section()
        table.add_row()
        table.add_row("overall", *self._overall, style="bold")
        return table

    def _stacked(self) -> RenderResult:
        lines = [*(cells for _, cells, _ in self._rows), self._overall]
        figures = [max(map(len, column)) for column in zip(*lines, strict=True)]
        folded = [_folded(heading, width) for heading, width in zip(self._headings, figures, strict=True)]
        widths = [max(width, *map(len, heading)) for width, heading in zip(figures, folded, strict=True)]

        def line(cells: Sequence[str]) -> str:
            return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

        height = max(map(len, folded))
        headings = zip(*([""] * (height - len(heading)) + heading for heading in folded), strict=True)
        yield from (Text(line(cells), style="bold") for cells in headings)
        for label, cells, style in self._rows:
            yield Text(f"{label}\n{line(cells)}", style=style)
        yield Text(f"\noverall\n{line(self._overall)}", style="bold")


def _folded(heading: str, width: int) -> list[str]:
    """Returns the lines of a heading over figures of a width; a word is broken only if it is a long one."""
    pieces = textwrap.wrap(heading, max(width, _NARROW), break_long_words=False)
    return [line for piece in pieces for line in textwrap.wrap(piece, max(width, _LONGEST_WORD))]
