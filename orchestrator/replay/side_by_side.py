"""Pictures of one step of two films, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sparring.protos.tensor import Array


def frames_of(film: Path, steps: Sequence[int]) -> list[Array]:
    """Returns the frames of some steps, the last one where it has ended by then.

    Args:
        film: Of these steps alone; or of the reset and every step, as workers of an older image make it.
        steps: Which, in their order.
    """
    import av

    with av.open(str(film)) as file:
        count = sum(1 for packet in file.demux(video=0) if packet.size)
    places = steps if count > len(steps) else range(len(steps))
    wanted = [min(place, count - 1) for place in places]
    with av.open(str(film)) as file:
        found = {n: f.to_ndarray(format="rgb24") for n, f in enumerate(file.decode(video=0)) if n in wanted}
    return [found[place] for place in wanted]


def labelled(picture: Array, label: str) -> Array:
    """Returns a picture with a letter in its upper right corner."""
    from PIL import Image, ImageDraw, ImageFont

    size = max(12, min(picture.shape[:2]) // 20)
    image = Image.fromarray(np.ascontiguousarray(picture))
    draw, side, width = ImageDraw.Draw(image), round(1.6 * size), image.width
    draw.rectangle((width - side, 0, width, side), fill=(24, 24, 24))
    where = (width - side // 2, side // 2)
    draw.text(where, label, (230, 230, 230), font=ImageFont.load_default(size), anchor="mm")
    return np.asarray(image)


def write_png(path: Path, rows: Sequence[Sequence[Array]], *, gap: int = 4) -> None:
    """Writes pictures in rows, with white between them, and around those that are smaller than others."""
    import av

    height, width = (max(picture.shape[side] for row in rows for picture in row) for side in (0, 1))
    wide = len(rows[0])
    sheet = np.full((len(rows) * (height + gap) - gap, wide * (width + gap) - gap, 3), 255, np.uint8)
    for down, row in enumerate(rows):
        for right, picture in enumerate(row):
            top, left = down * (height + gap), right * (width + gap)
            sheet[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    encoder: Any = av.CodecContext.create("png", "w")
    encoder.height, encoder.width, encoder.pix_fmt = sheet.shape[0], sheet.shape[1], "rgb24"
    encoder.time_base = Fraction(1)
    whole = av.VideoFrame.from_ndarray(sheet, format="rgb24")
    whole.pts = 0
    path.write_bytes(b"".join(bytes(packet) for packet in [*encoder.encode(whole), *encoder.encode(None)]))
