"""How large what a client says may be: bounds of the contract, so that no message can take up a server."""

from __future__ import annotations

from typing import Final

MAX_OBSERVATIONS: Final = 256
"""In one offer."""

MAX_NAME: Final = 256
"""Characters of a name: of an observation, a benchmark, a client."""

MAX_FACT: Final = 1000
"""Characters of what a worker says of its machine, and of the name of a benchmark's source file."""

MAX_ACTION_DIM: Final = 1024

MAX_HISTORY: Final = 4096
"""Steps that a policy may ask to be shown at once."""

MAX_HELLO_BYTES: Final = 256 * 1024
"""Twice what the largest offer takes."""

MAX_EXTRA_BYTES: Final = 64 * 1024
"""What any message after the hello may have beyond the elements that were asked for: names, instructions."""
MAX_FRAME: Final = 1 << 20
"""Bytes of a picture of what a slot plays, for who watches it."""
