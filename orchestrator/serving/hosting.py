"""Who hosts the policy of a run: a child process beside it, or machines of a cluster."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.serving.policy_host import PolicyAccess, ServerWatch


class Hosting(Protocol):
    """Keeps the policy servers of a run alive.

    Attributes:
        watch: Told when a server ends, and when there is one again.
        on_moved: Told where the policy is now, when that is somewhere else.
    """

    watch: ServerWatch | None
    on_moved: Callable[[PolicyAccess], None] | None

    @property
    def access(self) -> PolicyAccess:
        """Where the policy is, as soon as it is there."""

    async def run(self, ready: asyncio.Future[None]) -> None:
        """Serves until cancelled; `ready` is set when it does.

        Raises:
            UsageError: If the policy cannot be made.
            PolicyHostFailed: If a server does not start or does not stay.
        """

    def restart(self, reason: str, *, only_if_stopped: bool = False) -> bool:
        """Has servers killed that do not answer, so that others are started; returns whether they are.

        Args:
            reason: What they did, as the end of a sentence.
            only_if_stopped: Whether they are left alone unless somebody has stopped them.
        """

    def session_broke(self) -> bool:
        """Hears that a session broke off; returns whether nothing is to be played until it is known what that was.

        `watch` is told as soon as it is.
        """


class ClusterHosting(ABC):
    """Hosts the policy of a run on machines of a cluster, where it may have to wait for its turn."""

    @abstractmethod
    def check(self) -> None:
        """Looks for whatever would keep it from starting, before anything is started.

        Raises:
            SparringError: With what to do about it.
        """

    @abstractmethod
    def preview(self) -> Sequence[str]:
        """Returns lines on what it would start, for `sparring run --dry-run`; starts nothing."""

    @abstractmethod
    def host(self, folder: Path, rules: RetryRules) -> Hosting:
        """Returns what hosts the policy. May take seconds; it is called in a thread of its own.

        Args:
            folder: Of the run.
            rules: How often a server is started again.
        """
