"""Where a foreign server is: `openpi://HOST:PORT/path`, read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sparring.protos.errors import UsageError

_TLS: Final = "+tls"


@dataclass(frozen=True)
class Endpoint:
    """Address of a server that speaks somebody else's wire.

    Attributes:
        wire: Its name: openpi.
        host: Of the server, without brackets.
        port: Of the server.
        path: After the port, with its slash; empty if there is none.
        encrypted: Whether it is asked for TLS.
    """

    wire: str
    host: str
    port: int
    path: str = ""
    encrypted: bool = False

    @classmethod
    def parse(cls, text: str, *, port: int) -> Endpoint:
        """Reads `SCHEME://HOST[:PORT][/path]`, or the same with `SCHEME+tls`.

        Args:
            text: As a person wrote it.
            port: That is meant if none is given.

        Raises:
            UsageError: If it is no such address.
        """
        try:
            parts = urlsplit(text)
            host, found = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{text!r} is not SCHEME://HOST:PORT: {error}.") from error
        if not host or parts.query or parts.fragment or parts.username is not None:
            raise UsageError(f"{text!r} is not SCHEME://HOST:PORT: write it as in openpi://gpu-box:{port}.")
        encrypted = parts.scheme == "https" or parts.scheme.endswith(_TLS)
        wire = "http" if parts.scheme == "https" else parts.scheme.removesuffix(_TLS)
        return cls(wire, host, port if found is None else found, parts.path.rstrip("/"), encrypted)

    def __str__(self) -> str:
        scheme = f"{self.wire}{_TLS if self.encrypted else ''}" if self.wire != "http" else self._http
        return f"{scheme}://{self.netloc}{self.path}"

    @property
    def netloc(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where HTTP finds it."""
        return f"{self._http}://{self.netloc}{self.path}"

    @property
    def websocket(self) -> str:
        """Where a web socket finds it."""
        return f"{'wss' if self.encrypted else 'ws'}://{self.netloc}{self.path}"

    @property
    def _http(self) -> str:
        return "https" if self.encrypted else "http"
