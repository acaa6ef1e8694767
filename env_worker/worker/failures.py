"""What becomes of a lease whose episode did not come to its end: a refusal of the run, a loss, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparring.env_worker.episode.actions import UnplayableAction
from sparring.env_worker.episode.observers import ObserverFailed
from sparring.policy_server.client import (
    PolicyChanged,
    PolicyFailed,
    PolicyFull,
    PolicyInterrupted,
    PolicyRefused,
    PolicyUnanswered,
    PolicyUnreachable,
)
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.record import EpisodeRecord, ErrorKind
from sparring.protos.tracebacks import cause_of, traceback_of

_KINDS: Final[Mapping[type[Exception], ErrorKind]] = {
    PolicyFailed: "policy",
    PolicyRefused: "internal",  # not of the hello, but of a message in the middle of an episode
    UnplayableAction: "action",
    ObserverFailed: "internal",
}


class LeaseRefused(UsageError):
    """The user's mistake, so that the run ends: the policy does not fit the benchmark, or a module is missing."""


def refused_message(lease: pb.Lease, refusal: UsageError) -> pb.WorkerMessage:
    """Returns the end of a lease that no attempt can cure, and no other episode either."""
    traceback = _traceback(refusal) if isinstance(refusal, LeaseRefused) else ""  # a sentence of its own needs none
    return pb.WorkerMessage(refused=pb.Refused(lease=lease.lease, reason=refusal.sentence, traceback=traceback))


def lost_message(lease: pb.Lease, loss: PolicyUnreachable, *, connected: bool) -> pb.WorkerMessage:
    """Returns the end of a lease whose policy could not be had.

    Args:
        lease: That was played.
        loss: What happened.
        connected: Whether there had been a session before.
    """
    full = isinstance(loss, PolicyFull) and not connected
    unanswered, changed = isinstance(loss, PolicyUnanswered), isinstance(loss, PolicyChanged)
    interrupted = connected and isinstance(loss, PolicyInterrupted)
    lost = pb.Lost(
        lease=lease.lease,
        reason=loss.sentence,
        policy_unreachable=not connected and not full and not changed,
        policy_unanswered=connected and unanswered,
        policy_gone=connected and not unanswered and not interrupted,
        policy_full=full,
        policy_changed=changed,
        interrupted=interrupted,
    )
    return pb.WorkerMessage(lost=lost)


def failed_result(lease: pb.Lease, error: Exception) -> pb.Result:
    """Returns the result of a lease whose episode ended in an error."""
    result = EpisodeRecord.failed(_kind(error), told(error)).to_message(lease.lease)
    result.traceback = _traceback(error)
    return result


def told(error: Exception) -> str:
    """Returns what happened, in a sentence."""
    if isinstance(error, SparringError):
        return error.sentence
    return f"the simulator raised {type(error).__name__}: {error}"


def _kind(error: Exception) -> ErrorKind:
    """Returns whose error it is; the simulator's, unless it is known better."""
    return next((kind for known, kind in _KINDS.items() if isinstance(error, known)), "simulator")


def _traceback(error: Exception) -> str:
    """Returns the traceback of the benchmark's or an observer's code that raised; empty if it was not theirs.

    What the policy raised is told by who asks it, and what does not fit has a table instead.
    """
    of_policy = isinstance(error, (PolicyFailed, PolicyRefused)) or isinstance(error.__cause__, PolicyRefused)
    raised = None if of_policy else cause_of(error)
    return "" if raised is None else traceback_of(raised)
