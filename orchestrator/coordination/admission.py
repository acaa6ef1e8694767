"""Who may join a run: those who bring its secret, or show a certificate; and how what they say is encrypted."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from sparring.orchestrator.machine.private_file import private_file
from sparring.orchestrator.machine.self_signed import self_signed
from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import FLAGS, Hint, render
from sparring.protos.errors import UsageError
from sparring.protos.net.access import brought, check_reach, new_token, read_token
from sparring.protos.net.address import Address, came_by_socket
from sparring.protos.net.credentials import server_credentials

log = logging.getLogger(__name__)

FILE_NAME: Final = "join-token"
"""Of the file in the run's folder that holds the secret, where workers come by themselves and nobody has named one."""
CA_NAME: Final = "join-ca.pem"
"""Of the file beside it that holds the run's certificate, where that was made for the run."""

NEW_FOLDER: Final = "OUTPUT"
"""Stands in commands for the folder of a run that has not begun: its name has the time in it."""
_FILE: Final = Hint("join_token_file")
_TLS: Final = (str(Hint("listen_tls_cert")), str(Hint("listen_tls_key")), str(Hint("listen_client_ca")))
_MISSING: Final = f"this run lets in only workers that bring its join token; give the file that has it with {_FILE}."
_WRONG: Final = f"the join token given ({_FILE}) is not this run's."


