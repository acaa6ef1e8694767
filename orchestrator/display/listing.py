"""A plain table of words, as commands that list something print it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Column, Table
from rich.text import Text

from sparring.orchestrator.display.screen import show


def print_listing(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Prints rows below their headings; without headings, if they are empty. No word is cut off, however long it is."""
    columns = [Column(heading, overflow="fold") for heading in headings]
    table = Table(
        *columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(headings)
    )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    show(table)
