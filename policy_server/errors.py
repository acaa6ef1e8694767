"""What can go wrong between a policy server and its clients, and what a failed call of gRPC means."""

from __future__ import annotations

import socket
import threading
from typing import Final

import grpc

from sparring.protos.advice import Hint
from sparring.protos.errors import CodeBroken, SparringError, UsageError
from sparring.protos.net.address import Address

_LOOK_UP_SECONDS: Final = 1.0


class PolicyUnreachable(SparringError):
    """The server cannot be reached, went away, or did not answer in time. Trying again may help."""


class PolicyUnanswered(PolicyUnreachable):
    """The server did not answer in time."""


class PolicyFull(PolicyUnreachable):
    """The server holds as many sessions as it was told to. It is well, and may take more later."""


class PolicyChanged(PolicyUnreachable):
    """The server hosts another program than the one that was asked for."""


class PolicyInterrupted(PolicyUnreachable):
    """The policy failed on another episode beside this one. The server is well; the episode may be started again."""


class PolicyRefused(SparringError):
    """The server does not serve this client: the two do not fit together, or a rule was broken. Do not try again."""


class PolicyDenied(PolicyRefused, UsageError):
    """The server does not let this client in, or the two do not trust each other: token or TLS are not right."""


class PolicyFailed(SparringError):
    """The policy raised, or answered with something that is not a chunk of actions. The server is well."""

    traceback: str = ""
    """Where its traceback is, for a sentence, if it raised; nobody else is shown it."""


class PolicyBroken(CodeBroken):
    """The policy's own code raised when it was imported, made or warmed up."""

    whose = "policy"


class EpisodeInterrupted(SparringError):
    """The episode cannot go on, through no fault of its own; it may be started again."""


class PolicyAway(SparringError):
    """No session can begin: whom the policy asks in its turn is away, and may come back."""


class QueueFull(SparringError):
    """More observations are waiting than the server was told to hold."""


def translated(error: grpc.RpcError, address: Address, timeout: float) -> SparringError:
    """Returns what a call that failed means to whoever made it.

    Args:
        error: As gRPC has it.
        address: Of the server.
        timeout: Seconds that were waited for it.
    """
    code, details = error.code(), error.details() or ""
    if code == grpc.StatusCode.ABORTED:
        return PolicyFailed(details)
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return PolicyDenied(f"the policy server at {address} lets nobody in without its token: {details}")
    if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
        return PolicyRefused(details)
    if code == grpc.StatusCode.DATA_LOSS:
        return PolicyInterrupted(details or "the policy server interrupted the episode, and does not say why.")
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return PolicyFull(f"the policy server at {address} has no room: {details}")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return PolicyUnanswered(
            f"no policy server answered at {address} within {timeout:g} s. {_likely_cause(address)}"
        )
    if code == grpc.StatusCode.OK:
        return PolicyUnreachable(f"the policy server at {address} ended the session without saying why.")
    return PolicyUnreachable(f"the policy server at {address} went away: {details or code.name}")


def _likely_cause(address: Address) -> str:
    """Returns what may be wrong with an address where nobody answers. A name may be known later: a container's, say."""
    if not address.is_unix and _is_unknown(address.host):
        return f"There is no machine of the name {address.host!r}, as far as this one knows; is it written right?"
    return f"Is it running there, or is it busy for longer than that ({Hint('policy_timeout')})?"


def _is_unknown(host: str) -> bool:
    found: list[bool] = []

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            found.append(False)

    # A thread, because a look-up has no deadline of its own, and some resolvers take half a minute to say no.
    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_LOOK_UP_SECONDS)
    return found == [False]
