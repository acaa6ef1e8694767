"""How a client reaches a server: plain or encrypted, and why it does not if it cannot."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.net.access import TOKEN_HEADER as TOKEN_HEADER
from sparring.protos.net.access import Identity, check_token, token_header, trusting
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import CLIENT_OPTIONS

_LOOK_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 1.0

_ROOTS: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)

# OpenSSL's numbers for what can be wrong with a certificate.
_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_WRONG_NAMES: Final = (62, 64)


@dataclass(frozen=True)
class ServerKind:
    """What a server is called in sentences, and what to do about its TLS.

    Attributes:
        name: Of its kind.
        ca: The setting that says which CA to trust there.
        serving: How it is told to speak TLS.
        identity: The settings that say which certificate to show it.
    """

    name: str
    ca: str
    serving: str
    identity: str


POLICY: Final = ServerKind(
    "policy server",
    str(Hint("policy_ca")),
    "start it with --tls-cert and --tls-key",
    f"a certificate that its CA has signed, with {Hint('policy_tls_cert')} and {Hint('policy_tls_key')}",
)
ORCHESTRATOR: Final = ServerKind(
    "orchestrator",
    "--ca",
    "start the run with --listen-tls-cert and --listen-tls-key",
    "a certificate that its CA has signed, with --tls-cert and --tls-key",
)


@dataclass(frozen=True)
class Connection:
    """One way to a server: the policy's, or the orchestrator's.

    Attributes:
        address: Of the server.
        token: The secret that the server wants; empty: none.
        ca: PEM certificates to trust; giving them turns TLS on. Without, TLS trusts what this machine trusts.
        identity: What to show to a server that wants to know who calls; over TLS only.
        kind: Of the server, for sentences.
    """

    address: Address
    token: str = field(default="", repr=False)
    ca: bytes = field(default=b"", repr=False)
    identity: Identity | None = None
    kind: ServerKind = POLICY

    def __post_init__(self) -> None:
        if self.address.is_unix and self.ca:
            raise UsageError(f"{self.address} is a unix socket, which is never encrypted: leave out {self.kind.ca}.")
        if self.token:
            check_token(self.token, "the token")
        if self.ca:
            trusting(self.ca, source=f"the CA ({self.kind.ca})")
        if self.identity is not None and not self.encrypted and not self.address.is_unix:
            raise UsageError(f"a certificate is shown over TLS only: give tls://HOST:PORT, or {self.kind.ca}.")

    @property
    def encrypted(self) -> bool:
        """Whether TLS is asked for."""
        return self.address.is_encrypted or bool(self.ca)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each call."""
        return ((TOKEN_HEADER, token_header(self.token)),) if self.token else ()

    def channel(self) -> grpc.aio.Channel:
        """Makes a new channel, in the event loop that uses it."""
        if not self.encrypted:
            return grpc.aio.insecure_channel(self.address.target, options=CLIENT_OPTIONS)
        cert, key = (self.identity.cert, self.identity.key) if self.identity else (None, None)
        credentials = grpc.ssl_channel_credentials(self.ca or _system_roots(), key, cert)
        return grpc.aio.secure_channel(self.address.target, credentials, options=CLIENT_OPTIONS)

    async def fault(self, channel: grpc.aio.Channel) -> str:
        """Waits until it is certain that the two ends can never understand each other, and says why.

        gRPC takes a failed handshake for a server that is not there yet and would try until the deadline.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if channel.get_state() != grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                continue
            sentence = await asyncio.to_thread(self._probe)
            if sentence and channel.get_state() != grpc.ChannelConnectivity.READY:
                return sentence
            await asyncio.sleep(_AGAIN_SECONDS)

    def _probe(self) -> str:
        """Looks who is there with a handshake of Python's own, whose errors can be told apart."""
        if self.address.is_unix:
            return ""
        host, port, context = self.address.host, self.address.port, self._context()
        try:
            with (
                socket.create_connection((host, port), timeout=_PROBE_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=host) as encrypted,
            ):
                protocol = encrypted.selected_alpn_protocol()
                # Who does not take our certificate, or wants one, hangs up only after the handshake.
                hung_up = self.encrypted and protocol == "h2" and not encrypted.recv(1)
        except ssl.SSLCertVerificationError as error:
            return self._about_certificate(error, host)
        except ssl.SSLError as error:
            if self.encrypted and error.reason in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"):
                return (
                    f"the server at {self.address.target} does not speak TLS: {self.kind.serving}, "
                    f"or leave out tls:// and {self.kind.ca}."
                )
            return ""
        except (OSError, UnicodeError):  # not there, going away (it may come), or no name at all
            return ""
        if not self.encrypted:
            return (
                f"the {self.kind.name} at {self.address.target} speaks TLS only: give its address as "
                f"{self.address.with_tls()}, and its CA with {self.kind.ca} if it is not a public one."
            )
        if hung_up:
            return (
                f"the {self.kind.name} at {self.address.target} does not know who calls: show it {self.kind.identity}."
            )
        return (
            ""
            if protocol == "h2"
            else f"the server at {self.address.target} speaks TLS but not gRPC: no {self.kind.name}."
        )

    def _context(self) -> ssl.SSLContext:
        if not self.encrypted:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # nothing is sent: this only asks whether it is TLS
        elif roots := self.ca or _system_roots():
            context = trusting(roots, source=f"the CA ({self.kind.ca})")
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC does
        else:
            context = ssl.create_default_context()
        if self.identity is not None and self.encrypted:
            _show(context, self.identity)
        context.set_alpn_protocols(["h2"])
        return context

    def _about_certificate(self, error: ssl.SSLCertVerificationError, host: str) -> str:
        start = f"the {self.kind.name} at {self.address.target} is not trusted: "
        if error.verify_code == _EXPIRED:
            return f"{start}its certificate has expired; start it with a new one."
        if error.verify_code == _NOT_YET_VALID:
            return f"{start}its certificate is not valid yet; is the clock right, here and there?"
        if error.verify_code in _WRONG_NAMES:
            return f"{start}its certificate is for another name than {host!r}; use the name it was made for."
        advice = (
            f"is what was given with {self.kind.ca} the one that signed it?"
            if self.ca
            else f"give the CA that signed it with {self.kind.ca}."
        )
        return f"{start}its certificate was not signed by a known CA ({error.verify_message}); {advice}"


def _show(context: ssl.SSLContext, identity: Identity) -> None:
    """Has a handshake show a certificate. Python takes files and no bytes, and a key is not to be on a disk."""
    with os.fdopen(os.memfd_create("identity"), "wb") as file:  # a file in memory, of this process alone
        file.write(identity.cert + b"\n" + identity.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def _system_roots() -> bytes | None:
    """Returns the certificates that this machine trusts; None: those that gRPC brings along.

    gRPC by itself would trust only the latter, and not a CA that an administrator has installed.
    """
    variable = os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")  # gRPC's own, and so the most specific
    for path in (variable, ssl.get_default_verify_paths().cafile, *_ROOTS):
        if path is not None and Path(path).is_file():
            return Path(path).read_bytes()
    return None
