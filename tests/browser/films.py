"""Films for pages."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np


def write_film(path: Path) -> None:
    """Writes a film of two seconds with the codec that our films have."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in range(20):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 12 * number, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
