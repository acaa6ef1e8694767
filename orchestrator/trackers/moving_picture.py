"""A film as a small GIF, for pages that show pictures and no films."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

_MOST_FRAMES: Final = 60
_WIDEST: Final = 256
"""Pixels."""


def moving_picture(path: Path) -> tuple[bytes, int, int] | None:
    """Returns a film as a GIF, with its width and height; None if what reads films is not installed here."""
    try:
        import av
        from PIL import Image
    except ModuleNotFoundError:
        return None
    with av.open(str(path)) as film:
        stream = film.streams.video[0]
        rate = float(stream.average_rate or 20.0)
        pictures = [frame.to_image() for frame in film.decode(stream)]  # type: ignore[no-untyped-call]
    every = -(-len(pictures) // _MOST_FRAMES) or 1
    shown: list[Image.Image] = pictures[::every]
    for picture in shown:
        picture.thumbnail((_WIDEST, _WIDEST))
    data = io.BytesIO()
    shown[0].save(
        data, "GIF", save_all=True, append_images=shown[1:], duration=max(20, int(1000 * every / rate)), loop=0
    )
    return data.getvalue(), shown[0].width, shown[0].height
