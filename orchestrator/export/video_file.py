"""Videos of a data set: the images of many episodes in one mp4, any of which is quickly found again."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from sparring.protos.tensor import Array

QUALITY: Final = 12
"""H.264's constant rate factor: the loss is hardly to be seen."""
_KEY_FRAMES: Final = 2
"""Every so many images one that needs no other: who trains reads them in any order."""


class VideoFile:
    """An mp4 that grows image by image.

    Args:
        path: Where it is written; its folder is made.
        fps: Images per second.
        height: Of all images.
        width: Of all images.
    """

    def __init__(self, path: Path, *, fps: float, height: int, width: int) -> None:
        import av

        path.parent.mkdir(parents=True, exist_ok=True)
        rate = Fraction(fps).limit_denominator(1000)
        self.count = 0
        """Images so far."""
        self.size = 0
        """Bytes so far, without those that the encoder still holds."""
        # H.264 halves the sides of its colours, so that odd ones are kept only where it does not.
        self.pixels = "yuv444p" if height % 2 or width % 2 else "yuv420p"
        self._container: Any = av.open(str(path), mode="w", format="mp4")
        self._stream: Any = self._container.add_stream("libx264", rate=rate)
        self._stream.height, self._stream.width, self._stream.pix_fmt = height, width, self.pixels
        self._stream.codec_context.time_base = 1 / rate
        self._stream.options = {
            "crf": str(QUALITY),
            "preset": "veryfast",
            "threads": "1",
            "g": str(_KEY_FRAMES),
            "bf": "0",  # images in the order of their times, and the first one at zero
        }

    def add(self, image: Array, *, first: bool) -> None:
        """Adds an image: uint8 (height, width, 3).

        Args:
            image: It.
            first: Whether an episode begins with it, so that none before it is needed.
        """
        import av

        picture = av.VideoFrame.from_ndarray(image, format="rgb24")
        picture.pts, picture.time_base = self.count, self._stream.codec_context.time_base
        if first:
            picture.pict_type = av.video.frame.PictureType.I
        self._mux(picture)
        self.count += 1

    def close(self) -> None:
        """Writes what is left; it can be read from now on."""
        self._mux(None)
        self._container.close()

    def _mux(self, picture: Any) -> None:
        for packet in self._stream.encode(picture):
            self.size += packet.size
            self._container.mux(packet)
