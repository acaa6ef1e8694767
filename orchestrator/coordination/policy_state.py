"""How the policy server is doing, as workers and its host tell it: up, gone, hung, full; and what follows of that."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sparring.orchestrator.coordination.suspects import Suspects
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.scheduler import Lease
from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import Dialect, Hint, render

log = logging.getLogger(__name__)

_GONE_SECONDS: Final = 5.0
"""A slot that waits for an answer hears of the server's end at once, and may be faster than its keeper."""


@dataclass(frozen=True)
class ServerFinding:
    """What the end of the policy server shows.

    Attributes:
        explained: Whether it is on the way to being explained by one episode, and no reason to give the run up.
        convicted: The episode that did it, if that is known now.
        hopeless: Why the run cannot go on, if it cannot.
    """

    explained: bool = False
    convicted: EpisodeId | None = None
    hopeless: RunStopped | None = None


class PolicyState:
    """Knows whether leases may go out, and which; decides nothing about workers and writes nothing down.

    Args:
        seconds: How long an answer is waited for.
        rules: When something is given up.
        dialect: The words of those who read about the run.
    """

    def __init__(self, seconds: float, rules: RetryRules, dialect: Dialect) -> None:
        self._seconds = seconds
        self._rules = rules
        self._dialect = dialect
        self._suspects = Suspects(rules.policy_server_restarts)
        self.is_up = True
        self.restart: Callable[..., bool] | None = None
        """`Hosting.restart`, if the policy is ours to host."""
        self.session_broke: Callable[[], bool] | None = None
        """`Hosting.session_broke`, if it is."""
        self._gone: list[tuple[float, EpisodeId]] = []
        """Episodes whose slots have said that the policy server went away, and when."""
        self._doomed: set[int] = set()
        """Leases that were in flight when the policy server ended the last time: what they say of it then is old."""
        self._in_vain: Counter[str] = Counter()
        """How often each worker has waited in vain for the policy since the last result of anybody."""
        self._in_vain_of: Counter[str] = Counter()
        """The same, since the last result of its own."""
        self._has_answered = False
        """Whether the policy has ever answered, in this execution."""
        self._warned_of_first_answer = False
        self._convicted_in_silence = False
        """Whether an episode was given up for a policy that had not answered anything by then."""
        self._full_since: float | None = None
        self._told_of_full = False

    @property
    def suspects(self) -> Collection[EpisodeId] | None:
        """The only episodes that may be played now, with nothing else beside them; None: any."""
        return self._suspects.group

    def has_steps(self) -> None:
        """Hears that a slot makes steps of an episode: it has a session, and answers."""
        self._full_since = None
        self._has_answered = True

    def has_result(self, worker: str, episode: EpisodeId, *, answered: bool) -> None:
        """Hears that an episode has come to an end by itself."""
        self._has_answered = self._has_answered or answered
        self._in_vain.clear()
        self._in_vain_of.pop(worker, None)
        self._full_since = None
        self._suspects.ended(episode)

    def left(self, worker: str) -> None:
        """Hears that a worker is gone."""
        self._in_vain_of.pop(worker, None)

    def closed(self, episode: EpisodeId) -> None:
        """Hears that an episode is not played any more, whatever came of it."""
        self._suspects.ended(episode)

    def ended(self, end: ServerEnd, in_flight: Sequence[Lease], *, over: bool) -> ServerFinding:
        """Hears that the server that we host has ended: no lease goes out until it is back.

        Args:
            end: How.
            in_flight: What was on loan.
            over: Whether the run has ended, too.
        """
        self.is_up = False
        gone = [episode for when, episode in self._gone if _now() - when < _GONE_SECONDS]
        self._gone = []
        self._doomed = {lease.number for lease in in_flight}
        if end.kind == "killed" or over:
            return ServerFinding()
        playing = list(dict.fromkeys([*gone, *(lease.episode for lease in in_flight)]))
        finding = self._suspects.crashed(playing)
        explained = finding in ("narrowed", "convicted")
        silent = end.kind == "hung" and not self._has_answered
        if silent and self._convicted_in_silence:
            return ServerFinding(
                explained,
                hopeless=RunStopped(
                    f"the policy has not given its first answer within {self._seconds:g} s, whatever is played. Raise "
                    f"{Hint('policy_timeout')}, or see the policy server's log."
                ),
            )
        if finding == "convicted":
            self._convicted_in_silence = self._convicted_in_silence or silent
            return ServerFinding(explained, convicted=playing[0])
        if finding == "hopeless":
            advice = f", or raise {Hint('policy_timeout')}" if end.kind == "hung" else ""
            return ServerFinding(
                explained,
                hopeless=RunStopped(
                    f"the policy server {end.sentence}, again and again, whatever is played, and no episode comes to "
                    f"an end in between. See its log{advice}."
                ),
            )
        return ServerFinding(explained)

    def lost(self, lease: Lease, lost: pb.Lost, *, believed: bool) -> None:
        """Hears who was in the middle of an episode when the server went away, or stopped answering.

        Args:
            lease: That was lost.
            lost: What its worker says.
            believed: Whether that is about the run, and not only about that worker.
        """
        if self.restart is None:
            return
        doomed = lease.number in self._doomed
        # A slot without a session when the server ended has waited for the next one, and may have ended that, too.
        if (lost.policy_unanswered or lost.policy_gone) and (self.is_up or not doomed):
            self._gone = [(when, who) for when, who in self._gone if _now() - when < _GONE_SECONDS]
            self._gone.append((_now(), lease.episode))
        if doomed:
            return
        if lost.policy_gone and believed and self.is_up and self.session_broke is not None and self.session_broke():
            self.is_up = False
        if lost.policy_unanswered and believed:
            self._warn_of_first_answer()
            if self.restart(f"did not answer within {self._seconds:g} s and was killed"):
                self.is_up = False  # who has just lost an episode must not take another one there

    def full(self, reason: str) -> RunStopped | None:
        """Hears that a slot got no session because the server is full; returns why the run is to end, if it is.

        Args:
            reason: As the server says it.
        """
        if not self._told_of_full:
            self._told_of_full = True
            log.warning(
                "%s Slots without a session wait and try again, while the others play; fewer %s would do",
                render(reason, self._dialect),
                render(str(Hint("slots")), self._dialect),
            )
        now = _now()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < self._seconds:
            return None
        return RunStopped(
            f"no slot got a session at the policy server for {self._seconds:g} s ({Hint('policy_timeout')} waits for "
            f"longer). {reason}"
        )

    def unreachable(self, worker: str, lease: Lease, *, believed: bool, busy: Collection[str]) -> str:
        """Hears that a worker waited in vain for the server.

        Args:
            worker: Its name.
            lease: That it could not play.
            believed: Whether what it says is about the run, and not only about itself.
            busy: The workers that play.

        Returns:
            "stop" to give the run up, because all who play say so; "send away" to do without this worker, while others
            play; else nothing.
        """
        if self.restart is not None and (not self.is_up or lease.number in self._doomed):
            return ""  # that it is away is known, and that it is waited for; or that it was
        if self.restart is not None and self.restart("does not answer and was killed", only_if_stopped=True):
            self.is_up = False
            return ""
        self._in_vain_of[worker] += 1
        if believed:
            self._in_vain[worker] += 1
        if not believed or set(busy) - set(self._in_vain):
            return "send away" if self._rules.gives_up_unreachable(self._in_vain_of[worker]) else ""
        return "stop" if self._rules.gives_up_unreachable(self._in_vain.total()) else ""

    def _warn_of_first_answer(self) -> None:
        """Says what may be wrong with a policy that has not answered anything yet, once."""
        if not self._has_answered and not self._warned_of_first_answer:
            self._warned_of_first_answer = True
            log.warning(
                "the policy has answered nothing within %g s. If its first answer takes longer than that, raise %s",
                self._seconds,
                render(str(Hint("policy_timeout")), self._dialect),
            )


def _now() -> float:
    return asyncio.get_running_loop().time()
