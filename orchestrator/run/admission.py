"""Who may join a run: those who bring its secret."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import brought, check_reach, new_token, read_token
from sparring.protos.net.address import Address, came_by_socket

log = logging.getLogger(__name__)

FILE_NAME: Final = "join-token"
"""Of the file in the run's folder that holds the secret, where workers come by themselves and nobody has named one."""

_FILE: Final = Hint("join_token_file")
_MISSING: Final = f"this run lets in only workers that bring its join token; give the file that has it with {_FILE}."
_WRONG: Final = f"the join token given ({_FILE}) is not this run's."


@dataclass(frozen=True)
class Admission:
    """Who may join a run.

    Attributes:
        token: The join token, that workers bring. It goes to those who shall join, and nowhere else.
        file: Where people find it, if they have named a file.
        everybody: Whether over TCP nobody needs it, because the user has said so.
    """

    token: str = field(repr=False)
    file: Path | None = None
    everybody: bool = False

    @classmethod
    def of(cls, settings: RunSettings, listen: Address | None) -> Admission:
        """Returns what settings say of who may join a run that listens there.

        Raises:
            UsageError: If the token's file cannot be used.
        """
        file = settings.worker.join_token_file
        token = new_token() if file is None else read_token(file, flag=str(_FILE))
        insecure = settings.worker.insecure and listen is not None and listen.leaves_the_machine
        return cls(token, file, everybody=insecure and file is None)

    def fault(self, context: grpc.aio.ServicerContext[Any, Any]) -> str:
        """Returns why a call is not let in; empty if it is."""
        if self.everybody and not came_by_socket(context.peer()):
            return ""
        found = brought(context.invocation_metadata() or (), self.token)
        return {"right": "", "missing": _MISSING, "wrong": _WRONG}[found]

    @contextmanager
    def written_to(self, folder: Path) -> Iterator[str]:
        """Has the token in a file that only this user can read, if nobody has one; yields the flag that names it.

        Raises:
            SparringError: If it cannot be written.
        """
        if self.everybody:
            yield ""
        elif self.file is not None:
            yield f" --join-token-file {self.file}"
        else:
            path = folder / FILE_NAME
            try:
                path.unlink(missing_ok=True)  # of an execution that was killed
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w") as file:
                    file.write(f"{self.token}\n")
            except OSError as error:
                raise SparringError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
            try:
                yield f" --join-token-file {path}"
            finally:
                path.unlink(missing_ok=True)


def check_admission(settings: RunSettings) -> None:
    """Checks that nobody uninvited can join, before anything starts.

    Raises:
        UsageError: If everybody could, and nobody has said so; or if the token's file cannot be used.
    """
    worker, listen = settings.worker, settings.worker.listen_address
    admission = Admission.of(settings, listen)
    if listen is not None:
        check_reach(
            listen,
            who="the run",
            secret=admission.file is not None,
            insecure=worker.insecure,
            advice=f"give {_FILE}",
        )
    if admission.everybody and settings.policy.policy_token_file is not None:
        raise UsageError(
            f"{Hint('insecure')} would hand the policy's token ({Hint('policy_token_file')}) to everybody who reaches "
            f"{listen}: give {_FILE} instead."
        )
