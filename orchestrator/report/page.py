"""One HTML file that needs nothing else: it opens from a USB stick, and asks nobody."""

from __future__ import annotations

import base64
import errno
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from sparring.orchestrator.report.content import FILM_TYPES
from sparring.orchestrator.results.files import read_bytes
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError
from sparring.protos.plain_text import plain

MOST_EMBEDDED: Final = 512 * 1024**2
"""Bytes of films in one page; browsers give up on more."""


def report_page(content: dict[str, Any]) -> str:
    """Returns the page that shows a report."""
    return whole_page("report", content, style=["report.css"], script=["parts.js", "report.js"])


def whole_page(name: str, content: dict[str, Any], *, style: Sequence[str], script: Sequence[str]) -> str:
    """Returns a page with all that it needs in it.

    Args:
        name: Of its HTML, in the folder `web`.
        content: What it shows; `title` is its title.
        style: Files of its style.
        script: Files of its script.
    """
    web = files("sparring.orchestrator.report") / "web"
    parts = {
        "{{title}}": escape(plain(str(content["title"]))),
        "{{style}}": "".join((web / file).read_text() for file in style),
        "{{script}}": "".join((web / file).read_text() for file in script),
        "{{content}}": script_json(content),
    }
    # All marks in one go: what is put in for one of them may look like another.
    page = (web / f"{name}.html").read_text()
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
    films[:] = map(Embedding(beside).of, films)


class Embedding:
    """Puts films into a page.

    Args:
        beside: The folder that the page will be in: films are named from there.
    """

    def __init__(self, beside: Path) -> None:
        self._beside = beside
        self._size = 0

    def of(self, address: str) -> str:
        """Returns what stands in a page instead of the address of a film; of none, nothing.

        Raises:
            SparringError: If it cannot be read, or is too much together with those before.
        """
        if not address:
            return ""
        path = self._beside / unquote(address)
        try:
            data = read_bytes(path, MOST_EMBEDDED - self._size)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise SparringError(f"the film {str(path)!r} cannot be read: {error.strerror}.") from error
            raise SparringError(
                f"the films are larger than {MOST_EMBEDDED // 1024**2} MiB together: too much for one page. Leave "
                f"{Hint('embed')} out; the page names them by their path."
            ) from error
        self._size += len(data)
        return f"data:{FILM_TYPES[path.suffix]};base64,{base64.b64encode(data).decode()}"
