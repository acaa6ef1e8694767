"""Films of runs, opened to be read: whoever made them may be anybody, and libraries follow what a file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.results.files import open_regular

_FORMATS: Final[Mapping[str, str]] = {".gif": "gif", ".mp4": "mp4", ".webm": "webm"}
"""What films are read as, by the ending of their names."""
_MOST_PIXELS: Final = 1 << 25
"""Of one picture: that of an mp4 of some bytes may take a gigabyte."""


@contextmanager
def opened_film(path: Path) -> Iterator[Any]:
    """Opens a film as PyAV's container, by the ending of its name and nothing else.

    A playlist would be found out whatever it is called, and further files read that it names: an open file of a known
    format leads nowhere.

    Raises:
        OSError: If it is no regular file.
        ValueError: If it is no film, or its pictures are too large.
        av.FFmpegError: If it cannot be read.
    """
    import av

    format = _FORMATS.get(path.suffix)
    if format is None:
        raise ValueError(f"films do not end with {path.suffix!r}")
    with open_regular(path) as file, av.open(file, "r", format=format) as film:
        if not film.streams.video:
            raise ValueError("it has no pictures")
        stream = film.streams.video[0]
        size = f"{stream.width} x {stream.height} pixels"
        if stream.width * stream.height > _MOST_PIXELS:
            raise ValueError(f"it has pictures of {size}, and more than {_MOST_PIXELS:,} are not read")
        yield film
