"""A way to a server that can go dead: connections stay, and nothing comes through any more."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class HalfOpen:
    """Forwards what comes to `address` until `cut` is called; then it is silent, and closes nothing.

    Args:
        target: Host and port of the server.
        source: The address that the server sees callers come from; any of 127.0.0.0/8 will do.
    """

    def __init__(self, target: str, source: str = "127.0.0.1") -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._source = (source, 0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listening]
        self._dead = threading.Event()
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Forwards nothing more."""
        self._dead.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(self._target, source_address=self._source)
                self._sockets += [near, far]
                for here, there in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(here, there), daemon=True).start()

    def _pump(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 16):
                if self._dead.is_set():
                    return
                there.sendall(data)
            there.shutdown(socket.SHUT_WR)

    def __enter__(self) -> HalfOpen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets:
            each.close()
