"""What slots are doing, as their workers say it, for those who watch the run."""

from __future__ import annotations

from typing import Final

from sparring.orchestrator.coordination.policy_state import PolicyState
from sparring.orchestrator.coordination.workers import Workers
from sparring.orchestrator.run.films import Films
from sparring.orchestrator.run.listeners import RunListener, SlotActivity, SlotFrame
from sparring.orchestrator.run.scheduler import Scheduler, SlotId
from sparring.protos import evaluation_pb2 as pb

_WATCH_SECONDS: Final = 5.0
"""How long a slot shows what it plays after it was asked to: it is asked again with every heartbeat."""
_PNG: Final = b"\x89PNG\r\n\x1a\n"


class SlotNews:
    """Passes on what workers say of their slots, if it is what these were given to do.

    Args:
        workers: Of the run.
        scheduler: Knows who plays what.
        films: Knows who plays what again.
        policy: Hears that steps are made.
        listener: Hears of all of it, and says who is looked at.
    """

    def __init__(
        self, workers: Workers, scheduler: Scheduler, films: Films, policy: PolicyState, listener: RunListener
    ) -> None:
        self._workers = workers
        self._scheduler = scheduler
        self._films = films
        self._policy = policy
        self._listener = listener

    def heartbeat(self, worker: str, heartbeat: pb.Heartbeat) -> None:
        """Passes on what all slots of a worker do, and asks those to show it that somebody looks at."""
        for activity in heartbeat.slots:
            slot, is_replay, is_so = self._found(worker, activity)
            if is_so:
                if activity.task and activity.steps and not is_replay:
                    self._policy.has_steps()
                self._listener.on_activity(
                    SlotActivity(worker, slot, activity.task, activity.index, activity.steps, is_replay)
                )
        for number in self._listener.watched(worker):
            if 0 <= number < self._workers.slots_of(worker):
                watch = pb.Watch(slot=number, seconds=_WATCH_SECONDS)
                self._workers.send(worker, pb.OrchestratorMessage(watch=watch))

    def frame(self, worker: str, frame: pb.Frame) -> None:
        """Passes on what a slot sees, if somebody looks at it, and it is an image."""
        slot, _, is_so = self._found(worker, frame)
        if is_so and frame.task and slot in self._listener.watched(worker) and frame.image.startswith(_PNG):
            self._listener.on_frame(SlotFrame(worker, slot, frame.task, frame.index, frame.steps, frame.image))

    def _found(self, worker: str, said: pb.SlotActivity | pb.Frame) -> tuple[int, bool, bool]:
        """Returns the slot that is spoken of, whether it plays something again, and whether it plays what is said."""
        slot = SlotId(self._workers.benchmark_of(worker), worker, said.slot)
        lease, replay = self._scheduler.lent_to(slot), self._films.lent_to(slot)
        playing = lease or replay
        given = ("", 0) if playing is None else (playing.episode.task, playing.episode.index)
        return slot.number, replay is not None, not said.task or (said.task, said.index) == given
