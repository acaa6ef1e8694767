"""What a policy server's job says of itself: lines of a file on storage that its run sees, too.

A file that is there before the job is submitted, and is opened anew for every line and every look: network file systems
promise that who opens a file sees what was in it when the last one closed it, and promise nothing sooner.
"""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sparring.protos.net.address import Address

RESTART: Final = signal.SIGUSR2
"""Asks for a server that does not answer to be killed, and started again."""


@dataclass(frozen=True)
class ServerNews:
    """One line.

    Attributes:
        address: Where the policy is served from now on; empty: it is not, the server has ended.
        cert: PEM certificate that it shows there.
        code: The exit code of a server that has ended, or the negative number of the signal that ended it.
    """

    address: str = ""
    cert: str = ""
    code: int = 0

    def append_to(self, path: Path) -> None:
        """Writes it down. A file that is gone stays so: its run has ended."""
        if path.exists():
            with path.open("a") as file:
                file.write(json.dumps(asdict(self)) + "\n")

    @classmethod
    def of(cls, path: Path, *, known: int) -> list[ServerNews]:
        """Returns what a file has, but for so many lines that are known; a line that is not whole yet comes later."""
        try:
            *lines, _ = path.read_text(errors="replace").split("\n")
        except OSError:
            return []
        return [cls._read(line) for line in lines[known:]]

    @classmethod
    def _read(cls, line: str) -> ServerNews:
        try:
            told = json.loads(line)
            news = cls(str(told["address"]), str(told["cert"]), int(told["code"]))
            if news.address:
                Address.parse(news.address)
        except (ValueError, KeyError, TypeError):  # a node that died while it wrote
            return cls(code=1)
        return news
