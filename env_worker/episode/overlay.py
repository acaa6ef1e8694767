"""The overlay of a film: which episode it is, and how far, in a strip under the picture, where it hides nothing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sparring.env_worker.episode.film_file import film_library
from sparring.protos.tensor import Array

_NARROWEST: Final = 240
"""Pixels; narrower pictures are enlarged by a whole factor, or nothing could be read under them."""
_BACKGROUND: Final = (24, 24, 24)
_COLORS: Final = {"plain": (230, 230, 230), "success": (120, 220, 120)}


class Overlay:
    """Writes two lines under frames.

    Args:
        title: The first line: task and number of the episode, and what is seen.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._fonts: dict[int, Any] = {}

    def under(self, frame: Array, *, step: int, reward: float | None, success: bool | None) -> Array:
        """Returns a frame with the strip.

        Args:
            frame: uint8 (height, width, 3).
            step: How many have been made.
            reward: Of the last of them; None: there was none.
            success: Whether the task is done by now; None: that is not known.

        Raises:
            AttachmentMissing: If Pillow is not installed.
        """
        image, image_draw = (film_library(f"PIL.{name}", "pillow") for name in ("Image", "ImageDraw"))
        factor = -(-_NARROWEST // frame.shape[1])
        frame = np.repeat(np.repeat(frame, factor, axis=0), factor, axis=1) if factor > 1 else frame
        height, width = frame.shape[:2]
        size = max(12, min(width, height) // 26)  # smaller letters run into each other
        strip = image.new("RGB", (width, round(2.9 * size)), _BACKGROUND)
        draw = image_draw.Draw(strip)
        font = self._font(size)
        told = f"step {step}" + ("" if reward is None else f"   reward {reward:.3g}")
        draw.text((size // 2, size // 4), self._title, _COLORS["plain"], font=font)
        draw.text((size // 2, round(1.5 * size)), told, _COLORS["plain"], font=font)
        if success is not None:
            word, color = ("success", "success") if success else ("no success", "plain")
            draw.text((width - size // 2, round(1.5 * size)), word, _COLORS[color], font=font, anchor="ra")
        return np.concatenate([frame, np.asarray(strip)])

    def _font(self, size: int) -> Any:
        if size not in self._fonts:
            self._fonts[size] = film_library("PIL.ImageFont", "pillow").load_default(size)
        return self._fonts[size]
