"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; what would end a cell is written out."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in lines
    )


def code(text: object) -> str:
    """Returns text as it is typed; nothing if there is none."""
    return f"`{text}`" if str(text) else ""


def prose(text: str) -> str:
    """Returns a help text so that nothing in it is taken for Markdown or HTML."""
    for letter in "\\*_<>[]":
        text = text.replace(letter, f"\\{letter}" if letter not in "<>" else {"<": "&lt;", ">": "&gt;"}[letter])
    return text
