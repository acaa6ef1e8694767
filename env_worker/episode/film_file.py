"""Files that films are in: frames in, an mp4 or an animated GIF out, on the worker's disk."""

from __future__ import annotations

import importlib
from typing import Any, BinaryIO, Protocol

import numpy as np

from sparring.env_worker.episode.array_spool import temporary_file
from sparring.protos.pieces import AttachmentMissing
from sparring.protos.tensor import Array


class FilmFile(Protocol):
    """What frames are added to, all of one size."""

    def add(self, frame: Array) -> None:
        """Adds a frame: uint8 (height, width, 3)."""

    def finish(self) -> BinaryIO:
        """Returns the file. There must have been a frame."""

    def close(self) -> None:
        """Frees the disk."""


class Mp4File:
    """An mp4, compressed as it goes.

    Args:
        rate: Frames per second.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._file: BinaryIO | None = None
        self._container: Any = None
        self._stream: Any = None

    def add(self, frame: Array) -> None:
        """Adds a frame.

        Raises:
            AttachmentMissing: If there is no more room on the disk, or PyAV is not installed.
        """
        av = film_library("av", "av")
        if self._container is None:
            height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2  # H.264 wants even sides
            self._file = temporary_file()
            self._container = av.open(self._file, mode="w", format="mp4")
            self._stream = self._container.add_stream("libx264", rate=self._rate)
            self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
            self._stream.options = {"crf": "23", "preset": "veryfast", "threads": "1"}
        picture = av.VideoFrame.from_ndarray(frame[: self._stream.height, : self._stream.width], format="rgb24")
        self._mux(picture)

    def finish(self) -> BinaryIO:
        """Returns the mp4."""
        self._mux(None)
        try:
            self._container.close()
        except OSError as error:
            raise _not_written(error) from error
        assert self._file is not None
        return self._file

    def close(self) -> None:
        """Frees the disk."""
        if self._file is not None:
            self._file.close()

    def _mux(self, picture: Any) -> None:
        try:
            for packet in self._stream.encode(picture):
                self._container.mux(packet)
        except OSError as error:
            raise _not_written(error) from error


class GifFile:
    """An animated GIF: each frame has a palette of its own. They are in memory until the end, a byte for each pixel.

    Args:
        rate: Frames per second.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._frames: list[Any] = []
        self._file: BinaryIO | None = None

    def add(self, frame: Array) -> None:
        """Adds a frame.

        Raises:
            AttachmentMissing: If Pillow is not installed.
        """
        image = film_library("PIL.Image", "pillow")
        picture = image.fromarray(np.ascontiguousarray(frame))
        # Pillow's own choice, median cut, gives small bright things the colour of what is around them.
        palette = picture.quantize(256, method=image.Quantize.FASTOCTREE)
        self._frames.append(picture.quantize(palette=palette, dither=image.Dither.FLOYDSTEINBERG))

    def finish(self) -> BinaryIO:
        """Returns the GIF."""
        self._file = temporary_file()
        first, *rest = self._frames
        milliseconds = max(20, round(1000 / self._rate))  # viewers slow down what is quicker
        try:
            first.save(self._file, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
        except OSError as error:
            raise _not_written(error) from error
        return self._file

    def close(self) -> None:
        """Frees memory and disk."""
        self._frames.clear()
        if self._file is not None:
            self._file.close()


def film_library(module: str, package: str) -> Any:
    """Imports what writes films, which the Python of a worker may lack: an image of somebody's own, for example.

    Raises:
        AttachmentMissing: If it is not there, or does not work.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise AttachmentMissing(
            f"films need {package}, which the Python of the worker has not ({error}); install it there: "
            f"pip install {package}"
        ) from error


def _not_written(error: OSError) -> AttachmentMissing:
    return AttachmentMissing(f"it could not be written on the worker: {error.strerror or error}.")
