"""What somebody sees who watches an episode while it is played: drawn only while they look, and changing nothing."""

from __future__ import annotations

import logging
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from sparring.env_worker.benchmark import Observation, Simulator, Step
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.env_worker.rendering.mark import drawing
from sparring.protos.limits import MAX_FRAME
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)

_MOST_PIXELS: Final = 512
"""Of a side; larger images are thinned out."""
_EVERY_SECONDS: Final = 0.5
_PAUSE: Final = 9.0
"""So many times as long as a frame took none is drawn after it: with a slow renderer, too, a slot goes on playing."""

SendFrame = Callable[[str, int, int, bytes], None]
"""Takes a frame: the task and the index of the episode, how many steps it has, and a PNG."""


class FrameRequest:
    """Whether somebody looks. Asked and told from any thread.

    Args:
        show: Takes what they see.
        looking: Says whether somebody looks who does not `ask`.
    """

    def __init__(self, show: SendFrame, looking: Callable[[], bool] = lambda: False) -> None:
        self.show = show
        self._looking = looking
        self._until = 0.0
        self._next = 0.0
        self._last = 0.0
        """How long the last frame took, in seconds."""

    def ask(self, seconds: float) -> None:
        """Hears that somebody looks for so long, from now on."""
        self._until = time.monotonic() + seconds

    def is_due(self) -> bool:
        """Returns whether a frame is to be shown now: somebody looks, and the last one was long enough ago."""
        now = time.monotonic()
        return now >= self._next and (now < self._until or self._looking())

    def shown(self, seconds: float) -> None:
        """Hears that a frame was made, and how long that took.

        A simulator's first frame takes as long as making what draws it, which is no measure of those to come: what two
        in a row took counts. Else one frame was all that was seen of a short episode.
        """
        self._next = time.monotonic() + max(_EVERY_SECONDS, _PAUSE * min(seconds, self._last))
        self._last = seconds

    def give_up(self) -> None:
        """Asks for no more: what draws is broken here."""
        self._next = float("inf")


class LiveFrames(EpisodeObserver):
    """Shows an episode to who looks at it, from what is seen anyway, else by a snapshot between two steps.

    Never by looking as a policy does: what is drawn for it is counted nowhere, and that it cannot be drawn is no error.

    Args:
        simulator: That plays it.
        request: Of who looks.
        task: Of the episode.
        index: Of the episode.
    """

    def __init__(self, simulator: Simulator, request: FrameRequest, task: str, index: int) -> None:
        self._simulator = simulator
        self._request = request
        self._task = task
        self._index = index

    def on_reset(self, observation: Observation) -> None:
        self._show(0, observation)

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self._show(step, result.observation)

    def _show(self, steps: int, observation: Observation) -> None:
        if not self._request.is_due():
            return
        began = time.monotonic()
        try:
            image = self._image(observation)
            content = b"" if image is None else png(image)
        except Exception as error:  # noqa: BLE001  # whatever it is: who only watches spoils no episode
            log.warning("%s #%d cannot be shown live: %s: %s", self._task, self._index, type(error).__name__, error)
            self._request.give_up()
            return
        self._request.shown(time.monotonic() - began)
        if content and len(content) <= MAX_FRAME:
            self._request.show(self._task, self._index, steps, content)

    def _image(self, observation: Observation) -> Array | None:
        seen = observation.get(self._simulator.camera or "")
        if seen is not None:
            return seen
        with _uncounted(self._simulator):
            return self._simulator.snapshot()


@contextmanager
def _uncounted(simulator: Simulator) -> Iterator[None]:
    """Lets something be drawn that no record tells of, and no check of renderers hears of."""
    meter = simulator.meter
    before = meter.renders, meter.seconds, meter.renderer
    try:
        yield
    except Exception:
        with drawing():  # takes back the mark that drawing has failed: it is not the episode that could not be drawn
            pass
        raise
    finally:
        meter.renders, meter.seconds, meter.renderer = before


def png(image: Array) -> bytes:
    """Returns an image, uint8 (height, width, 3), as a PNG; a large one is thinned out.

    Raises:
        ValueError: If it is no such image.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise ValueError(f"no image of three colours: {image.dtype} {image.shape}")
    stride = -(-max(image.shape[:2]) // _MOST_PIXELS)
    image = image[::stride, ::stride]
    height, width = image.shape[:2]
    # Each pixel as the difference from the one to its left (filter 1), which what is drawn has little of.
    lines = np.empty((height, 1 + 3 * width), np.uint8)
    lines[:, 0] = 1
    pixels = lines[:, 1:].reshape(height, width, 3)
    pixels[:, :1] = image[:, :1]
    np.subtract(image[:, 1:], image[:, :-1], out=pixels[:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
