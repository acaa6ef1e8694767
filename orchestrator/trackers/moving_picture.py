"""A film as a small GIF, for pages that show pictures and no films."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Final

from sparring.orchestrator.results.film_reading import opened_film

_MOST_DECODED: Final = 100_000
"""Pictures of a film that are looked at."""
_MOST_FRAMES: Final = 60
_WIDEST: Final = 256
"""Pixels."""


def moving_picture(path: Path) -> tuple[bytes, int, int] | None:
    """Returns a film as a GIF, with its width and height; None if what reads films is not installed here."""
    try:
        import av  # noqa: F401
        from PIL import Image
    except ModuleNotFoundError:
        return None
    shown: list[Image.Image] = []
    every = 1
    with opened_film(path) as film:
        stream = film.streams.video[0]
        rate = float(stream.average_rate or 20.0)
        # It may be of any length, and of any worker: no more pictures are kept than are shown.
        for number, frame in enumerate(itertools.islice(film.decode(stream), _MOST_DECODED)):
            if number % every:
                continue
            picture = frame.to_image()
            picture.thumbnail((_WIDEST, _WIDEST))
            shown.append(picture)
            if len(shown) > _MOST_FRAMES:
                shown, every = shown[::2], 2 * every
    data = io.BytesIO()
    shown[0].save(
        data, "GIF", save_all=True, append_images=shown[1:], duration=max(20, int(1000 * every / rate)), loop=0
    )
    return data.getvalue(), shown[0].width, shown[0].height
