"""The policy of a run: hosted by us as a child process, or somewhere else."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from sparring.env_worker.registry import experts_of
from sparring.orchestrator.machine.child import Child, open_socket
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import Description, PolicyClient, ServerOptions
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import Identity, in_a_pipe, in_memory, new_token, read_ca, read_token
from sparring.protos.net.address import Address
from sparring.protos.process import is_stopped, signal_name

log = logging.getLogger(__name__)

START_SECONDS: Final = 600.0
"""Large checkpoints take minutes to load."""
_OWN_ARGUMENT: Final = "device"
_KILLERS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""Who ends by one of these was ended by somebody, or for lack of memory; by others, a program ends itself."""


class PolicyHostFailed(SparringError):
    """The policy server cannot be started, or dies again and again."""


@dataclass(frozen=True)
class ServerEnd:
    """How a policy server ended.

    Attributes:
        kind: "crashed" by itself, "hung" and was killed for it, or "killed" or stopped by somebody.
        sentence: The same for people, as the end of a sentence: "ended with exit code 9".
    """

    kind: Literal["crashed", "hung", "killed"]
    sentence: str


class ServerWatch(Protocol):
    """Wants to know what becomes of the hosted policy server."""

    def policy_ended(self, end: ServerEnd) -> bool:
        """Called when it has ended; returns whether that is explained, and no reason to give the run up."""

    def policy_ready(self) -> None:
        """Called when it serves again."""


