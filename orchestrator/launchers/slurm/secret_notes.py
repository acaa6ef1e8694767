"""Where runs have put secrets for jobs: notes in the user's own folder, by which `sparring clean` finds leftovers."""

from __future__ import annotations

import glob
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparring.orchestrator.machine.owner import owner, owner_state

_TOKEN: Final = ".token"


@dataclass(frozen=True)
class SecretNote:
    """What was noted of an execution.

    Attributes:
        path: Of the note.
        owner: The process that has put them there.
        token: The file with its secret; others of its name lie beside it.
    """

    path: Path
    owner: str
    token: Path

    @property
    def is_left(self) -> bool:
        """Whether its process is known to have ended."""
        return owner_state(self.owner) == "dead"

    @property
    def is_elsewhere(self) -> bool:
        """Whether only another machine knows that."""
        return owner_state(self.owner) == "unknown"

    @property
    def is_there(self) -> bool:
        """Whether the secret is where it was put: since then, others may have put something else in its place."""
        is_ours = self.token.is_absolute() and self.token.suffix == _TOKEN
        return is_ours and _is_own(self.token.parent, stat.S_IFDIR) and _is_own(self.token, stat.S_IFREG)

    def remove(self) -> None:
        """Removes the secret and what its run has put beside it, and the note; nothing of anybody else's."""
        if self.is_there:
            beside = self.token.parent.glob(f"{glob.escape(self.token.stem)}-*")
            for left in (*beside, *(self.token.with_suffix(suffix) for suffix in (_TOKEN, ".pem", ".owner"))):
                if _is_own(left, stat.S_IFREG):
                    left.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # others' are in there
            self.token.parent.rmdir()


def _is_own(path: Path, kind: int) -> bool:
    """Tells whether something is this user's, and of a kind; a link is none of them."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and stat.S_IFMT(found.st_mode) == kind


@contextmanager
def noted(token: Path) -> Iterator[None]:
    """Has a note of where a secret is, for as long as it is there; without one, if there is no place for it."""
    path = _folder() / f"{token.stem}.json"
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(json.dumps({"owner": owner(), "token": str(token)}))
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def secret_notes() -> list[SecretNote]:
    """Returns all notes of secrets that are still there; those of others are forgotten."""
    found = []
    for path in sorted(_folder().glob("*.json")):
        try:
            told = json.loads(path.read_text())
            note = SecretNote(path, str(told["owner"]), Path(str(told["token"])))
        except (OSError, ValueError, KeyError, TypeError):  # half written, or already gone
            continue
        if note.is_there:
            found.append(note)
        elif note.is_left:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return found


def _folder() -> Path:
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "state") / "sparring" / "slurm"
