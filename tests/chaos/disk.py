"""A disk that fills up and is freed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

_SIZE: Final = "16m"
_BALLAST: Final = "ballast"


class SmallDisk:
    """A file system of its own, in memory, at a folder. Only root can have one.

    Args:
        folder: Where; it is made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "sparring-chaos", folder], check=True)

    def fill(self) -> None:
        """Leaves no room."""
        with (self._folder / _BALLAST).open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Makes room again."""
        (self._folder / _BALLAST).unlink()

    def close(self) -> None:
        """Gives it back, with all that is on it."""
        subprocess.run(["umount", "--lazy", self._folder], check=True)


def fault() -> str:
    """Says why there can be none here; empty if there can."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    with tempfile.TemporaryDirectory(prefix="sc-") as folder:
        try:
            SmallDisk(Path(folder) / "disk").close()
        except (OSError, subprocess.SubprocessError) as error:
            return f"no file system can be mounted: {error}"
    return ""
