"""Who may use a server, and how its connections are encrypted: what both ends of that must agree on."""

from __future__ import annotations

import hmac
import os
import secrets
import select
import ssl
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.named_file import read_named
from sparring.protos.net.address import Address

TOKEN_HEADER: Final = "authorization"
"""The metadata key that a token travels under."""


MIN_TOKEN: Final = 16
"""Characters. Whoever can reach a server can try all short ones."""

_HEAR_SECONDS: Final = 30.0
_LONGEST_TOKEN: Final = 4096
_MOST_PEM: Final = 16 << 20
"""Bytes of a file of certificates; those that a system trusts are some hundred kilobytes."""
_MAKE_ONE: Final = "Make one with: sparring token FILE"
_SECRETS: Final = (Path("/run/secrets"), Path("/var/run/secrets"))
"""Where engines show containers their secrets, as files that are whatever the engine makes them."""


def check_reach(address: Address, *, who: str, secret: bool, insecure: bool, advice: str) -> None:
    """Checks that callers must bring a secret wherever they may come from beyond this machine.

    Args:
        address: Where somebody is about to listen.
        who: Listens there, for the sentence: "the policy server".
        secret: Whether callers must bring one: a token, or a certificate of their own. TLS alone lets everybody in.
        insecure: Whether the user has said that everybody may call.
        advice: What to give, so that callers must bring one: "give --token-file".

    Raises:
        UsageError: If everybody would be let in, and nobody has said so.
    """
    if secret or insecure or not address.leaves_the_machine:
        return
    raise UsageError(
        f"{who} would listen at {address} and let in everybody who reaches it: {advice}, listen at 127.0.0.1, or say "
        f"that it is meant with {Hint('insecure')}."
    )


def new_token() -> str:
    """Makes a secret that nobody can guess."""
    return secrets.token_urlsafe(32)


@contextmanager
def in_a_pipe(secret: str) -> Iterator[tuple[Path, int]]:
    """Yields the file of a pipe that a secret can be read from, once, and the number to pass on to a child process.

    So that no other user sees it, as in arguments or the environment, and nothing is left of it if all is killed.
    """
    reading, writing = os.pipe()
    try:
        os.write(writing, secret.encode())
        os.close(writing)
        yield Path(f"/dev/fd/{reading}"), reading
    finally:
        os.close(reading)


@contextmanager
def in_memory(content: bytes) -> Iterator[tuple[Path, int]]:
    """Yields a file that is on no disk, for content that is read more than once, and the number to pass on to a child.

    No other user can open it, and nothing is left of it if all is killed.
    """
    with os.fdopen(os.memfd_create("sparring"), "wb") as file:
        file.write(content)
        file.flush()
        yield Path(f"/dev/fd/{file.fileno()}"), file.fileno()


def token_header(token: str) -> str:
    """Returns the value of the header for a token."""
    return f"Bearer {token}"


def brought(metadata: Iterable[tuple[str, Any]], token: str) -> Literal["right", "wrong", "missing"]:
    """Says whether a call brings the token that a server wants.

    Args:
        metadata: Of the call.
        token: That is wanted.
    """
    value = dict(metadata).get(TOKEN_HEADER)
    if value is None:
        return "missing"
    given = value.encode() if isinstance(value, str) else value
    # In constant time: how long a refusal takes must not tell how much of a guess was right.
    return "right" if hmac.compare_digest(given, token_header(token).encode()) else "wrong"


def hear_token(*, flag: str) -> str:
    """Reads a token that whoever started this program says first on its standard input, where nobody else can listen.

    Not a byte more is taken: what comes after it, or does not, is for others to notice.

    Raises:
        UsageError: If none comes in time.
    """
    heard, deadline = b"", time.monotonic() + _HEAR_SECONDS
    while not heard.endswith(b"\n") and len(heard) <= _LONGEST_TOKEN:
        ready, _, _ = select.select([0], [], [], max(0.0, deadline - time.monotonic()))
        byte = os.read(0, 1) if ready else b""
        if not byte:
            break
        heard += byte
    token = heard.decode("ascii", "replace").strip()
    if not heard.endswith(b"\n") or not token:
        raise UsageError(f"no token came on standard input ({flag} -): it is to be said there first, as a line.")
    check_token(token, f"standard input ({flag} -)")
    return token


