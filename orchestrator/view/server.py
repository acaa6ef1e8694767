"""Serves the pages over HTTP, in a thread of its own: a run goes on beside it, or nothing does."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command
from sparring.protos.net.access import check_certificate, check_reach, read_token
from sparring.protos.net.address import Address
from sparring.protos.net.bounded_listener import BoundedListener

if TYPE_CHECKING:
    from sparring.orchestrator.view.pages import Pages

log = logging.getLogger(__name__)

DEFAULT_LISTEN: Final = Address("tcp", "127.0.0.1", 8737)
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
_GOODBYE_SECONDS: Final = 2.0


@dataclass(frozen=True)
class ViewOptions:
    """How pages are served.

    Attributes:
        listen: Where; None: at `DEFAULT_LISTEN`, or any free port if that is taken.
        token_file: With the token that viewers must bring.
        tls_cert: PEM certificate: encrypts it.
        tls_key: Its key.
        insecure: Whether everybody may look, from wherever.
        prefix: Of the names that these have where they are given.
    """

    listen: Address | None = None
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    prefix: str = ""

    def token(self) -> str:
        """Returns the token that viewers must bring; empty: none.

        Raises:
            UsageError: If it cannot be read, or nobody would have to bring one from beyond this machine.
        """
        address = self.listen or DEFAULT_LISTEN
        token_file = Hint(f"{self.prefix}token_file")
        check_reach(
            address,
            who="the live page",
            secret=self.token_file is not None,
            insecure=self.insecure,
            advice=f"give {token_file}",
        )
        if address.is_unix:
            raise UsageError("browsers open no unix sockets: give HOST:PORT for the live page.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("a certificate and its key belong together: give both.")
        if self.tls_cert is not None and self.tls_key is not None:
            check_certificate(self.tls_cert, self.tls_key)
        return "" if self.token_file is None else read_token(self.token_file, flag=str(token_file))


class ViewServer:
    """Listens from the moment that it is made, and answers from `start` to `stop`.

    Args:
        options: Where, and who may look.

    Raises:
        UsageError: If a library is missing, the address cannot be listened at, or everybody would be let in.
    """

    def __init__(self, options: ViewOptions) -> None:
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
        except ModuleNotFoundError as error:
            how = install_command("view") or "pip install starlette uvicorn"
            raise UsageError(f"the live page needs {error.name}; install it: {how}") from None
        self._token = options.token()
        self._options = options
        self._socket = _listening(options)
        port = self._socket.getsockname()[1]
        wanted = options.listen or DEFAULT_LISTEN
        scheme = "tcp" if options.tls_cert is None else "tls"
        self.address = Address(scheme, wanted.host, port)  # type: ignore[arg-type] # one of the two
        self._thread: threading.Thread | None = None
        self._server: Any = None
        self._pages: Pages | None = None

    @property
    def url(self) -> str:
        """What a browser on this machine opens."""
        host = "127.0.0.1" if self.address.is_every_interface else self.address.host
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.address.is_encrypted else 'http'}://{shown}:{self.address.port}/"

    def start(self, pages: Pages) -> None:
        """Begins to answer; returns when it does."""
        import uvicorn

        from sparring.orchestrator.view.access import Access, Guard
        from sparring.orchestrator.view.connections import PromptRequests, limit_handshakes

        self._pages = pages
        app = Guard(pages.app(), Access(self.address, self._token))
        tls: dict[str, Any] = {}
        if self._options.tls_cert is not None:
            tls = {"ssl_certfile": str(self._options.tls_cert), "ssl_keyfile": str(self._options.tls_key)}
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="error",
            access_log=False,
            loop="asyncio",
            http=PromptRequests,
            ws="none",
            lifespan="off",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
            **tls,
        )
        self._server = uvicorn.Server(config)
        started = threading.Event()
        server = self._server

        async def startup(sockets: list[socket.socket] | None = None) -> None:
            if tls:
                limit_handshakes(asyncio.get_running_loop())
            await type(server).startup(server, sockets)
            started.set()

        server.startup = startup
        run = threading.Thread(target=server.run, args=([self._socket],), name="view", daemon=True)
        self._thread = run
        run.start()
        if not started.wait(_START_SECONDS):
            raise UsageError(f"the live page did not begin within {_START_SECONDS:g} s.")

    def stop(self) -> None:
        """Ends it, and everybody's connection: who looks sees the last of it first."""
        if self._server is not None and self._thread is not None and self._pages is not None:
            self._pages.say_goodbye(_GOODBYE_SECONDS)
            self._server.should_exit = True
            self._thread.join(_STOP_SECONDS)
        self._socket.close()


def _listening(options: ViewOptions) -> socket.socket:
    wanted = options.listen or DEFAULT_LISTEN
    try:
        return _bound(wanted)
    except OSError as error:
        if options.listen is None and error.errno == errno.EADDRINUSE:
            return _bound(wanted.with_port(0))  # nobody has asked for this very port
        taken = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise UsageError(
            f"the live page cannot be served at '{wanted}': {taken}. Give another {Hint(f'{options.prefix}listen')}."
        ) from error


def _bound(address: Address) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    from sparring.orchestrator.view.connections import most_connections

    bound = BoundedListener(family, kind, protocol, most=most_connections())
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
        bound.listen(128)
    except OSError:
        bound.close()
        raise
    bound.set_inheritable(False)
    return bound
