"""What jobs on other machines must see of a run: files in a folder that all nodes share."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.slurm.secret_notes import noted
from sparring.orchestrator.machine.owner import owner, owner_state
from sparring.orchestrator.machine.private_file import private_file
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError

_FOLDER: Final = "slurm"
_OWNER: Final = ".owner"
"""Of the file beside an execution's secret that says which process has written it."""


@dataclass(frozen=True)
class SharedFiles:
    """Says where they are.

    Attributes:
        token: The run's secret.
        ca: The run's certificate; None: it has none.
        logs: Folder for the logs of workers.
        made: Folder of these, where it is none of the run's own; None: it is the run's.
    """

    token: Path
    ca: Path | None
    logs: Path
    made: Path | None = None

    @classmethod
    def of(cls, shared: Path | None, folder: Path, execution: str, *, encrypted: bool = True) -> SharedFiles:
        """Returns where they are of one execution of a run.

        Args:
            shared: Folder that all nodes see; None: that of the run.
            folder: Of the run.
            execution: What tells it from others.
            encrypted: Whether it has a certificate.
        """
        folder = folder.absolute()
        place = folder if shared is None else shared.absolute() / folder.name
        secrets = place / _FOLDER
        return cls(
            token=secrets / f"{execution}.token",
            ca=secrets / f"{execution}.pem" if encrypted else None,
            logs=place / "logs",
            made=None if shared is None else place,
        )

    def beside(self, name: str) -> Path:
        """Returns another file of the same execution, which goes with these."""
        return self.token.with_name(f"{self.token.stem}-{name}")

    @contextmanager
    def written(self, token: str, ca: bytes) -> Iterator[frozenset[str]]:
        """Has them, for this user alone, until the run has ended; logs stay.

        Yields:
            The owners of executions that were killed, whose files were found there.

        Raises:
            SparringError: If they cannot be written.
        """
        folder = self.token.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(parents=True, exist_ok=True)
            for each in (folder, self.logs, *([] if self.made is None else [self.made])):
                _check_own(each, forbidden=0o077 if each == folder else 0)
            _check_above(folder.resolve())
        except OSError as error:
            raise SparringError(
                f"{str(folder)!r} cannot be made: {error.strerror}. Name another with {Hint('slurm_folder')}."
            ) from error
        ended = _remove_left(folder, is_locked=self.made is None)
        try:
            with ExitStack() as stack:
                stack.enter_context(noted(self.token))
                stack.enter_context(private_file(self.token.with_suffix(_OWNER), owner().encode()))
                stack.enter_context(private_file(self.token, f"{token}\n".encode()))
                if self.ca is not None:
                    stack.enter_context(private_file(self.ca, ca))
                yield ended
        finally:
            for left in folder.glob(f"{self.token.stem}-*"):
                left.unlink(missing_ok=True)
            with suppress(OSError):  # others' are in there
                folder.rmdir()


def _remove_left(folder: Path, *, is_locked: bool) -> frozenset[str]:
    """Removes what executions have left that were killed; there may be others' that go on.

    Args:
        folder: That it is in.
        is_locked: Whether it is in the folder of the run, whose lock is ours: whoever wrote there before has ended, on
            whatever machine that was.

    Returns:
        Their owners.
    """
    ended = set()
    for note in folder.glob(f"*{_OWNER}"):
        with suppress(OSError):  # another one removes it, too
            whose = note.read_text(errors="replace")
            state = owner_state(whose)
            if state == "dead" or (is_locked and state == "unknown"):
                ended.add(whose)
                for left in [
                    *folder.glob(f"{note.stem}-*"),
                    *(note.with_suffix(s) for s in (".token", ".pem", _OWNER)),
                ]:
                    left.unlink(missing_ok=True)
    return frozenset(ended)


def _check_above(folder: Path) -> None:
    """Checks that nobody else can put another folder in the place of one: whoever may write above it can rename it.

    Raises:
        SparringError: If others can.
    """
    for above in folder.parents:
        found = above.stat()
        mode = stat.S_IMODE(found.st_mode)
        by_group = mode & stat.S_IWGRP and not _is_of_one(found.st_gid)
        if (by_group or mode & stat.S_IWOTH) and not mode & stat.S_ISVTX:  # sticky, as /tmp: each renames their own
            who = "every user" if mode & stat.S_IWOTH else f"the group {_group(found.st_gid)}"
            raise SparringError(
                f"in {str(above)!r} {who} can put another folder in the place of this run's, by its mode {mode:04o}: "
                f"what the run has for its workers, {str(folder)!r}, would not be safe there. Name a place of your own "
                f"that all nodes see with {Hint('slurm_folder')}, or let nobody else write there: "
                f"chmod go-w {shlex.quote(str(above))}"
            )


def _is_of_one(number: int) -> bool:
    """Tells whether a group is this user's alone, as many systems give everybody one of their own name."""
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except KeyError:  # a number without a name: nobody knows who is in it
        return False
    return group.gr_gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _group(number: int) -> str:
    try:
        return repr(grp.getgrgid(number).gr_name)
    except KeyError:
        return f"number {number}"


def _check_own(folder: Path, *, forbidden: int) -> None:
    """Checks that nobody else has made a folder before us, to read or replace what we put there.

    Args:
        folder: Its name can be guessed, and where it is others may write.
        forbidden: What its mode may not let others do.

    Raises:
        SparringError: If it is not ours alone.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        wrong = "is a link and no folder"
    elif found.st_uid != os.getuid():
        wrong = f"belongs to another user, number {found.st_uid}"
    elif found.st_mode & forbidden:
        wrong = f"lets other users in, by its mode {stat.S_IMODE(found.st_mode):04o}"
    else:
        return
    raise SparringError(
        f"{str(folder)!r} {wrong}: what this run has for its workers would not be safe there. Remove it, or name "
        f"another place with {Hint('slurm_folder')}."
    )
