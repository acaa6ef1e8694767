"""Which slot gets what: leases to those that ask, and to whom each of them is on loan."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from sparring.orchestrator.coordination.policy_state import PolicyState
from sparring.orchestrator.coordination.recorder import Recorder
from sparring.orchestrator.coordination.workers import Workers
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.listeners import RunListener, SlotActivity
from sparring.orchestrator.run.orders import LeaseOrder, lease_message, unchanged
from sparring.orchestrator.run.scheduler import Lease, Scheduler, SlotId
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb

log = logging.getLogger(__name__)

_MOST_TOLD: Final = 100
"""Messages about leases that their senders do not hold: who means harm sends them without end, and logs are files."""


class Dispatch:
    """Lends episodes, and replays for films, to slots.

    Args:
        settings: Of the run.
        plan: All of its episodes.
        scheduler: Says which episode is next.
        recorder: Knows which films are yet to be made.
        workers: Who is there, and which slots ask.
        policy: Whether it is there, and which episodes are suspects.
        listener: Hears what slots do.
        order: Adds to a lease what this execution wants of it.
    """

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        scheduler: Scheduler,
        recorder: Recorder,
        workers: Workers,
        policy: PolicyState,
        listener: RunListener,
        order: LeaseOrder,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._scheduler = scheduler
        self._films, self._replays = recorder.films, recorder.replays
        self._workers = workers
        self._policy = policy
        self._listener = listener
        self._order = order
        self._told = 0

    def forget_order(self) -> None:
        """Adds nothing to leases any more: whose it was may hold a policy, and warm workers keep this for long."""
        self._order = unchanged

    def ready(self, worker: str, slot: int) -> None:
        """Notes that a slot is free: once, however often it says so, and not while it has something on loan."""
        if self._workers.is_leaving(worker):
            return
        free = SlotId(self._workers.benchmark_of(worker), worker, slot)
        if self._scheduler.lent_to(free) is None and self._films.lent_to(free) is None:
            self._workers.asks(free)

    def held(self, worker: str, number: int, what: str) -> Lease | None:
        """Returns the lease that a worker speaks of, if it has that on loan; about others it has nothing to say."""
        lease = self._scheduler.holder(number) or self._films.holder(number)
        if lease is None:
            self._tell(logging.INFO, f"a late {what} of worker {worker} changes nothing: its lease had ended")
        elif lease.slot.worker != worker:
            self._tell(
                logging.WARNING, f"a {what} of worker {worker} for a lease that it does not hold changes nothing"
            )
            return None
        return lease

    def _tell(self, level: int, sentence: str) -> None:
        self._told += 1
        if self._told < _MOST_TOLD:
            log.log(level, "%s", sentence)
        elif self._told == _MOST_TOLD:
            log.warning("%s; more messages of that kind are not told", sentence)

    def serve(self) -> None:
        """Gives slots that have asked what there is for them, for as long as the policy server is there."""
        group = self._policy.suspects
        if not self._policy.is_up or (group is not None and not self._is_alone(group)):
            return
        for asking in self._workers.asking():
            while asking:
                slot = next(iter(asking))
                lease, replay = self._scheduler.lease(slot, among=group), None
                if lease is not None:
                    order = lease_message(self._settings, self._plan, self._films, lease, self._order)
                elif group is None and (replay := self._replays.lease(slot)) is not None:
                    order = self._films.message(replay)
                else:
                    break  # what one slot cannot have, the others of this benchmark cannot have either
                del asking[slot]
                self._workers.send(slot.worker, pb.OrchestratorMessage(lease=order))
                self._listener.on_activity(
                    SlotActivity(slot.worker, slot.number, order.task, order.index, replay=replay is not None)
                )

    def _is_alone(self, group: Collection[EpisodeId]) -> bool:
        return all(lease.episode in group for lease in self._scheduler.in_flight())
