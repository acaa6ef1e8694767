"""Films and recordings that are still coming in: in files beside those of this run, until their result is recorded."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError
from sparring.protos.pieces import KINDS, MOST_BYTES, AttachmentKind, check_size, declared, kind_of


class Incoming:
    """Puts pieces together, one file per lease and kind, and moves the file to where it belongs when it is whole.

    The files are in a folder of this run's own, on the disk where they will stay. What an earlier execution was killed
    in the middle of is removed at the start, everything else by `drop` and `close`.

    Args:
        run: The run's folder.
        folders: Where whole files will go, for each kind that is kept.
        most: How many bytes one may have.
    """

    def __init__(self, run: Path, folders: Mapping[AttachmentKind, Path], *, most: int = MOST_BYTES) -> None:
        own = hashlib.sha256(str(run.absolute()).encode()).hexdigest()[:12]  # recordings of several runs may go there
        self._parts = {kind: folder / f".incoming-{own}" for kind, folder in folders.items()}
        self._most = most
        self._sizes: dict[tuple[int, AttachmentKind], int] = {}
        self.close()

    def add(self, piece: pb.Piece) -> None:
        """Takes a piece of something that is kept; others are ignored.

        Raises:
            SparringError: If it cannot be written.
        """
        kind = kind_of(piece)
        if kind is None or kind not in self._parts:
            return
        size = self._sizes.get((piece.lease, kind), 0)
        self._sizes[piece.lease, kind] = size + len(piece.content)
        part = self._part(piece.lease, kind)
        if size + len(piece.content) > self._most:
            part.unlink(missing_ok=True)  # nothing more is kept of it, however much comes
            return
        with _explained(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab") as file:
                file.write(piece.content)

    def is_whole(self, result: pb.Result) -> bool:
        """Returns whether all has come that a result says came before it; of the rest nothing is kept."""
        return all(declared(result, kind) in (0, self._sizes.get((result.lease, kind), 0)) for kind in self._parts)

    def keep(self, result: pb.Result, kind: AttachmentKind, target: Path) -> bool:
        """Moves something whole to where it belongs; returns False if a result has none.

        Raises:
            AttachmentMissing: If it was too large.
            SparringError: If it cannot be written.
        """
        if not declared(result, kind):
            return False
        check_size(kind, declared(result, kind), self._most)
        with _explained(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._part(result.lease, kind).replace(target)
        return True

    def drop(self, lease: int) -> None:
        """Throws away what has come of a lease, if it is not kept by now."""
        for kind in KINDS:
            if self._sizes.pop((lease, kind), 0):
                self._part(lease, kind).unlink(missing_ok=True)
                with suppress(OSError):  # others are in there
                    self._parts[kind].rmdir()

    def close(self) -> None:
        """Throws away everything that is not kept."""
        self._sizes.clear()
        for folder in self._parts.values():
            shutil.rmtree(folder, ignore_errors=True)

    def _part(self, lease: int, kind: AttachmentKind) -> Path:
        return self._parts[kind] / f"{lease}.{kind}"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SparringError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