def read_token(path: Path, *, flag: str) -> str:
    """Reads the shared secret in a file, without the white space around it.

    Raises:
        UsageError: If there is none, it cannot be sent or can be guessed, or every user of this machine can read it.
            The sentence never holds the secret.
    """
    try:
        exposed = _is_exposed(path)
        token = read_named(path, _LONGEST_TOKEN).decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"the token file {str(path)!r} ({flag}) cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        token = "\N{NO-BREAK SPACE}"  # not the content: an error's context must not hold the secret
    if not token:
        raise UsageError(f"the token file {str(path)!r} ({flag}) is empty. {_MAKE_ONE}")
    check_token(token, f"the token file {str(path)!r} ({flag})")
    if len(token) < MIN_TOKEN:
        raise UsageError(
            f"the token file {str(path)!r} ({flag}) holds {len(token)} characters, which can be guessed; at least "
            f"{MIN_TOKEN} are wanted. {_MAKE_ONE}"
        )
    if exposed:
        raise UsageError(
            f"the token file {str(path)!r} ({flag}) can be read by every user of this machine: chmod 600 {path}"
        )
    return token


def _is_exposed(path: Path) -> bool:
    """Returns whether everybody may read a file although its user could see to it that they may not.

    A pipe has no mode that matters; what belongs to somebody else, or lies on a file system that cannot be written to,
    is a container's secret or an administrator's file, and cannot be changed by whoever reads it here.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IROTH:
        return False
    if any(path.absolute().is_relative_to(folder) for folder in _SECRETS):
        return False
    return found.st_uid == os.geteuid() and not os.statvfs(path).f_flag & os.ST_RDONLY


def check_token(token: str, source: str) -> None:
    """Checks that a token can travel in a header.

    Raises:
        UsageError: If not. The sentence never holds the token.
    """
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise UsageError(f"{source} does not hold one word of ASCII letters, digits and signs. {_MAKE_ONE}")


def read_pem(path: Path, *, flag: str) -> bytes:
    """Reads a PEM file, unchecked.

    Raises:
        UsageError: If it cannot be read.
    """
    try:
        return read_named(path, _MOST_PEM)
    except OSError as error:
        raise UsageError(f"the file {str(path)!r} ({flag}) cannot be read: {error.strerror}.") from error


def read_ca(path: Path, *, flag: str) -> bytes:
    """Reads the certificates in a file that a client shall trust.

    Raises:
        UsageError: If it cannot be read or holds none.
    """
    pem = read_pem(path, flag=flag)
    trusting(pem, source=f"the file {str(path)!r} ({flag})")
    return pem


def trusting(ca: bytes, *, source: str) -> ssl.SSLContext:
    """Returns a client's TLS settings that trust these certificates and no others.

    Raises:
        UsageError: If there are none in it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLError, ValueError):  # ValueError: nothing at all
        # Bundles have comments with names in every script; the certificates themselves are ASCII.
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    if not context.cert_store_stats()["x509"]:
        raise UsageError(f"{source} holds no certificate; a PEM file with -----BEGIN CERTIFICATE----- is wanted.")
    return context


def check_certificate(cert: Path, key: Path, *, flags: tuple[str, str] = ("--tls-cert", "--tls-key")) -> None:
    """Checks that a certificate and its key can be used.

    Args:
        cert: PEM file.
        key: PEM file.
        flags: What the two are called.

    Raises:
        UsageError: If one of them is not what it should be, or they are not a pair.
    """
    for path, flag in zip((cert, key), flags, strict=True):
        read_pem(path, flag=flag)
        if not path.is_file():  # it is read twice, and OpenSSL would wait for a pipe for ever
            raise UsageError(f"{flag} {str(path)!r} is no regular file: copy what it holds to one.")
    encrypted = False

    def password() -> str:  # without this, OpenSSL would ask at the terminal
        nonlocal encrypted
        encrypted = True
        return ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password)
    except (ssl.SSLError, OSError) as error:
        if encrypted:
            why = "the key is encrypted; give one without a passphrase"
        elif isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            why = "the key is not this certificate's"
        else:
            why = "a PEM file with -----BEGIN CERTIFICATE----- and one with -----BEGIN PRIVATE KEY----- are wanted"
        raise UsageError(f"{flags[0]} {str(cert)!r} and {flags[1]} {str(key)!r} cannot be used: {why}.") from error


@dataclass(frozen=True)
class Identity:
    """A certificate and its key: what is shown to a server that wants to know who calls.

    Attributes:
        cert: PEM, with those that it takes to get to the CA's.
        key: PEM, the private one of the certificate.
    """

    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def read(cls, cert: Path | None, key: Path | None, *, flags: tuple[str, str]) -> Identity | None:
        """Reads both from their files; None if neither is named.

        Args:
            cert: PEM file.
            key: PEM file.
            flags: What the two are called.

        Raises:
            UsageError: If one of them is missing, or they cannot be used.
        """
        if cert is None and key is None:
            return None
        if cert is None or key is None:
            raise UsageError(f"{flags[0]} and {flags[1]} belong together: give both.")
        check_certificate(cert, key, flags=flags)
        return cls(cert.read_bytes(), key.read_bytes())
