"""Where a server listens or is dialled: a value, read once from what a person wrote.

On the wire, in files and on command lines an address is text; whoever takes it in from there parses it, here, and
nobody else cuts such text. Imports neither gRPC nor numpy: a worker that waits for runs must stay small.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from sparring.protos.errors import UsageError

Scheme = Literal["tcp", "tls", "unix"]

FORMS: Final = "HOST:PORT, tls://HOST:PORT or unix:///path"
"""How addresses are written."""

_EVERY_INTERFACE: Final = "0.0.0.0"
_TLS: Final = "tls://"
_UNIX: Final = "unix:"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


@dataclass(frozen=True)
class Address:
    """One address. `str()` writes it as a person would, and `parse` reads that again.

    Attributes:
        scheme: How it is reached: plain TCP, TCP with TLS, or a unix socket.
        host: Name or number of the machine, without brackets; empty for a unix socket.
        port: Of TCP; where a server listens, 0 means any that is free.
        path: Of a unix socket.
    """

    scheme: Scheme
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str | Address) -> Address:
        """Reads `HOST:PORT`, `tls://HOST:PORT` or `unix:///path`; an address that is one already stays what it is.

        Raises:
            UsageError: If it is none of these.
        """
        if isinstance(text, Address):
            return text
        if text.startswith(_UNIX):
            return cls("unix", path=_socket_path(text))
        inner = text.removeprefix(_TLS)
        encrypted = inner != text
        if encrypted and inner.startswith(_UNIX):
            raise UsageError(f"{text!r} is a unix socket, which is never encrypted: leave out {_TLS}")
        if found := _SCHEME.match(inner):
            raise UsageError(f"{text!r} is not an address: {found[1]}:// is not known; give {FORMS}.")
        host, _, port = inner.rpartition(":")
        return cls("tls" if encrypted else "tcp", _host(host, text), _port(port, text))

    @classmethod
    def listening(cls, text: str | Address) -> Address:
        """Reads where a server shall listen: as `parse`, and `:PORT` for every interface of this machine.

        Raises:
            UsageError: If it is none of these.
        """
        return cls.parse(f"{_EVERY_INTERFACE}{text}" if isinstance(text, str) and text.startswith(":") else text)

    @classmethod
    def unix(cls, path: Path) -> Address:
        """Returns the address of a socket in the file system."""
        return cls("unix", path=str(path))

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}" if self.path.startswith("/") else f"{_UNIX}{self.path}"
        return f"{_TLS if self.scheme == 'tls' else ''}{self._netloc}"

    @property
    def target(self) -> str:
        """The address as gRPC takes it, to dial or to listen; whether it is encrypted, gRPC is told otherwise."""
        if self.scheme == "unix":
            return f"{_UNIX}{quote(self.path)}"  # gRPC would take %20 in a path for a blank
        return self._netloc

    @property
    def is_unix(self) -> bool:
        """Whether it is a socket in the file system."""
        return self.scheme == "unix"

    @property
    def is_encrypted(self) -> bool:
        """Whether it asks for TLS."""
        return self.scheme == "tls"

    @property
    def is_every_interface(self) -> bool:
        """Whether it means all addresses of a machine (0.0.0.0): one can listen there, and not dial it."""
        found = _number(self.host)
        return found is not None and found.is_unspecified

    @property
    def is_local(self) -> bool:
        """Whether it means the machine of whoever says it: a unix socket, localhost, every interface."""
        return self.is_every_interface or not self.leaves_the_machine

    @property
    def leaves_the_machine(self) -> bool:
        """Whether what is sent to it, or received at it, may pass over a network."""
        if self.is_unix or self.host.lower() == "localhost":
            return False
        found = _number(self.host)
        return found is None or not found.is_loopback

    def with_host(self, host: str) -> Address:
        """Returns the same port of another machine."""
        return replace(self, host=host)

    def with_port(self, port: int) -> Address:
        """Returns another port of the same machine."""
        return replace(self, port=port)

    def with_tls(self) -> Address:
        """Returns the same place, asked for TLS; a unix socket, which leaves no machine, stays plain."""
        return self if self.is_unix else replace(self, scheme="tls")

    def reached_at(self, other: Address) -> Address:
        """Returns it as someone dials it who has reached the machine elsewhere: every interface is that address."""
        return self.with_host(other.host) if self.is_every_interface and not other.is_unix else self

    @property
    def _netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def came_by_socket(peer: str) -> bool:
    """Returns whether a caller, as gRPC names it, has come through a unix socket."""
    return peer.startswith(_UNIX)


def parse_servers(text: str) -> list[Address]:
    """Reads the servers of a comma-separated list; blanks around them do not count.

    Raises:
        UsageError: If one is no address, or is named twice.
    """
    addresses = [Address.parse(part.strip()) for part in text.split(",")]
    for address in addresses:
        if addresses.count(address) > 1:
            raise UsageError(f"the server {address} is named twice in {text!r}.")
    return addresses


def peer_host(peer: str) -> str:
    """Returns the machine of a caller, as gRPC names it (`ipv4:10.0.0.7:41234`); empty for a unix socket."""
    kind, _, place = peer.partition(":")
    return "" if kind == "unix" else f"{kind}:{place.rpartition(':')[0]}"


def parse_tcp(text: str) -> Address:
    """Returns where something listens that knows TCP and nothing else: `HOST:PORT`, or `:PORT` for every interface.

    Raises:
        UsageError: If it is neither.
    """
    try:
        address = Address.listening(text)
    except UsageError as error:
        raise UsageError(f"{text!r} is not HOST:PORT or :PORT, with a port up to 65535.") from error
    if address.scheme != "tcp":
        raise UsageError(f"{text!r} is not HOST:PORT or :PORT, with a port up to 65535.")
    return address


def parse_listen(text: str) -> Address:
    """Returns where something listens that may be reached by TCP or by a socket in the file system.

    Raises:
        UsageError: If it is neither.
    """
    return Address.parse(text) if text.startswith(_UNIX) else parse_tcp(text)


def _socket_path(text: str) -> str:
    path = text.removeprefix(_UNIX)
    if path.startswith("//"):
        if not path.startswith("///"):
            raise UsageError(f"{text!r} is not the address of a socket: before a whole path there are three slashes.")
        path = path[2:]
    if not path.strip("/"):
        raise UsageError(f"{text!r} is not an address: the path of the socket is missing.")
    return path


def _host(host: str, text: str) -> str:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in bare and bare == host:
        raise UsageError(f"{text!r} is not an address: write an IPv6 number in brackets, as in [::1]:50051.")
    if not bare or re.search(r"[\s/\[\],@]", bare):
        raise UsageError(_not_an_address(text))
    return bare


def _port(port: str, text: str) -> int:
    # gRPC would take 99999 for 34463, and say nothing.
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise UsageError(_not_an_address(text))
    return int(port)


def _not_an_address(text: str) -> str:
    return f"{text!r} is not an address: give {FORMS}, with a port up to 65535."


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
