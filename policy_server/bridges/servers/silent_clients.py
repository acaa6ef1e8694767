"""Clients of wires that need not tell when one has gone: known by where they speak from, and how long ago."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from sparring.policy_server.bridges.front import ForeignClient
from sparring.policy_server.errors import EpisodeInterrupted
from sparring.policy_server.limits import ServerFull
from sparring.policy_server.rollouts import Rollouts

_SWEEP_SECONDS: Final = 5.0
_GONE_SECONDS: Final = 5.0
"""Of silence, after which a client may have gone. Robots that are there ask several times in a second."""
_MOST_REMEMBERED: Final = 1024
"""Clients that were let go and are told so when they come back."""

Who = TypeVar("Who", bound=Hashable)


@dataclass
class _Connection:
    client: ForeignClient
    host: str
    counted: contextlib.ExitStack
    heard: float = field(default_factory=time.monotonic)


class SilentClients(Generic[Who]):
    """The clients of a wire, each with one of the server's sessions.

    Args:
        rollouts: Who counts the sessions.
        make: Makes a client's session.

    Most do not say when they have gone. One that has said nothing for some seconds is let go for another of the same
    address; of another address it may be a robot between two steps. Who is being answered is not let go.
    """

    def __init__(self, rollouts: Rollouts, make: Callable[[], Awaitable[ForeignClient]]) -> None:
        self._rollouts = rollouts
        self._make = make
        self._connections: dict[Who, _Connection] = {}
        self._asking: Counter[Who] = Counter()
        """How many answers each waits for: some ask before they have one."""
        self._let_go: dict[Who, None] = {}
        """Who was let go, and has not begun again; the last ones of them."""

    def is_answered(self, who: Who) -> bool:
        """Returns whether somebody is being answered."""
        return who in self._asking

    def asks(self, who: Who) -> None:
        """Says that somebody has asked, and is being answered from now on."""
        self._asking[who] += 1

    def has_answer(self, who: Who) -> None:
        """Says that one of its answers is given, or given up."""
        self._asking[who] -= 1
        if not self._asking[who]:
            del self._asking[who]

    async def get(self, who: Who, host: str, *, begins: bool) -> ForeignClient:
        """Returns the session of a client, a new one if it has none.

        Args:
            who: It is, to its wire.
            host: Where it speaks from.
            begins: Whether it begins an episode, and needs nothing of what it has said before.

        Raises:
            ServerFull: If the server is full, and there is nobody who could be let go.
            EpisodeInterrupted: If it was let go in the middle of an episode.
        """
        found = self._connections.get(who)
        if found is None:
            if who in self._let_go and not begins:
                raise EpisodeInterrupted(
                    "this client was let go: it had said nothing for a while, and others wanted its session. What it "
                    "had said is forgotten; start it again."
                )
            counted = contextlib.ExitStack()
            try:
                counted.enter_context(self._rollouts.foreign_session(host))
            except ServerFull:
                self._let_go_of_one(host)
                counted.enter_context(self._rollouts.foreign_session(host))
            try:
                found = _Connection(await self._make(), host, counted)
            except BaseException:
                counted.close()
                raise
            if who in self._connections:  # it has asked twice at once
                counted.close()
            found = self._connections.setdefault(who, found)
            self._let_go.pop(who, None)
        found.heard = time.monotonic()
        return found.client

    def leaves(self, who: Who) -> None:
        """Lets go of one whose connection has ended, if it has a session."""
        if (found := self._connections.pop(who, None)) is not None:
            found.counted.close()
        self._let_go.pop(who, None)

    async def sweep(self) -> None:
        """Lets go of who has said nothing for long, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for who in self._silent(self._rollouts.limits.idle_seconds):
                self._forget(who)

    def close(self) -> None:
        """Lets go of all."""
        while self._connections:
            self._connections.popitem()[1].counted.close()

    def _let_go_of_one(self, host: str) -> None:
        silent = [who for who in self._silent(_GONE_SECONDS) if self._connections[who].host == host]
        if silent:
            self._forget(min(silent, key=lambda who: self._connections[who].heard))

    def _forget(self, who: Who) -> None:
        self._connections.pop(who).counted.close()
        self._let_go[who] = None
        if len(self._let_go) > _MOST_REMEMBERED:
            del self._let_go[next(iter(self._let_go))]

    def _silent(self, seconds: float) -> list[Who]:
        since = time.monotonic() - seconds
        return [who for who, it in self._connections.items() if it.heard <= since and not self.is_answered(who)]
