"""Which processes run on this machine, as Linux tells it in /proc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process, told apart from every other that had or will have its number.

    Attributes:
        number: Of the process.
        parent: Number of the process that started it, or took it over.
        started: When, in the kernel's ticks.
        command: Its program and arguments.
    """

    number: int
    parent: int
    started: str
    command: Sequence[str]

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        found = _read(_PROC / str(self.number))
        return found is not None and found.started == self.started

    def shows(self, text: str) -> bool:
        """Returns whether its arguments or its environment hold a text, where others may read it."""
        for name in ("cmdline", "environ"):
            with suppress(OSError):  # it has ended, or is somebody else's
                if text.encode() in (_PROC / str(self.number) / name).read_bytes():
                    return True
        return False


def can_be_seen() -> bool:
    """Returns whether this machine tells its processes."""
    return (_PROC / "self" / "stat").exists()


def all_processes() -> list[Process]:
    """Returns every process that runs and is not a zombie."""
    return list(_all())


def with_descendants(roots: Iterable[Process]) -> set[Process]:
    """Processes, and all that they started."""
    everybody = all_processes()
    found = set(roots)
    while more := {p for p in everybody if p not in found and p.parent in {one.number for one in found}}:
        found |= more
    return found


def _all() -> Iterator[Process]:
    for folder in _PROC.glob("[0-9]*"):
        if (found := _read(folder)) is not None:
            yield found


def _read(folder: Path) -> Process | None:
    with suppress(OSError, IndexError, ValueError):  # it may end while it is looked at
        state, parent, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
        if state in "ZX":
            return None
        command = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        return Process(int(folder.name), int(parent), rest[17], tuple(command))
    return None