class PolicyHost:
    """Hosts the policy of a run in a process of its own, and starts it again where it was when it dies.

    Args:
        settings: Of the run.
        host: The host part of the TCP address that workers elsewhere use.
        sockets: Folder for the unix socket that workers on this machine use.
        folder: Of the run: its log and its tracebacks are in there.
        rules: How often it is started again.
        identity: Encrypts what comes over TCP; None: nothing does.
    """

    def __init__(
        self,
        settings: RunSettings,
        *,
        host: str,
        sockets: Path,
        folder: Path,
        rules: RetryRules,
        identity: Identity | None = None,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._rules = rules
        self._folder = folder
        self._log = folder / "logs" / "policy-server.log"
        self.addresses = [Address.unix(sockets / "policy.sock"), Address("tcp", host)]
        self._child: Child | None = None
        self._verdict: ServerEnd | None = None
        self.watch: ServerWatch | None = None
        """Told when the server ends, and when it is back."""
        self.on_moved: Callable[[PolicyAccess], None] | None = None
        """Never called: it is started again where it was."""
        self.token = new_token()
        """Of this run's own workers, and nobody else's: its TCP port can be reached by every user of this machine."""

    @property
    def access(self) -> PolicyAccess:
        """Where it is."""
        return PolicyAccess(self.addresses, token=self.token)

    @property
    def pid(self) -> int | None:
        """Of the server's process; None: there is none now."""
        return None if self._child is None else self._child.pid

    async def run(self, ready: asyncio.Future[None]) -> None:
        """Serves until cancelled; `ready` is set when it does.

        Raises:
            UsageError: If the policy cannot be made.
            PolicyHostFailed: If the server does not start or does not stay.
        """
        deaths = 0
        while True:
            self._verdict = None
            with in_a_pipe(self.token) as (token_file, reading), tls_files(self._identity) as (tls, numbers):
                child = await Child.start(
                    "sparring.policy_server",
                    self._options(token_file, tls).arguments(),
                    python=Path(sys.executable),
                    log=self._log,
                    capture_stdout=True,
                    pass_fds=[reading, *numbers],
                )
            began = asyncio.get_running_loop().time()
            try:
                if await self._starts(child, again=ready.done()):
                    if not ready.done():
                        ready.set_result(None)
                    elif self.watch is not None:
                        self.watch.policy_ready()
                    began = asyncio.get_running_loop().time()
                    self._child = child
                code = await child.wait()
            finally:
                self._child = None
                await child.end()
            lived = asyncio.get_running_loop().time() - began
            deaths = deaths + 1 if lived < self._rules.policy_server_settled else 1
            end = self._verdict or end_of(code)
            if self.watch is not None and self.watch.policy_ended(end):
                deaths = 0
            if self._rules.gives_up_policy_server(deaths):
                raise PolicyHostFailed(
                    f"the policy server died {deaths} times soon after it had started (exit code {code}). "
                    f"Its log {str(self._log)!r} ends with:\n{child.last_words()}"
                )
            log.warning("the policy server %s; starting it again", end.sentence)

    def restart(self, reason: str, *, only_if_stopped: bool = False) -> bool:
        """Kills the server, which does not answer, so that another is started; returns whether it was.

        Args:
            reason: What it did, as the end of a sentence.
            only_if_stopped: Whether it is left alone unless somebody has stopped its process.
        """
        if self._child is None or self._verdict is not None:
            return False
        if is_stopped(self._child.pid):
            self._verdict = ServerEnd("killed", "was stopped by somebody, and killed because it did not answer")
        elif only_if_stopped:
            return False
        else:
            self._verdict = ServerEnd("hung", reason)
        self._child.kill()
        return True

    def session_broke(self) -> bool:
        """Returns False: that a child has ended is heard at once, and what else it was is the session's affair."""
        return False

    async def _starts(self, child: Child, *, again: bool) -> bool:
        """Waits until the server serves; returns False if somebody has killed it before, and it may be tried again."""
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await child.first_line()
        except TimeoutError:
            raise PolicyHostFailed(
                f"the policy did not load within {START_SECONDS:g} s; see {str(self._log)!r}."
            ) from None
        if not line:
            code = await child.wait()
            if code < 0:
                if again:
                    return False
                raise PolicyHostFailed(
                    f"the policy server {end_of(code).sentence} while it loaded the policy. Did memory run out? "
                    f"Its log {str(self._log)!r} ends with:\n{child.last_words()}"
                )
            kind = UsageError if code == 2 else PolicyHostFailed
            raise kind(child.last_words() or f"the policy server ended with exit code {code}; see {str(self._log)!r}.")
        # From now on the port is fixed: workers know it, a successor must have the same.
        self.addresses = served_at(line)
        open_socket(self.addresses[0])
        return True

    def _options(self, token_file: Path, tls: Mapping[str, Any]) -> ServerOptions:
        return hosted_options(
            self._settings,
            listen=tuple(map(str, self.addresses)),
            token_file=token_file,
            output=self._folder.absolute(),
            insecure=self._settings.worker.insecure,
            **tls,
        )


def hosted_options(settings: RunSettings, **others: Any) -> ServerOptions:
    """Returns the options of a server that a run hosts; `others` are those that are not the same wherever it does."""
    places = max(ServerOptions.max_sessions, 2 * (settings.fixed_slots or 0))
    return settings.policy.server_options(
        max_sessions=places,
        max_sessions_per_peer=places,  # its callers are this run's own workers
        experts=experts_of(part.benchmark for part in settings.plan.parts),
        **others,
    )


def served_at(line: bytes) -> list[Address]:
    """Returns where a policy server listens, by the line that it says when it serves."""
    return [Address.parse(text) for text in json.loads(line)["listening"]]


@contextmanager
def tls_files(identity: Identity | None) -> Iterator[tuple[Mapping[str, Any], Sequence[int]]]:
    """Yields the options of a policy server that encrypts, and the open files that a child needs for that."""
    if identity is None:
        yield {}, ()
        return
    with in_memory(identity.cert) as (cert, first), in_memory(identity.key) as (key, second):
        yield {"tls_cert": cert, "tls_key": key}, (first, second)


def end_of(code: int) -> ServerEnd:
    """Returns how a server ended, by its exit code, or the negative number of the signal that ended it."""
    if code >= 0:
        return ServerEnd("crashed", f"ended with exit code {code}")
    return ServerEnd("killed" if -code in _KILLERS else "crashed", f"was ended by {signal_name(-code)}")


@dataclass(frozen=True)
class PolicyAccess:
    """Says where the policy of a run is, and what it takes to be let in there.

    Attributes:
        addresses: Nearest first; or, with `replicas`, so many servers of one and the same policy.
        token: Secret that the servers want; empty: none. It goes to workers and nowhere else.
        ca: PEM certificates to trust there.
        identity: To show there, where a certificate is wanted. It goes to workers and nowhere else.
        replicas: Whether sessions are spread over all addresses.
        program: Hash of what is hosted there, by the server's own word; empty: it does not say.
    """

    addresses: Sequence[Address]
    token: str = field(default="", repr=False)
    ca: bytes = field(default=b"", repr=False)
    identity: Identity | None = field(default=None, repr=False)
    replicas: bool = False
    program: str = ""

    @classmethod
    def elsewhere(cls, settings: RunSettings) -> PolicyAccess:
        """Returns the access to the servers that the settings name.

        Raises:
            UsageError: If the token's file, the CA's or those of a certificate cannot be used.
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
            identity=_identity(settings),
            replicas=len(addresses) > 1,
        )

    @property
    def servers(self) -> Sequence[Address]:
        """An address of each server."""
        return self.addresses if self.replicas else self.addresses[:1]

    def ca_at(self, address: Address) -> bytes:
        """Returns what to trust at one of the addresses: a socket beside those that are encrypted needs nothing."""
        beside = address.is_unix and not all(other.is_unix for other in self.addresses)
        return b"" if beside else self.ca


def _identity(settings: RunSettings) -> Identity | None:
    policy = settings.policy
    flags = (str(Hint("policy_tls_cert")), str(Hint("policy_tls_key")))
    return Identity.read(policy.policy_tls_cert, policy.policy_tls_key, flags=flags)


async def describe(access: PolicyAccess, timeout: float) -> Description:
    """Asks what is hosted there: by the one server, or by all of them alike, which together take the sessions of all.

    Raises:
        PolicyDenied: If a server does not let us in.
        PolicyUnreachable: If one does not answer in time.
        UsageError: If they do not all host the same policy, with the difference.
    """

    def ask(address: Address) -> Description:
        ca = access.ca_at(address)
        with PolicyClient(address, timeout=timeout, token=access.token, ca=ca, identity=access.identity) as client:
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
    each = [description.max_sessions for description in descriptions]
    return replace(descriptions[0], max_sessions=sum(each) if all(each) else 0)


def _difference(one: Description, other: Description) -> list[tuple[str, str, str]]:
    """Returns what two servers do not agree on, of what decides numbers. The device is each one's own affair."""
    found = []
    here, there = (
        {
            "policy": d.name,
            "checkpoint": d.checkpoint_sha256 or "no checkpoint",
            "needs": d.needs.to_message().SerializeToString(deterministic=True),
            **{f"argument {k}": v for k, v in d.arguments.items() if k != _OWN_ARGUMENT},
            **({} if d.program is None else {**d.program.files, **d.program.packages}),
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
