"""Why a run may be stopped by what its workers say, told a second time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sparring.orchestrator.plan import EpisodeId
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.record import EpisodeRecord

_MISTAKE = "a mistake in Sparring"


class Grounds:
    """Hears what workers say in one execution, and judges its end.

    Args:
        max_errors: So many attempts with the same error are enough; 0: no number is.
        policy_seconds: How long a session of the policy is waited for.
        starts_workers: Whether the run starts workers: then what others say is no ground for anything.
        played: Whether an episode had its outcome before.
        now: What time it is, in seconds.
    """

    def __init__(
        self,
        *,
        max_errors: int,
        policy_seconds: float,
        starts_workers: bool,
        played: bool,
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self._max_errors = max_errors
        self._policy_seconds = policy_seconds
        self._starts_workers = starts_workers
        self._played = played
        self._errors: Counter[str] = Counter()
        self._failed: set[EpisodeId] = set()
        self._outcome = False
        self._full_since: float | None = None
        self._in_vain = 0
        self._refused = False
        self._heard_result = False
        self._cannot_begin = False

    def said(self, message: pb.WorkerMessage, episode: EpisodeId | None, *, launched: bool) -> None:
        """Hears a message about a lease that its worker holds, before the coordinator does."""
        kind = message.WhichOneof("message")
        counts = launched or not self._starts_workers
        if kind == "result":
            record = EpisodeRecord.from_message(message.result)  # one that is not finite is an error
            self._full_since, self._in_vain, self._heard_result = None, 0, True
            if record.outcome != "error":
                self._outcome = self._played = True
            elif counts and episode is not None:
                self._errors[record.error] += 1
                self._failed.add(episode)
        elif kind == "lost" and counts:
            if message.lost.policy_full and self._full_since is None:
                self._full_since = self._now()
            self._in_vain += message.lost.policy_unreachable
        elif kind == "refused" and counts and (launched or not self._played):
            self._refused = True

    def cannot_begin(self, *, launched: bool) -> None:
        """Hears that a worker has no slots to play with; once somebody has played, that is its own affair."""
        counts = launched or not (self._starts_workers or self._played)
        self._cannot_begin = self._cannot_begin or (counts and not self._heard_result)

    def check(self, reason: str) -> None:
        """Checks that a run that was stopped had to be."""
        assert _MISTAKE not in reason, reason
        if "ended in the same error" in reason:
            assert not self._outcome, f"something had come of it: {reason}"
            assert self._max_errors
            assert max(self._errors.values()) >= self._max_errors, (self._errors, reason)
            assert len(self._failed) > 1
        elif "no slot got a session" in reason:
            assert self._full_since is not None
            assert self._now() - self._full_since >= self._policy_seconds
        elif "nobody is there" in reason:
            assert self._in_vain >= 2
        elif "it does not fit" in reason:
            assert self._refused, "nobody whose word counts has refused"
        else:
            assert self._cannot_begin, reason
