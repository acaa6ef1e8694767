"""What git knows of a folder, asked so that nothing that a repository names is run.

`git status` passes what has changed through the filters that a repository's settings name, and looks into submodules by
theirs. So only the index is asked for, and files are compared with it here, as they are.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GIT_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 30
"""Of files that may have changed: more would take a while to read."""
_MOST_DEPTH: Final = 8
"""Of submodules in submodules."""
_SAFE: Final = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "--no-pager")
_ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # What a partial clone lacks would be fetched with whatever command its settings name.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
_ENTRY: Final = re.compile(
    rb"(?P<mode>\d+) (?P<sha>[0-9a-f]+) (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    rb"  ctime: \d+:\d+\n  mtime: (?P<seconds>\d+):(?P<nanoseconds>\d+)\n  dev: .*\n  uid: .*\n"
    rb"  size: (?P<size>\d+)\tflags: (?P<flags>[0-9a-f]+)\n"
)
_LINK: Final = 0o120000
_SUBMODULE: Final = 0o160000
_LEFT_OUT: Final = 1 << 30
"""Of an entry's flags: a sparse checkout does without it."""


@dataclass(frozen=True)
class Commit:
    """What git knows of a folder.

    Attributes:
        sha: Of the commit; empty: there is none, or no git.
        modified: Whether what is there is not what was committed, or that cannot be told.
    """

    sha: str = ""
    modified: bool = False


@dataclass(frozen=True)
class _Entry:
    """A file, as the index knows it."""

    mode: int
    sha: str
    path: str
    mtime: int
    """In nanoseconds."""
    size: int
    left_out: bool
    merged: bool


class _Unclear(Exception):
    """Whether something has changed cannot be told."""


def commit_of(folder: Path, files: Sequence[Path]) -> Commit:
    """Asks git about a folder, and about files in it, which may be there without being committed."""
    return _commit_of(folder, files, 0)


def _commit_of(folder: Path, files: Sequence[Path], depth: int) -> Commit:
    head = _git(folder, "rev-parse", "HEAD", "--git-path", "index")
    if not head:
        return Commit()
    sha, index = head.decode(errors="replace").splitlines()[:2]
    try:
        return Commit(sha, _is_modified(folder, files, folder / index, depth))
    except (OSError, _Unclear):
        return Commit(sha, modified=True)


def _is_modified(folder: Path, files: Sequence[Path], index: Path, depth: int) -> bool:
    staged = _git(folder, "diff-index", "--cached", "--name-only", "--ignore-submodules=none", "HEAD", "--", ".")
    listed = _git(folder, "ls-files", "--stage", "--debug", "-z", "--", ".")
    if staged is None or listed is None:
        raise _Unclear
    entries = list(_entries(listed))
    if staged or {os.path.relpath(file, folder) for file in files} - {entry.path for entry in entries}:
        return True
    written = index.stat().st_mtime_ns
    left = _MOST_BYTES
    for entry in entries:
        path = folder / entry.path
        if entry.mode == _SUBMODULE:
            # One that was not fetched is an empty folder, as it should be.
            if (path / ".git").exists() and (
                depth >= _MOST_DEPTH or _commit_of(path, [], depth + 1) != Commit(entry.sha)
            ):
                return True
            continue
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            if entry.left_out:
                continue
            return True
        # Who has changed it in the moment in which the index was written may have left both as they were.
        if (found.st_mtime_ns, found.st_size) == (entry.mtime, entry.size) and entry.mtime < written:
            continue
        left -= found.st_size
        if left < 0 or not entry.merged or not _is_as_committed(path, found.st_mode, entry):
            return True
    return False


def _entries(listed: bytes) -> Iterator[_Entry]:
    """Reads what git lists of its index; that is meant for people, so it must be just as expected."""
    end = 0
    for found in _ENTRY.finditer(listed):
        if found.start() != end:
            raise _Unclear
        end = found.end()
        yield _Entry(
            int(found["mode"], 8),
            found["sha"].decode(),
            os.fsdecode(found["path"]),
            int(found["seconds"]) * 10**9 + int(found["nanoseconds"]),
            int(found["size"]),
            bool(int(found["flags"], 16) & _LEFT_OUT),
            found["stage"] == b"0",
        )
    if end != len(listed):
        raise _Unclear


def _is_as_committed(path: Path, mode: int, entry: _Entry) -> bool:
    """Returns whether the bytes of a file are those of the commit; what a filter would make of them is not tried."""
    if stat.S_ISLNK(mode) != (entry.mode == _LINK) or not (stat.S_ISLNK(mode) or stat.S_ISREG(mode)):
        return False
    made = hashlib.sha1 if len(entry.sha) == 40 else hashlib.sha256  # as git does; nobody's secret depends on it
    if stat.S_ISLNK(mode):
        content = os.fsencode(os.readlink(path))
        return made(b"blob %d\0" % len(content) + content).hexdigest() == entry.sha
    with path.open("rb") as file:
        digest = made(b"blob %d\0" % os.fstat(file.fileno()).st_size)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == entry.sha


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Returns what git says; None if there is no git, no repository, or no answer in time."""
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            env={**os.environ, **_ENVIRONMENT},
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
