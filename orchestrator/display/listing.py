"""A plain table of words, as commands that list something print it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from sparring.orchestrator.display.screen import show


def print_listing(headings: tuple[str, ...], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows below their headings; without headings, if they are empty."""
    table = Table(
        *headings, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(headings)
    )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    show(table)
