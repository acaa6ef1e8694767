"""Says now and then that a slot waits for the policy: its simulator does not stall meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from sparring.env_worker.episode.session import Session
from sparring.policy_server.client import Description
from sparring.protos.chunk import Chunk
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array

EVERY_SECONDS: Final = 1.0
_LOOKS: Final = 4
"""In that time: a wait may begin at any moment, and is to be told of soon after it has lasted so long."""


class PolicyWait:
    """Knows whether the policy is waited for, and says so once a second, from a thread of its own, while it is.

    Each wait has a deadline, and whoever is never done with one is taken for stalled after all.

    Args:
        tell: Called in that thread.
        longest: Seconds of one wait after which nothing is said any more.
        every: Seconds between two times.
    """

    def __init__(self, tell: Callable[[], None], longest: float, *, every: float = EVERY_SECONDS) -> None:
        self._tell = tell
        self._every = every
        self.longest = longest
        self._since: float | None = None
        threading.Thread(target=self._watch, name="policy-wait", daemon=True).start()

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Waits for the policy, inside."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def _watch(self) -> None:
        told = 0.0
        while True:
            time.sleep(self._every / _LOOKS)
            since, now = self._since, time.monotonic()
            if since is not None and now - max(since, told) >= self._every and now - since <= self.longest:
                told = now
                self._tell()


class WatchedSession:
    """A session whose waits are known."""

    def __init__(self, session: Session, wait: PolicyWait) -> None:
        self.session = session
        self._wait = wait

    @property
    def needs(self) -> PolicySpec:
        return self.session.needs

    @property
    def policy(self) -> Description | None:
        return getattr(self.session, "policy", None)

    def start(self, *, task: str = "", instruction: str = "", seed: int = 0, index: int = 0) -> None:
        with self._wait.begun():
            self.session.start(task=task, instruction=instruction, seed=seed, index=index)

    def act(self, tensors: Mapping[str, Array], *, step: int) -> Chunk:
        with self._wait.begun():
            return self.session.act(tensors, step=step)
