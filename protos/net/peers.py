"""How many connections one address may have to a server, which gRPC does not count."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from sparring.protos.net.address import Address


@dataclass
class PeerLimit:
    """Ends the connections of an address beyond so many, the newest first. A unix socket is this machine's own.

    gRPC accepts, and tells nobody: the sockets are found among this process's own (Linux), and shut down, on which gRPC
    lets go of them.

    Args:
        listening: Where the server listens.
        most: Connections of one address.
    """

    listening: Collection[Address]
    most: int
    _known: dict[int, str] = field(default_factory=dict)
    """Connections that were there the last time, oldest first: the socket's number in the kernel, and its address."""

    _ended: set[int] = field(default_factory=set)

    def enforce(self) -> list[str]:
        """Ends what is too much; returns the addresses that had it."""
        ports = {address.port for address in self.listening if not address.is_unix}
        if not ports or _open_files() <= self.most:  # as a rule: to look at them all takes time
            return []
        found = {number: (descriptor, host) for number, descriptor, host in _connections(ports)}
        self._ended &= found.keys()  # gRPC has not let go of them yet
        for number in self._ended:
            del found[number]
        order = [number for number in self._known if number in found] + [n for n in found if n not in self._known]
        self._known = {}
        counts: Counter[str] = Counter()
        over: list[str] = []
        for number in order:
            descriptor, host = found[number]
            counts[host] += 1
            if counts[host] > self.most and _shut(descriptor, number):
                over.append(host)
                self._ended.add(number)
            else:
                self._known[number] = host
        return over


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _connections(ports: Collection[int]) -> Iterable[tuple[int, int, str]]:
    """Yields the connections that were accepted at these ports: number in the kernel, descriptor, who is at the end."""
    with suppress(OSError):  # where there is no /proc nothing is found
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError, ValueError):
                descriptor = int(name)
                target = os.readlink(f"/proc/self/fd/{name}")
                if not target.startswith("socket:["):
                    continue
                with socket.socket(fileno=os.dup(descriptor)) as one:
                    if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockname()[1] in ports:
                        host = str(one.getpeername()[0])
                        yield int(target[8:-1]), descriptor, host.removeprefix("::ffff:")  # IPv4 at an IPv6 socket


def _shut(descriptor: int, number: int) -> bool:
    """Shuts a connection down, if the descriptor is still its own; returns whether."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
        if os.fstat(one.fileno()).st_ino == number:
            one.shutdown(socket.SHUT_RDWR)
            return True
    return False
