"""Films of episodes: frames in, an mp4 out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator, Step
from sparring.env_worker.episode.array_spool import temporary_file
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.pieces import MOST_BYTES, AttachmentMissing, check_size, size_of
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array


class Film(EpisodeObserver):
    """Films an episode through its simulator's camera: every `stride`-th frame, compressed as it goes.

    Args:
        simulator: Whose camera.
        fps: Frames per simulated second that are wanted; never more than there are steps.
        most: How many bytes it may have; a larger one is given up, and the episode counts.

    Raises:
        UsageError: If the simulator has no camera.
    """

    def __init__(self, simulator: Simulator, *, fps: float, most: int = MOST_BYTES) -> None:
        check_camera(simulator)
        assert simulator.camera is not None
        control_hz = simulator.offers.control_hz
        self.stride = max(1, round(control_hz / fps)) if control_hz > 0 else 1
        self.file: BinaryIO | None = None
        """An mp4, when the episode has ended; None if there is none."""
        self.missing = ""
        """Why there is none, in a sentence."""
        self._most = most
        self._camera = simulator.camera
        self._looks = frozenset({simulator.camera})
        self._encoder = _Encoder(max(1, round(control_hz / self.stride)) if control_hz > 0 else round(fps))

    def looks(self, step: int) -> Names:
        return self._looks if step % self.stride == 0 else NOTHING

    def on_reset(self, observation: Observation) -> None:
        self._add(observation[self._camera])

    def on_step(self, step: int, action: Array, result: Step) -> None:
        if step % self.stride == 0:
            self._add(result.observation[self._camera])

    def on_end(self, record: EpisodeRecord) -> None:
        if self.missing:
            return
        with self._or_missing():
            self.file = self._encoder.finish()
            check_size("video", size_of(self.file), self._most)

    def close(self) -> None:
        """Frees the disk."""
        self._encoder.close()
        self.file = None

    def _add(self, frame: Array) -> None:
        if not self.missing:
            with self._or_missing():
                self._encoder.add(frame)

    @contextmanager
    def _or_missing(self) -> Iterator[None]:
        try:
            yield
        except AttachmentMissing as error:
            self.missing = error.sentence
            self.close()


def check_camera(simulator: Simulator) -> None:
    """Checks that a simulator can be filmed.

    Raises:
        UsageError: If it has no camera.
    """
    if simulator.camera is None:
        render = Hint("benchmark_arg", "render", True)
        raise UsageError(
            f"films were asked for ({Hint('video')}), and this simulator offers no camera to film with "
            f"(for gym: {render})."
        )


class _Encoder:
    """Makes an mp4 of frames, all of one size.

    Args:
        rate: Frames per second.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._file: BinaryIO | None = None
        self._container: Any = None
        self._stream: Any = None

    def add(self, frame: Array) -> None:
        """Adds a frame: uint8 (height, width, 3)."""
        import av

        if self._container is None:
            height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2  # H.264 wants even sides
            self._file = temporary_file()
            self._container = av.open(self._file, mode="w", format="mp4")
            self._stream = self._container.add_stream("libx264", rate=self._rate)
            self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
            self._stream.options = {"crf": "23", "preset": "veryfast", "threads": "1"}
        picture = av.VideoFrame.from_ndarray(frame[: self._stream.height, : self._stream.width], format="rgb24")
        for packet in self._stream.encode(picture):
            self._container.mux(packet)

    def finish(self) -> BinaryIO:
        """Returns the mp4. There must have been a frame."""
        for packet in self._stream.encode():
            self._container.mux(packet)
        self._container.close()
        assert self._file is not None
        return self._file

    def close(self) -> None:
        """Frees the disk."""
        if self._file is not None:
            self._file.close()
