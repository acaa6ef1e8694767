"""Results where they are only looked at: in an interpreter as text, in a notebook as HTML."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape

from rich.console import Console, Group
from rich.text import Text

from sparring.orchestrator.display.lines import (
    MOST_TASKS,
    cautions,
    counts,
    errors_left_out,
    headings,
    mean_lines,
    result_lines,
)
from sparring.orchestrator.display.screen import show
from sparring.orchestrator.display.table import results_table
from sparring.orchestrator.display.title import results_title, status
from sparring.orchestrator.results.results import Results
from sparring.protos.plain_text import plain


def results_text(results: Results) -> str:
    """Returns the table as plain text, with what the run was above it."""
    file = io.StringIO()
    above = Text(f"{results_title(results)}\n{status(results)}\n")
    console = Console(file=file, force_jupyter=False, force_terminal=False, color_system=None)
    show(Group(above, results_table(results, MOST_TASKS)), console)
    return file.getvalue().rstrip("\n")


def results_html(results: Results) -> str:
    """Returns the table as HTML; what comes from tasks, policies and errors is escaped."""
    rows = [
        html_row([line.name, *line.cells], level=line.level)
        for line in result_lines(results, MOST_TASKS)
        if line.level != "gap"
    ]
    means = [html_row(cells) for cells in mean_lines(results)]
    below = [*counts(results), *cautions(results), *filter(None, [errors_left_out(results)])]
    return "\n".join(
        [
            "<div>",
            f"<p>{html_text(results_title(results))}<br>{html_text(status(results))}</p>",
            *html_table(["task", *headings(results)], rows),
            *(html_table(["mean of", "n", "", "95 % interval"], means) if means else []),
            f"<p>{'<br>'.join(map(html_text, below))}</p>",
            "</div>",
        ]
    )


def html_table(titles: Sequence[str], rows: Iterable[str]) -> list[str]:
    """Returns a table of rows, by lines; titles are text."""
    head = "".join(f"<th>{html_text(title)}</th>" for title in titles)
    return ["<table>", f"<thead><tr>{head}</tr></thead>", "<tbody>", *rows, "</tbody>", "</table>"]


def html_row(cells: Sequence[str], level: str = "", color: str = "") -> str:
    """Returns a row of a table; cells are text, of an important `level` in bold."""
    strong = level in ("benchmark", "overall")
    texts = [f"<b>{html_text(cell)}</b>" if strong else html_text(cell) for cell in cells]
    style = f' style="color: {color}"' if color else ""
    return f"<tr{style}>{''.join(f'<td>{text}</td>' for text in texts)}</tr>"


def html_text(text: str) -> str:
    """Returns a text as text, whatever is in it."""
    return escape(plain(text.strip()))