@dataclass(frozen=True)
class Admission:
    """Decides who may join a run.

    Attributes:
        token: The join token, that workers from elsewhere bring. It goes to those who shall join, and nowhere else.
        launched: The same for workers that the run has started itself, which it can tell from others by it.
        file: Where people find it, if they have named a file.
        tcp_without: Whether over TCP nobody needs it: a certificate lets them in, or the user lets in everybody.
        credentials: Encrypt what comes over TCP.
        client_ca: Whether over TCP a certificate must be shown.
        ca: PEM certificates that show who dials that this is the run; empty: nothing is encrypted.
        made: Whether they were made for this run, and nobody else has them.
    """

    token: str = field(repr=False)
    launched: str = field(default_factory=new_token, repr=False)
    file: Path | None = None
    tcp_without: bool = False
    credentials: grpc.ServerCredentials | None = field(default=None, repr=False)
    client_ca: bool = False
    ca: bytes = field(default=b"", repr=False)
    made: bool = False

    @classmethod
    def of(cls, settings: RunSettings, listen: Address | None, *, made_for: str = "") -> Admission:
        """Returns what settings say of who may join a run that listens there.

        Args:
            settings: Of the run.
            listen: Where it listens.
            made_for: A certificate is made for this name or number of this machine, unless settings name one.

        Raises:
            UsageError: If the file of the token, of a certificate or of a key cannot be used.
            SparringError: If no certificate can be made.
        """
        worker, file = settings.worker, settings.worker.join_token_file
        token = new_token() if file is None else read_token(file, flag=str(_FILE))
        paths = (worker.listen_tls_cert, worker.listen_tls_key, worker.listen_client_ca)
        credentials = server_credentials(*paths, flags=_TLS)
        made = self_signed(made_for) if made_for and credentials is None else None
        ca = b"" if worker.listen_tls_cert is None else worker.listen_tls_cert.read_bytes()
        if made is not None:
            credentials, ca = grpc.ssl_server_credentials([(made.key, made.cert)]), made.cert
        insecure = worker.insecure and listen is not None and listen.leaves_the_machine
        shown = worker.listen_client_ca is not None
        without = file is None and (shown or insecure)
        return cls(token, new_token(), file, without, credentials, shown, ca, made=made is not None)

    def fault(self, context: grpc.aio.ServicerContext[Any, Any]) -> str:
        """Returns why a call is not let in; empty if it is."""
        if self.tcp_without and not came_by_socket(context.peer()):
            return ""
        if self.is_launched(context):
            return ""
        found = brought(context.invocation_metadata() or (), self.token)
        return {"right": "", "missing": _MISSING, "wrong": _WRONG}[found]

    def is_launched(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        """Returns whether a call is of a worker that the run has started itself."""
        return brought(context.invocation_metadata() or (), self.launched) == "right"

    @property
    def _writes(self) -> bool:
        """Whether the token has to be written for those who need it."""
        return not self.tcp_without and self.file is None

    def reached_at(self, listen: Address) -> Address:
        """Returns an address that the run listens at as workers are given it: whether it is encrypted is part of it."""
        return listen if self.credentials is None else listen.with_tls()

    def flags(self, folder: Path | None) -> str:
        """Returns what a worker is started with to be let in, with a space before each flag.

        Args:
            folder: Of the run, where its own token is if it needs one; None: that is not made yet.
        """
        shown = " --tls-cert FILE --tls-key FILE" if self.client_ca else ""
        if self.made:
            shown += f" --ca {NEW_FOLDER}/{CA_NAME}" if folder is None else f" --ca {_quoted(folder / CA_NAME)}"
        if self.tcp_without:
            return shown
        if self.file is not None:
            return f" --join-token-file {_quoted(self.file)}{shown}"
        written = f"{NEW_FOLDER}/{FILE_NAME}" if folder is None else _quoted(folder / FILE_NAME)
        return f" --join-token-file {written}{shown}"

    @contextmanager
    def written_to(self, folder: Path) -> Iterator[str]:
        """Has the token in a file that only this user can read, if nobody has one; yields the flag that names it.

        So it has the certificate, if that was made for this run.

        Raises:
            SparringError: If it cannot be written.
        """
        with ExitStack() as stack:
            if self._writes:
                stack.enter_context(private_file(folder / FILE_NAME, f"{self.token}\n".encode()))
            if self.made:
                stack.enter_context(private_file(folder / CA_NAME, self.ca))
            yield self.flags(folder)


def _quoted(path: Path) -> str:
    """Returns a path for a command that may be typed in another folder."""
    return shlex.quote(str(path.absolute()))


def check_admission(settings: RunSettings) -> None:
    """Checks that nobody uninvited can join, before anything starts.

    Raises:
        UsageError: If everybody could, and nobody has said so; or if a file that was named cannot be used.
    """
    worker, listen = settings.worker, settings.worker.listen_address
    admission = Admission.of(settings, listen)
    if listen is not None:
        check_reach(
            listen,
            who="the run",
            secret=admission.file is not None or admission.client_ca or settings.launcher.secures,
            insecure=worker.insecure,
            advice=f"give {_FILE}, or {_TLS[2]}",
        )
    if admission.credentials is not None and (listen is None or listen.is_unix):
        raise UsageError(f"{_TLS[0]} encrypts what comes over TCP: give {Hint('listen', value='HOST:PORT')}, too.")
    secrets = {name: getattr(settings.policy, name) for name in ("policy_token_file", "policy_tls_key")}
    handed = next((name for name, path in secrets.items() if path is not None), None)
    if admission.tcp_without and not admission.client_ca and handed is not None:
        what = {"policy_token_file": "the policy's token", "policy_tls_key": "your key"}[handed]
        raise UsageError(
            f"{Hint('insecure')} would hand {what} ({Hint(handed)}) to everybody who reaches {listen}: "
            f"give {_FILE} instead."
        )
    encrypted = admission.credentials is not None or settings.launcher.secures
    if listen is not None and listen.leaves_the_machine and not encrypted:
        _check_plain(settings, listen)


def _check_plain(settings: RunSettings, listen: Address) -> None:
    """Checks what workers would be told in the clear: whoever listens on the way has it, too.

    Raises:
        UsageError: If that is a key.
    """
    advice = f"encrypt that with {_TLS[0]} and {_TLS[1]}"
    if settings.policy.policy_tls_key is not None:
        raise UsageError(f"{Hint('policy_tls_key')} would go to workers at {listen} in the clear: {advice}.")
    if settings.policy.policy_token_file is not None:
        told = f"the policy's token ({Hint('policy_token_file')}) goes to workers at {listen} in the clear; {advice}."
        log.warning("%s", render(told, FLAGS))
