"""One HTML file that needs nothing else: it opens from a USB stick, and asks nobody."""

from __future__ import annotations

import base64
import json
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from sparring.orchestrator.report.content import FILM_TYPES
from sparring.protos.errors import SparringError
from sparring.protos.plain_text import plain

MOST_EMBEDDED: Final = 512 * 1024**2
"""Bytes of films in one page; browsers give up on more."""


def report_page(content: dict[str, Any]) -> str:
    """Returns the page that shows a report."""
    web = files("sparring.orchestrator.report") / "web"
    parts = {
        "{{title}}": escape(plain(str(content["title"]))),
        "{{style}}": (web / "report.css").read_text(),
        "{{script}}": (web / "report.js").read_text(),
        "{{content}}": script_json(content),
    }
    # All marks in one go: what is put in for one of them may look like another.
    page = (web / "report.html").read_text()
    return re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], page)


def script_json(content: Any) -> str:
    """Returns JSON that can stand inside a script element, whatever names and sentences are in it."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    # `</script>` and `<!--` mean something to a parser of HTML, and the two separators ended lines in old JavaScript.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def embed_films(content: dict[str, Any], beside: Path) -> None:
    """Puts the films of a report into it, instead of their addresses.

    Raises:
        SparringError: If one cannot be read, or they are too large together.
    """
    films = content["episodes"]["film"]
    size = 0
    for at, address in enumerate(films):
        if not address:
            continue
        path = beside / unquote(address)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SparringError(f"the film {str(path)!r} cannot be read: {error.strerror}.") from error
        size += len(data)
        if size > MOST_EMBEDDED:
            raise SparringError(
                f"the films are larger than {MOST_EMBEDDED // 1024**2} MiB together: too much for one page. Leave "
                "--embed out; the page names them by their path."
            )
        films[at] = f"data:{FILM_TYPES[path.suffix]};base64,{base64.b64encode(data).decode()}"
