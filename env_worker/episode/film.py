"""Films of episodes: frames in, an mp4 out."""

from __future__ import annotations

import io
from typing import Any

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator, Step
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array


class Film(EpisodeObserver):
    """Films an episode through its simulator's camera: every `stride`-th frame, compressed as it goes.

    Args:
        simulator: Whose camera.
        fps: Frames per simulated second that are wanted; never more than there are steps.

    Raises:
        SparringError: If the simulator has no camera.
    """

    def __init__(self, simulator: Simulator, *, fps: float) -> None:
        if simulator.camera is None:
            render = Hint("benchmark_arg", "render", True)
            raise SparringError(f"this simulator offers no camera to film with (for gym: {render}).")
        control_hz = simulator.offers.control_hz
        self.stride = max(1, round(control_hz / fps)) if control_hz > 0 else 1
        self.mp4 = b""
        """The film, when the episode has ended."""
        self._camera = simulator.camera
        self._looks = frozenset({simulator.camera})
        self._encoder = _Encoder(max(1, round(control_hz / self.stride)) if control_hz > 0 else round(fps))

    def looks(self, step: int) -> Names:
        return self._looks if step % self.stride == 0 else NOTHING

    def on_reset(self, observation: Observation) -> None:
        self._encoder.add(observation[self._camera])

    def on_step(self, step: int, action: Array, result: Step) -> None:
        if step % self.stride == 0:
            self._encoder.add(result.observation[self._camera])

    def on_end(self, record: EpisodeRecord) -> None:
        self.mp4 = self._encoder.finish()


class _Encoder:
    """Makes an mp4 of frames, all of one size.

    Args:
        rate: Frames per second.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._buffer = io.BytesIO()
        self._container: Any = None
        self._stream: Any = None

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
        """Returns the mp4. There must have been a frame."""
        for packet in self._stream.encode():
            self._container.mux(packet)
        self._container.close()
        return self._buffer.getvalue()
