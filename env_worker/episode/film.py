"""Films of episodes: frames in, an mp4 out."""

from __future__ import annotations

import io
from typing import Any

from sparring.protos.errors import SparringError
from sparring.protos.tensor import Array


class Film:
    """Collects every `stride`-th frame of an episode, compressing as it goes.

    Args:
        control_hz: Simulator steps per second.
        fps: Frames per simulated second that are wanted; never more than there are steps.
    """

    def __init__(self, *, control_hz: float, fps: float) -> None:
        self.stride = max(1, round(control_hz / fps)) if control_hz > 0 else 1
        self._rate = max(1, round(control_hz / self.stride)) if control_hz > 0 else round(fps)
        self._buffer = io.BytesIO()
        self._container: Any = None
        self._stream: Any = None

    def wants(self, step: int) -> bool:
        """Whether the frame of this step belongs in the film."""
        return step % self.stride == 0

    def add(self, frame: Array) -> None:
        """Adds a frame: uint8 (height, width, 3)."""
        import av

        if self._container is None:
            height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2  # H.264 wants even sides
            self._container = av.open(self._buffer, mode="w", format="mp4")
            self._stream = self._container.add_stream("libx264", rate=self._rate)
            self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
            self._stream.options = {"crf": "23", "preset": "veryfast", "threads": "1"}
        picture = av.VideoFrame.from_ndarray(frame[: self._stream.height, : self._stream.width], format="rgb24")
        for packet in self._stream.encode(picture):
            self._container.mux(packet)

    def finish(self) -> bytes:
        """The mp4.

        Raises:
            SparringError: If there was not a single frame.
        """
        if self._container is None:
            raise SparringError("the film has no frame.")
        for packet in self._stream.encode():
            self._container.mux(packet)
        self._container.close()
        return self._buffer.getvalue()
