"""Global random generators for a part of a process, as if that part were a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparring.policy_server.policies.preserve import saved_rng


class SeparateRng:
    """Keeps one part's global random generators (Python's, numpy's, torch's) apart from everybody else's."""

    def __init__(self) -> None:
        self._resume: Callable[[], None] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Lets draws go on from where this part left off; outside, nobody notices that there were any."""
        put_back = saved_rng()
        if self._resume is not None:
            self._resume()
        try:
            yield
        finally:
            self._resume = saved_rng()
            put_back()
