"""What an episode began with: the first picture of its film, small enough to stand in a page."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Final

from sparring.orchestrator.results.film_reading import opened_film
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.installing import install_command

_WIDEST: Final = 192
"""Pixels."""
_QUALITY: Final = 70

FEWEST_FRAMES: Final = pb.FilmStyle(fps=1e-4, steps=[0])
"""A film of what an episode began with; workers of an older image show its end, too."""


def check_frames() -> None:
    """Checks that films can be read here.

    Raises:
        UsageError: If what reads them is not installed.
    """
    try:
        import av  # noqa: F401
        import PIL.Image  # noqa: F401
    except ModuleNotFoundError as error:
        how = install_command("report") or "pip install av pillow"
        raise UsageError(f"first frames need {error.name}; install what reads films: {how}") from None


def first_frame(film: Path) -> str:
    """Returns the first picture of a film as an address that has it inside.

    Raises:
        SparringError: If it cannot be read.
    """
    import av

    try:
        with opened_film(film) as opened:
            picture = next(opened.decode(video=0)).to_image()
    except (OSError, StopIteration, av.FFmpegError, ValueError, IndexError) as error:
        raise SparringError(f"the film {str(film)!r} cannot be read: {error}.") from error
    picture.thumbnail((_WIDEST, _WIDEST))
    data = io.BytesIO()
    picture.convert("RGB").save(data, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"
