"""The executed actions of an episode as bytes: a NumPy .npy file, compressed."""

from __future__ import annotations

import io
import zlib
from typing import Final

import numpy as np

from sparring.protos import unreadable
from sparring.protos.errors import SparringError
from sparring.protos.tensor import Array

MOST_BYTES: Final = 4 << 20
"""The most that the packed actions of one episode may have: half of what a worker's message may."""
MOST_UNPACKED: Final = 32 << 20
"""The most that they may have unpacked: a packed file may be anybody's."""
_LEVEL: Final = 6


class UnreadableActions(SparringError):
    """These bytes are not the actions of an episode."""


def pack(actions: Array) -> bytes:
    """Packs the actions of an episode (steps, dimensions), to the bit."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(actions), version=(1, 0), allow_pickle=False)
    return zlib.compress(file.getvalue(), _LEVEL)


def unpack(content: bytes) -> Array:
    """Returns the actions that were packed.

    Raises:
        UnreadableActions: If that cannot be read.
    """
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(content, MOST_UNPACKED)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("they are cut off, or something follows them")
        file = io.BytesIO(data)
        actions: Array = np.lib.format.read_array(file, allow_pickle=False)
        if actions.ndim != 2 or not np.issubdtype(actions.dtype, np.number) or file.read(1):
            raise ValueError("they are no table of numbers")
    except (*unreadable.ARRAY, zlib.error) as error:
        raise UnreadableActions(f"recorded actions cannot be read: {error}.") from error
    return actions
