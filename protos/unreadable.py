"""What Python and NumPy raise for a file that is damaged, or made up by somebody: our code is not wrong then."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from tokenize import TokenError
from typing import Final

ARRAY: Final = (ValueError, TypeError, SyntaxError, TokenError, EOFError, OverflowError, MemoryError)
"""Of an array in NumPy's format: its header is read as Python, and says how much memory is asked for."""
ARCHIVE: Final = (
    *(*ARRAY, OSError, LookupError, RuntimeError),
    *(struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
"""Of a zip file, and of arrays in one: `zipfile` lets through what its decompressors raise."""
