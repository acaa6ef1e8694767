"""What must be in the journal, reckoned from what goes in and out of the coordinator, not from what it keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite

from simulation.plans import truth_of

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.retry import RetryRules
from sparring.protos import evaluation_pb2 as pb

_KINDS = {pb.ERROR_KIND_UNSPECIFIED: "", pb.ERROR_KIND_SIMULATOR: "simulator", pb.ERROR_KIND_LIMIT: "limit"}


@dataclass(frozen=True)
class Expected:
    """A row, as far as it can be foretold."""

    outcome: str
    attempts: int
    reward: float = 0.0
    steps: int = 0
    error_kind: str = ""

    @classmethod
    def of(cls, row: EpisodeRow) -> Expected:
        """Returns what there is."""
        return cls(row.outcome, row.attempts, row.reward_sum, row.steps, row.error_kind)


@dataclass(frozen=True)
class _State:
    """Of one episode: its row, and how many of its attempts have failed over all executions."""

    row: Expected | None
    errors: int


class Ledger:
    """The rules of leases, retries and losses, told a second time and in another way than the scheduler's.

    An episode is with one worker at most; a result counts if it comes from who holds the lease, and once.
    """

    def __init__(self, plan: Plan, rules: RetryRules) -> None:
        self._rules = rules
        self._ids = set(plan.ids())
        self.rows: dict[EpisodeId, Expected] = {}
        self._errors: Counter[EpisodeId] = Counter()
        self.losses = 0
        """Leases that ended without a result, over all executions."""
        self.returned = 0
        """Leases that workers went on with when they came back."""
        self._known: set[int] = set()
        self._uncertain: dict[EpisodeId, _State] = {}
        self._begin()

    def _begin(self) -> None:
        self.held: dict[int, tuple[EpisodeId, str]] = {}
        self._gone: dict[int, tuple[EpisodeId, str]] = {}
        """What workers held when they left."""
        self._received: Counter[int] = Counter()
        self._losses: Counter[EpisodeId] = Counter()
        self._results = 0
        self._interrupted: dict[EpisodeId, int] = {}
        self._errors_now: Counter[EpisodeId] = Counter()
        self._done = {episode for episode, row in self.rows.items() if row.outcome != "error"}

    def granted(self, worker: str, lease: pb.Lease) -> None:
        """Notes a lease that was handed out."""
        episode = EpisodeId("toy", lease.task, lease.index)
        assert lease.lease not in self._known, f"lease {lease.lease} is used a second time"
        assert episode in self._ids, f"{episode} is not of the plan"
        assert episode not in self._done, f"{episode} has its row, and is played again"
        holders = [who for held, who in self.held.values() if held == episode]
        assert not holders, f"{episode} is with {holders[0]}, and was lent to {worker}"
        self._known.add(lease.lease)
        self.held[lease.lease] = (episode, worker)

    def result(self, worker: str, result: pb.Result) -> None:
        """Notes a result, before the coordinator hears of it."""
        episode, holder = self.held.get(result.lease, (None, ""))
        if episode is None or holder != worker:
            return
        received = self._received.pop(result.lease, 0)
        if result.recording_bytes not in (0, received):
            self.lost(worker, result.lease)
            return
        before = self._state(episode)
        del self.held[result.lease]
        self._results += 1
        if result.outcome in (pb.OUTCOME_SUCCESS, pb.OUTCOME_FAILURE) and isfinite(result.reward_sum):
            outcome = "success" if result.outcome == pb.OUTCOME_SUCCESS else "failure"
            attempts = self._errors[episode] + 1
            self._final(episode, Expected(outcome, attempts, result.reward_sum, result.steps))
        else:
            self._errors[episode] += 1
            self._errors_now[episode] += 1
            if self._errors_now[episode] > self._rules.retries:
                kind = _KINDS[result.error_kind] if isfinite(result.reward_sum) else "internal"
                self._final(episode, Expected("error", self._errors[episode], error_kind=kind))
        self._uncertain[episode] = before

    def piece(self, worker: str, piece: pb.Piece) -> None:
        """Notes a piece of a recording."""
        if self.held.get(piece.lease, ("", ""))[1] == worker:
            self._received[piece.lease] += len(piece.content)

    def lost(self, worker: str, number: int) -> None:
        """Notes that a worker gives a lease back, before the coordinator hears of it."""
        episode, holder = self.held.get(number, (None, ""))
        if episode is None or holder != worker:
            return
        self._uncertain[episode] = self._state(episode)
        del self.held[number]
        self._received.pop(number, None)
        self.losses += 1
        self._losses[episode] += 1
        if self._losses[episode] >= self._rules.losses:
            self._final(episode, Expected("error", self._errors[episode], error_kind="lost"))

    def given_back(self, worker: str, number: int) -> None:
        """Notes that a worker gives back a lease that it has not begun: that is no loss."""
        if self.held.get(number, ("", ""))[1] == worker:
            del self.held[number]
            self._received.pop(number, None)

    def interrupted(self, worker: str, number: int) -> None:
        """Notes that the policy failed on another episode: no loss, if that can be; something must have come of one."""
        episode, holder = self.held.get(number, (None, ""))
        if episode is None or holder != worker:
            return
        if self._interrupted.get(episode) == self._results:
            self.lost(worker, number)
        else:
            self._interrupted[episode] = self._results
            self.given_back(worker, number)

    def left(self, worker: str) -> None:
        """Notes that a worker is gone, before the coordinator hears of it."""
        for number in [number for number, (_, holder) in self.held.items() if holder == worker]:
            self._gone[number] = self.held[number]
            self.lost(worker, number)

    def taken_back(self, worker: str, number: int) -> None:
        """Notes that a worker that came back goes on with a lease: it was its own, and nobody has got it since."""
        episode, holder = self._gone.pop(number, (None, ""))
        assert episode is not None, f"lease {number} was not lost by a worker that left"
        assert holder == worker, f"lease {number} was lost by {holder}, and is given back to {worker}"
        assert episode not in self._done, f"{episode} has its row, and is played again"
        assert episode not in {held for held, _ in self.held.values()}, f"{episode} is with somebody else"
        self.held[number] = (episode, worker)
        self.losses -= 1
        self._losses[episode] -= 1
        self.returned += 1

    def heard(self) -> None:
        """Notes that the coordinator has dealt with what it was told: it is certain now."""
        self._uncertain.clear()

    def killed(self, rows: list[EpisodeRow], errors: dict[EpisodeId, int]) -> None:
        """Compares with a journal that was opened again, wherever its writer had got to.

        What was being dealt with may be written, or not, or by half (an attempt that is known to have failed, without
        the row that it led to); everything before is there.
        """
        found = {row.id: Expected.of(row) for row in rows}
        for episode, before in self._uncertain.items():
            after, now = self._state(episode), _State(found.get(episode), errors.get(episode, 0))
            assert now in (before, after, _State(before.row, after.errors)), (
                f"{episode}: {now}, not {before} or {after}"
            )
            self._errors[episode] = now.errors
            self.rows.pop(episode, None)
            if now.row is not None:
                self.rows[episode] = now.row
        self._uncertain.clear()
        self.check(rows, errors)
        self._begin()

    def check(self, rows: list[EpisodeRow], errors: dict[EpisodeId, int]) -> None:
        """Compares everything with a journal."""
        found = {row.id: Expected.of(row) for row in rows}
        assert len(found) == len(rows), "an episode has two rows"
        different = [
            f"{episode}: {found.get(episode)}, not {self.rows.get(episode)}"
            for episode in sorted(self._ids | found.keys())
            if found.get(episode) != self.rows.get(episode)
        ]
        assert not different, "\n".join(different)
        assert {episode: n for episode, n in self._errors.items() if n} == errors, "failed attempts are counted wrong"

    def check_whole(self, rows: list[EpisodeRow], errors: dict[EpisodeId, int], seed: int) -> None:
        """Compares a finished run with what its episodes come to when nothing is in the way."""
        self.check(rows, errors)
        assert {row.id for row in rows} == self._ids, "an episode has no row"
        for row in rows:
            truth = truth_of(row.id)
            assert row.seed == seed + row.index
            if row.outcome != "error":
                assert (row.outcome, row.reward_sum, row.steps) == (truth.outcome, truth.reward, truth.steps), row
            else:  # that faults and rules allow it was checked above
                assert truth.outcome == "error" or row.attempts > self._rules.retries or row.error_kind == "lost", row

    def _final(self, episode: EpisodeId, row: Expected) -> None:
        self.rows[episode] = row
        self._done.add(episode)  # an error, too, until the run is resumed

    def _state(self, episode: EpisodeId) -> _State:
        return _State(self.rows.get(episode), self._errors[episode])
