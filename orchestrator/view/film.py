"""Films of a run, served from the file that was looked at: its folder may be one where others write."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import BinaryIO, Final

from starlette.datastructures import Headers
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from sparring.orchestrator.report.content import FILM_TYPES
from sparring.orchestrator.results.files import open_inside

_MOST_PARTS: Final = 8
"""Of a film in one answer. Each is read by itself; Starlette before 0.49 takes the square of their number."""


def film_response(root: Path, folder: Path, name: str) -> FilmResponse | None:
    """Returns an answer with a film, whole or in parts; None where there is none.

    Args:
        root: From here on no link is followed.
        folder: Of the run: that one, or one in it.
        name: Of the film in the run's folder; empty: it has none.
    """
    kind = FILM_TYPES.get(PurePath(name).suffix)
    if kind is None:
        return None
    try:
        return FilmResponse(open_inside(root, folder.relative_to(root) / name), kind)
    except (OSError, ValueError):  # the name may be anything, also none that a file can have
        return None


class FilmResponse(FileResponse):
    """An answer with a file that is open already, which is closed then."""

    def __init__(self, file: BinaryIO, kind: str) -> None:
        # By this name the very file is opened again that is open, whatever its own name leads to by now.
        super().__init__(f"/dev/fd/{file.fileno()}", media_type=kind, stat_result=os.fstat(file.fileno()))
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; whoever asks for more parts than browsers do gets the whole."""
        if Headers(scope=scope).get("range", "").count(",") >= _MOST_PARTS:
            scope = {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"range"]}
        with self._file:
            await super().__call__(scope, receive, send)
