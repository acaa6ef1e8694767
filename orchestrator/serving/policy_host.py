"""The policy of a run: hosted by us as a child process, or somewhere else."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.registry import experts_of
from sparring.orchestrator.machine.child import Child, open_socket
from sparring.orchestrator.run.retry import RetryRules
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import Description, PolicyClient, ServerOptions
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import read_ca, read_token
from sparring.protos.net.address import Address

log = logging.getLogger(__name__)

START_SECONDS: Final = 600.0
"""Large checkpoints take minutes to load."""
_OWN_ARGUMENT: Final = "device"


class PolicyHostFailed(SparringError):
    """The policy server cannot be started, or dies again and again."""


class PolicyHost:
    """Hosts the policy of a run in a process of its own, and starts it again where it was when it dies.

    Args:
        settings: Of the run.
        host: The host part of the TCP address that workers elsewhere use.
        sockets: Folder for the unix socket that workers on this machine use.
        logs: Folder for its log.
        rules: How often it is started again.
    """

    def __init__(self, settings: RunSettings, *, host: str, sockets: Path, logs: Path, rules: RetryRules) -> None:
        self._settings = settings
        self._rules = rules
        self._log = logs / "policy-server.log"
        self.addresses = [Address.unix(sockets / "policy.sock"), Address("tcp", host)]

    async def run(self, ready: asyncio.Future[None]) -> None:
        """Serves until cancelled; `ready` is set when it does.

        Raises:
            UsageError: If the policy cannot be made.
            PolicyHostFailed: If the server does not start or does not stay.
        """
        deaths = 0
        while True:
            child = await Child.start(
                "sparring.policy_server",
                self._options().arguments(),
                python=Path(sys.executable),
                log=self._log,
                capture_stdout=True,
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
            deaths = deaths + 1 if lived < self._rules.policy_server_settled else 1
            if self._rules.gives_up_policy_server(deaths):
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
        self.addresses = [Address.parse(text) for text in json.loads(line)["listening"]]
        open_socket(self.addresses[0])

    def _options(self) -> ServerOptions:
        experts = experts_of(part.benchmark for part in self._settings.plan.parts)
        return self._settings.policy.server_options(experts=experts, listen=tuple(map(str, self.addresses)))


@dataclass(frozen=True)
class PolicyAccess:
    """Where the policy of a run is, and what it takes to be let in there.

    Attributes:
        addresses: Nearest first; or, with `replicas`, so many servers of one and the same policy.
        token: Secret that the servers want; empty: none. It goes to workers and nowhere else.
        ca: PEM certificates to trust there.
        replicas: Whether sessions are spread over all addresses.
    """

    addresses: Sequence[Address]
    token: str = field(default="", repr=False)
    ca: bytes = field(default=b"", repr=False)
    replicas: bool = False

    @classmethod
    def elsewhere(cls, settings: RunSettings) -> PolicyAccess:
        """Returns the access to the servers that the settings name.

        Raises:
            UsageError: If the token's file or the CA's cannot be used.
        """
        policy = settings.policy
        addresses, token_file, ca = policy.servers, policy.policy_token_file, policy.policy_ca
        for address in addresses:
            if token_file and not ca and address.leaves_the_machine and not address.is_encrypted:
                log.warning("the token travels unencrypted to %s; a server with TLS is at tls://HOST:PORT", address)
        return cls(
            addresses,
            token=read_token(token_file, flag=str(Hint("policy_token_file"))) if token_file else "",
            ca=read_ca(ca, flag=str(Hint("policy_ca"))) if ca else b"",
            replicas=len(addresses) > 1,
        )

    @property
    def servers(self) -> Sequence[Address]:
        """An address of each server."""
        return self.addresses if self.replicas else self.addresses[:1]


async def describe(access: PolicyAccess, timeout: float) -> Description:
    """Asks what is hosted there: by the one server, or by all of them alike.

    Raises:
        PolicyDenied: If a server does not let us in.
        PolicyUnreachable: If one does not answer in time.
        UsageError: If they do not all host the same policy, with the difference.
    """

    def ask(address: Address) -> Description:
        with PolicyClient(address, timeout=timeout, token=access.token, ca=access.ca) as client:
            return client.describe()

    descriptions = await asyncio.gather(*(asyncio.to_thread(ask, address) for address in access.servers))
    for address, description in zip(access.servers, descriptions, strict=True):
        difference = _difference(descriptions[0], description)
        if difference:
            lines = "\n".join(
                f"  {name}: {here} at {access.servers[0]}, {there} at {address}" for name, here, there in difference
            )
            raise UsageError(
                f"the policy servers do not host the same policy:\n{lines}\nStart them alike, or name one of them."
            )
    return descriptions[0]


def _difference(one: Description, other: Description) -> list[tuple[str, str, str]]:
    """Returns what two servers do not agree on, of what decides numbers. The device is each one's own affair."""
    found = []
    here, there = (
        {
            "policy": d.name,
            "checkpoint": d.checkpoint_sha256 or "no checkpoint",
            "needs": d.needs.to_message().SerializeToString(deterministic=True),
            **{f"argument {k}": v for k, v in d.arguments.items() if k != _OWN_ARGUMENT},
        }
        for d in (one, other)
    )
    for name in {**here, **there}:
        if here.get(name) != there.get(name):
            shown = ("some observations or actions", "others") if name == "needs" else ()
            values = shown or [
                json.dumps(side[name]) if side.get(name) is not None else "none" for side in (here, there)
            ]
            found.append((name, *values))
    return [(name, a, b) for name, a, b in found]


def policy_identity(description: Description) -> dict[str, Any]:
    """Returns the part of a description that decides numbers."""
    return {
        "name": description.name,
        "arguments": dict(description.arguments),
        "checkpoint_sha256": description.checkpoint_sha256,
    }
