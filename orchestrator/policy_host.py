"""The policy of a run: hosted by us as a child process, or somewhere else."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.settings import RunSettings
from orchestrator.supervise import Child
from policy_server.client import Description, PolicyClient
from protos.errors import SparringError, UsageError

log = logging.getLogger(__name__)

START_SECONDS: Final = 600.0
"""Large checkpoints take minutes to load."""
MAX_DEATHS: Final = 5
_CHECK_SECONDS: Final = 30.0


class PolicyHostFailed(SparringError):
    """The policy server cannot be started, or dies again and again."""


class PolicyHost:
    """Hosts the policy of a run in a process of its own, and starts it again where it was when it dies.

    Args:
        settings: Of the run.
        host: The host part of the TCP address that workers elsewhere use.
        sockets: Folder for the unix socket that workers on this machine use.
        logs: Folder for its log.
    """

    def __init__(self, settings: RunSettings, *, host: str, sockets: Path, logs: Path) -> None:
        self._settings = settings
        self._log = logs / "policy-server.log"
        self.addresses = [f"unix://{sockets}/policy.sock", f"{host}:0"]

    async def run(self, ready: asyncio.Future[None]) -> None:
        """Serves until cancelled; `ready` is set when it does.

        Raises:
            UsageError: If the policy cannot be made.
            PolicyHostFailed: If the server does not start or does not stay.
        """
        deaths = 0
        while True:
            child = await Child.start(
                "policy_server", self._arguments(), python=Path(sys.executable), log=self._log, capture_stdout=True
            )
            try:
                await self._await_start(child)
                if not ready.done():
                    ready.set_result(None)
                began = asyncio.get_running_loop().time()
                code = await child.wait()
            finally:
                await child.end()
            lived = asyncio.get_running_loop().time() - began
            deaths = deaths + 1 if lived < _CHECK_SECONDS else 1
            if deaths > MAX_DEATHS:
                raise PolicyHostFailed(
                    f"the policy server died {deaths} times soon after it had started (exit code {code}). "
                    f"Its log {str(self._log)!r} ends with:\n{child.last_words()}"
                )
            log.warning("the policy server ended with exit code %d; starting it again", code)

    async def _await_start(self, child: Child) -> None:
        try:
            line = await asyncio.wait_for(child.first_line(), START_SECONDS)
        except TimeoutError:
            raise PolicyHostFailed(
                f"the policy did not load within {START_SECONDS:g} s; see {str(self._log)!r}."
            ) from None
        if not line:
            code = await child.wait()
            kind = UsageError if code == 2 else PolicyHostFailed
            raise kind(child.last_words() or f"the policy server ended with exit code {code}; see {str(self._log)!r}.")
        # From now on the port is fixed: workers know it, a successor must have the same.
        self.addresses = json.loads(line)["listening"]

    def _arguments(self) -> list[str]:
        settings = self._settings
        return [
            f"--policy={settings.policy}",
            f"--policy-args={json.dumps(settings.policy_arguments)}",
            f"--benchmark={','.join(part.benchmark for part in settings.parts)}",
            f"--max-batch={settings.max_batch}",
            *(f"--listen={address}" for address in self.addresses),
        ]


async def describe(addresses: Sequence[str], timeout: float) -> Description:
    """What is hosted at the first of the addresses.

    Raises:
        PolicyUnreachable: If nobody answers in time.
    """

    def ask() -> Description:
        with PolicyClient(addresses[0], timeout=timeout) as client:
            return client.describe()

    return await asyncio.to_thread(ask)


def policy_identity(description: Description) -> dict[str, Any]:
    """The part of a description that decides numbers."""
    return {
        "name": description.name,
        "arguments": dict(description.arguments),
        "checkpoint_sha256": description.checkpoint_sha256,
    }
