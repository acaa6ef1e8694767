"""Where a slot opens its sessions: at the one policy server there is, or at one of several with the same policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from sparring.policy_server.client import Offer, PolicyClient, PolicyFull, PolicyUnreachable, RemoteSession
from sparring.protos.conditions import Conditions
from sparring.protos.net.address import Address

_WELCOME_SECONDS: Final = 5.0
"""Seconds for one of several servers to welcome a session; saying welcome needs no forward pass."""
_ROUND_PAUSE: Final = 0.2
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 8.0
"""Seconds before a slot that got no session tries again. Not longer: it keeps an episode that others could play."""
_LOOK_HOME_SECONDS: Final = 30.0
"""After so long elsewhere a slot looks whether its own server is back."""

Connect = Callable[[Address], PolicyClient]


class PolicyServers:
    """Opens a slot's sessions, one at a time.

    A slot has a server of its own and stays there, so that sessions are spread evenly. When that one cannot be had, the
    next one that can is taken; and now and then, between two episodes, the slot looks whether its own is back.

    Args:
        addresses: Of the servers.
        home: Which of them is this slot's own.
        timeout: Seconds after which none of them can be had.
        connect: Makes a client.
    """

    def __init__(self, addresses: Sequence[Address], *, home: int, timeout: float, connect: Connect) -> None:
        self._addresses = list(addresses)
        self._home = self._at = home % len(addresses)
        self._timeout = timeout
        self._connect = connect
        self._client: PolicyClient | None = None
        self._left_home = time.monotonic()
        self._pause = _FIRST_PAUSE

    def open(self, offer: Offer, *, benchmark: str, client: str, conditions: Conditions | None = None) -> RemoteSession:
        """Opens a session; where the server is full, tries once more after a pause, which grows from time to time.

        Raises:
            PolicyRefused: If the policy does not fit what is offered.
            PolicyDenied: If token or TLS are not what the server wants.
            PolicyFull: If it is still full: others may play the episode meanwhile.
            PolicyUnreachable: If no server can be had in time.
        """
        try:
            session = self._open(offer, benchmark=benchmark, client=client, conditions=conditions)
        except PolicyFull:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            session = self._open(offer, benchmark=benchmark, client=client, conditions=conditions)
        self._pause = _FIRST_PAUSE
        return session

    def _open(self, offer: Offer, **hello: Any) -> RemoteSession:
        deadline = time.monotonic() + self._timeout
        if len(self._addresses) == 1:
            return self._open_at_last(offer, deadline=deadline, **hello)
        while True:
            full: PolicyFull | None = None
            for place in [*range(self._at, len(self._addresses)), *range(self._at)]:
                left = deadline - time.monotonic()
                try:
                    session = self._client_at(place).open(
                        offer, connect_timeout=max(0.1, min(_WELCOME_SECONDS, left)), **hello
                    )
                except PolicyUnreachable as error:
                    last = error
                    full = error if isinstance(error, PolicyFull) else full
                    continue
                if place != self._home and self._at == self._home:
                    self._left_home = time.monotonic()
                self._at = place
                return session
            if full is not None:
                raise full
            if time.monotonic() >= deadline:
                raise PolicyUnreachable(
                    f"none of {len(self._addresses)} policy servers took a session within {self._timeout:g} s. "
                    f"The last to be asked: {last.sentence}"
                ) from last
            time.sleep(_ROUND_PAUSE)

    def _open_at_last(self, offer: Offer, *, deadline: float, **hello: Any) -> RemoteSession:
        """Opens a session at the only server; waits for one that dies while it is asked as if it were not there yet."""
        while True:
            try:
                return self._client_at(0).open(offer, **hello)
            except PolicyFull:
                raise
            except PolicyUnreachable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_ROUND_PAUSE)

    def wants_home(self) -> bool:
        """Returns whether it is time to try the slot's own server again; the next session then tries it first."""
        if self._at == self._home or time.monotonic() - self._left_home < _LOOK_HOME_SECONDS:
            return False
        self._at = self._home
        return True

    def close(self) -> None:
        """Closes the connection and every session on it."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _client_at(self, place: int) -> PolicyClient:
        address = self._addresses[place]
        if self._client is not None and self._client.address != address:
            self.close()
        if self._client is None:
            self._client = self._connect(address)
        return self._client


def nearest(addresses: Sequence[Address]) -> Address:
    """Returns the first address that can be reached from this machine: a unix socket that is there, else TCP."""
    for address in addresses:
        if not address.is_unix or Path(address.path).exists():
            return address
    return addresses[-1]
