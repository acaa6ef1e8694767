"""What workers say of the policy when they give an episode back: that it is another one, full, or out of reach."""

from __future__ import annotations

from collections.abc import Callable

from sparring.orchestrator.coordination.policy_state import PolicyState
from sparring.orchestrator.coordination.workers import Workers
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.listeners import RunListener, SlotActivity
from sparring.orchestrator.run.scheduler import Lease, Scheduler


class PolicyReports:
    """Says whether the run is to end for it, and sends away who says what others do not find.

    Args:
        policy: What is known of the policy server.
        workers: Who is there.
        scheduler: Takes back what cannot be played now.
        listener: Hears of slots that have nothing to do.
    """

    def __init__(
        self,
        policy: PolicyState,
        workers: Workers,
        scheduler: Scheduler,
        listener: RunListener,
    ) -> None:
        self._policy = policy
        self._workers = workers
        self._scheduler = scheduler
        self._listener = listener
        self.on_report: Callable[[str, str], None] | None = None
        """Finds out whether it is so what a worker says of the policy, and sends it away if not; gets its name, and
        what it says."""

    def changed(self, worker: str, lease: Lease, reason: str) -> bool:
        """Lets it be found out whether the policy is another one, as a worker says; meanwhile that one gets nothing.

        Returns:
            Whether it is being found out; otherwise the worker was sent away, and others can have its episode.
        """
        self._give_back(worker, lease)
        if not self._workers.may_be_right(worker):
            self._workers.send_away(worker, f"it says that the policy is another one: {reason}")
            return False
        self._check(worker, reason)
        return True

    def full(self, worker: str, lease: Lease, reason: str) -> RunStopped | None:
        """Deals with a slot that found the policy server full: it tries again, and others have its episode.

        Returns:
            Why the run is to end, if it is.
        """
        self._give_back(worker, lease)
        stopped = self._policy.full(reason) if self._workers.may_be_right(worker) else None
        if self._workers.is_believed(worker):
            return stopped
        if stopped is not None or not self._workers.may_be_right(worker):
            self._workers.send_away(worker, f"it says that the policy server is full: {reason}")
        return None

    def unreachable(self, worker: str, lease: Lease, reason: str) -> RunStopped | None:
        """Gives the run up when all who play say that the policy is gone; while others play, it is one's own affair.

        Where a run starts no workers, it looks for itself first.

        Returns:
            Why the run is to end, if it is.
        """
        busy = self._scheduler.busy_workers()
        verdict = self._policy.unreachable(worker, lease, believed=self._workers.may_be_right(worker), busy=busy)
        if verdict == "stop" and self._workers.is_launched(worker):
            return RunStopped(reason)
        if verdict == "stop":
            self._check(worker, reason)
        if verdict == "send away":
            self._workers.send_away(worker, f"it says that it cannot reach the policy: {reason}")
        return None

    def _check(self, worker: str, reason: str) -> None:
        """Has somebody find out whether it is so; meanwhile that worker gets nothing."""
        self._workers.pass_over(worker)
        if self.on_report is not None:
            self.on_report(worker, reason)

    def _give_back(self, worker: str, lease: Lease) -> None:
        self._scheduler.give_back(lease.number)
        self._listener.on_activity(SlotActivity(worker, lease.slot.number))
