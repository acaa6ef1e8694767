"""Films of episodes: what cameras see, side by side, into an mp4 or a GIF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator, Step
from sparring.env_worker.episode.attachment import Attachment
from sparring.env_worker.episode.film_file import FilmFile, GifFile, Mp4File
from sparring.env_worker.episode.overlay import Overlay
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.pieces import MOST_BYTES, check_size, size_of
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array


@dataclass(frozen=True)
class FilmLook:
    """How a film looks.

    Attributes:
        cameras: Observations of images, or cameras of the simulator, side by side; empty: the simulator's own.
        title: What an overlay says first; empty: there is no overlay.
        gif: Whether it is an animated GIF, and no mp4.
        steps: That are shown; empty: every so many.
    """

    cameras: Sequence[str] = ()
    title: str = ""
    gif: bool = False
    steps: Sequence[int] = ()

    @classmethod
    def of(cls, style: pb.FilmStyle, title: str) -> FilmLook:
        """Reads what a lease asks for; the title is that of an overlay, if one is wanted."""
        return cls(tuple(style.cameras), title if style.overlay else "", style.gif, tuple(style.steps))


class Film(Attachment):
    """Films an episode, every `stride`-th frame, into an mp4 or a GIF.

    Args:
        simulator: Whose cameras.
        fps: Frames per simulated second that are wanted; never more than there are steps.
        look: How it looks.
        last: The step that the episode ends with, where that is known: its end is seen, whatever the stride.
        most: How many bytes it may have; a larger one is given up, and the episode counts.

    Raises:
        UsageError: If the simulator has no camera, or none of that name.
    """

    def __init__(
        self, simulator: Simulator, *, fps: float, look: FilmLook | None = None, last: int = 0, most: int = MOST_BYTES
    ) -> None:
        super().__init__()
        look = look or FilmLook()
        check_camera(simulator)
        assert simulator.camera is not None
        self._views = [_view(simulator, name) for name in look.cameras or [simulator.camera]]
        self._looks = frozenset(look.cameras or [simulator.camera]) & simulator.offers.observations.keys()
        control_hz = simulator.offers.control_hz
        self.stride = max(1, round(control_hz / fps)) if control_hz > 0 else 1
        self._last = last
        self._steps = frozenset(min(step, last) if last else step for step in look.steps)
        self._most = most
        self._overlay = Overlay(look.title) if look.title else None
        self._success: bool | None = None
        rate = max(1, round(control_hz / self.stride)) if control_hz > 0 else max(1, round(fps))
        self._film: FilmFile = GifFile(rate) if look.gif else Mp4File(rate)

    def looks(self, step: int) -> Names:
        return self._looks if self._is_shown(step) else NOTHING

    def on_reset(self, observation: Observation) -> None:
        if self._is_shown(0):
            self._add(observation, 0, None)

    def on_step(self, step: int, action: Array, result: Step) -> None:
        if result.success is not None:
            self._success = bool(self._success) or result.success
        if self._is_shown(step):
            self._add(result.observation, step, result.reward)

    def on_end(self, record: EpisodeRecord) -> None:
        if self.missing:
            return
        with self._or_missing():
            self.file = self._film.finish()
            check_size("video", size_of(self.file), self._most)

    def close(self) -> None:
        self._film.close()
        self.file = None

    def _is_shown(self, step: int) -> bool:
        return step in self._steps if self._steps else step % self.stride == 0 or step == self._last

    def _add(self, observation: Observation, step: int, reward: float | None) -> None:
        if self.missing:
            return
        with self._or_missing():
            frame = _side_by_side([view(observation) for view in self._views])
            if self._overlay is not None:
                frame = self._overlay.under(frame, step=step, reward=reward, success=self._success)
            self._film.add(frame)


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


def _view(simulator: Simulator, name: str) -> Callable[[Observation], Array]:
    """Returns what makes a frame of a camera."""
    images = sorted(
        seen
        for seen, spec in simulator.offers.observations.items()
        if spec.dtype == "uint8" and len(spec.shape or ()) == 3 and (spec.shape or ())[-1] == 3
    )
    if name in images:
        return lambda observation: observation[name]
    if name in simulator.cameras:
        return lambda observation: simulator.picture(name)
    there = ", ".join([*images, *simulator.cameras])
    raise UsageError(f"there is no camera {name!r} here. There are: {there}.")


def _side_by_side(frames: Sequence[Array]) -> Array:
    if len(frames) == 1:
        return frames[0]
    height = max(len(frame) for frame in frames)
    return np.concatenate([np.pad(frame, ((0, height - len(frame)), (0, 0), (0, 0))) for frame in frames], axis=1)
