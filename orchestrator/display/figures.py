"""Tables of figures that are never cut off, however narrow the screen is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_NARROW: Final = 7
_LONGEST_WORD: Final = 10
_ENDLESS: Final = 10_000


class FigureTable:
    """A label and its figures in each line.

    Where that is wider than the terminal, each label has a line of its own, above its figures.

    Args:
        first: Heading of the labels.
        headings: Of the figures.
    """

    def __init__(self, first: str, headings: Sequence[str]) -> None:
        self._first = first
        self._headings = headings
        self._rows: list[tuple[str, list[Text], str]] = []

    @classmethod
    def of_tasks(
        cls, headings: Sequence[str], rows: Iterable[tuple[str, Sequence[str], str]], overall: Sequence[str]
    ) -> FigureTable:
        """Makes a table with a line for each task, and one for all of them, after a gap.

        Args:
            headings: Of the figures.
            rows: Of each task its label, its figures, and a style.
            overall: Figures of all of them.
        """
        table = cls("task", headings)
        for label, cells, style in rows:
            table.add_row(label, cells, style)
        table.add_row()
        table.add_row("overall", overall, "bold")
        return table

    @property
    def row_count(self) -> int:
        """How many lines it has."""
        return len(self._rows)

    def add_row(self, label: str = "", cells: Sequence[str | Text] = (), style: str = "") -> None:
        """Adds a line, which may have fewer figures than there are headings; without a label it is a gap."""
        texts = [cell if isinstance(cell, Text) else Text(cell) for cell in cells]
        self._rows.append((label, texts + [Text()] * (len(self._headings) - len(texts)), style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        needed = Measurement.get(console, options.update(width=_ENDLESS), table).maximum
        if console.is_terminal and needed > options.max_width:
            yield from self._stacked()
        else:
            yield table

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column(self._first, no_wrap=True)
        for heading in self._headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for label, cells, style in self._rows:
            table.add_row(Text(label), *cells, style=style)
        return table

    def _stacked(self) -> RenderResult:
        figures = [
            max(map(len, column), default=0) for column in zip(*(cells for _, cells, _ in self._rows), strict=True)
        ]
        folded = [_folded(heading, width) for heading, width in zip(self._headings, figures, strict=True)]
        widths = [max(width, *map(len, heading), 0) for width, heading in zip(figures, folded, strict=True)]

        def line(cells: Iterable[Text], style: str) -> Text:
            padded = (Text(" " * (width - len(cell))) + cell for cell, width in zip(cells, widths, strict=True))
            joined = Text("  ", style=style).join(padded)
            joined.rstrip()
            return joined

        height = max(map(len, folded))
        for words in zip(*([""] * (height - len(heading)) + heading for heading in folded), strict=True):
            yield line(map(Text, words), "bold")
        for label, cells, style in self._rows:
            yield Text(label, style=style)
            if any(cells):
                yield line(cells, style)


def _folded(heading: str, width: int) -> list[str]:
    """Returns the lines of a heading over figures of a width; a word is broken only if it is a long one."""
    pieces = textwrap.wrap(heading, max(width, _NARROW), break_long_words=False)
    return [line for piece in pieces for line in textwrap.wrap(piece, max(width, _LONGEST_WORD))]
