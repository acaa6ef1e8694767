"""A machine far away: a network namespace, and a cable to it that can be pulled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = os.getpid() % 16_000


class Link:
    """Another network, with one way between here and there. Only root can make one.

    What is sent while the cable is out is lost, and nobody is told: connections are half open.
    """

    def __init__(self) -> None:
        third, fourth = divmod(4 * _NUMBER, 256)
        self.here = f"198.18.{third}.{fourth + 1}"  # addresses that are for benchmarks of networks, and nobody's
        self._there = f"198.18.{third}.{fourth + 2}"
        self._space = f"sc{_NUMBER}"
        self._ends = f"sch{_NUMBER}", f"sct{_NUMBER}"
        _ip("netns", "add", self._space)
        try:
            self._lay()
        except BaseException:
            _ip("netns", "delete", self._space)
            raise

    def _lay(self) -> None:
        """Lays the cable."""
        near, far = self._ends
        _ip("link", "add", near, "type", "veth", "peer", "name", far)
        _ip("link", "set", far, "netns", self._space)
        _ip("address", "add", f"{self.here}/30", "dev", near)
        _ip("link", "set", near, "up")
        for arguments in (("address", "add", f"{self._there}/30", "dev", far), ("link", "set", far, "up"),
                          ("link", "set", "lo", "up")):  # fmt: skip
            _ip("-n", self._space, *arguments)

    def command(self, command: Sequence[str]) -> list[str]:
        """Returns a command that does the same over there."""
        return ["ip", "netns", "exec", self._space, *command]

    def pull(self) -> None:
        """Pulls the cable, at the far end: who is here sees nothing of it."""
        _ip("-n", self._space, "link", "set", self._ends[1], "down")

    def plug(self) -> None:
        """Puts it in again."""
        _ip("-n", self._space, "link", "set", self._ends[1], "up")

    def close(self) -> None:
        """Takes it all away."""
        _ip("link", "delete", self._ends[0])  # with the other end, at once
        _ip("netns", "delete", self._space)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


def fault() -> str:
    """Says why there can be none here; empty if there can."""
    if os.geteuid() != 0:
        return "only root can make a network namespace"
    try:
        Link().close()
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        return f"no network namespace can be made: {said.decode(errors='replace')}"
    return ""
