"""`--slots auto` while a run goes on: more slots, where it shows that the policy leaves these cores free."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.launchers.base import share_slots
from sparring.orchestrator.serving.policy_host import PolicyHost
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import fetch_stats
from sparring.protos.errors import SparringError

log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 5.0
_ENOUGH_SECONDS: Final = 1.0
"""Of forward passes, to tell by."""
_SHARE: Final = 0.5
"""Of the time of forward passes: whoever wants the cores for less than that computes elsewhere."""


class PassMeter:
    """Tells whether forward passes are computed by other processors than the cores of this machine.

    A pass that is computed here runs, or waits for its turn on a core, for all of its time; so it makes no difference
    how busy the machine is.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def heard(self, passes: float, wanted: float) -> bool | None:
        """Returns whether they are; None: not known yet.

        Args:
            passes: Seconds of all forward passes up to now.
            wanted: Seconds in which the server's threads have run, or waited for a core.
        """
        if self._first is None or passes < self._first[0] or wanted < self._first[1]:  # another process
            self._first = passes, wanted
        took, ran = passes - self._first[0], wanted - self._first[1]
        return None if took < _ENOUGH_SECONDS else ran < _SHARE * took


def wanted_cores(pid: int, root: Path = Path("/proc")) -> float | None:
    """Returns the seconds that a process's threads have run, or waited for a core; None: the kernel does not say."""
    total = 0
    found = False
    with suppress(OSError):  # it has just ended
        for thread in (root / str(pid) / "task").iterdir():
            with suppress(OSError, ValueError):
                ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
                total += ran + waited
                found = True
    return total / 1e9 if found else None


async def grow_when_waiting(
    settings: RunSettings,
    service: WorkService,
    host: PolicyHost,
    slots: int,
    *,
    on_gpu: bool,
    sessions: int = 0,
) -> None:
    """Has the run's workers hold more slots as soon as it shows that slots wait while cores have nothing to do.

    Args:
        settings: Of the run.
        service: Of its workers.
        host: Of its policy.
        slots: That there are now.
        on_gpu: Whether the policy is known to be computed on one. Then nothing is measured: who waits for a GPU may
            keep a core busy with asking whether it is ready.
        sessions: The most that the policy takes at once; 0: not known. More slots than that would only wait.
    """
    if 0 < sessions <= slots:
        return
    if not on_gpu and not await _leaves_cores_free(host):
        return
    coordinator = service.coordinator
    there_are = settings.capacity_beside(slots)
    more = there_are.slots(coordinator.unfinished, elsewhere=True, sessions=sessions)
    if more > slots:
        why = there_are.reason(coordinator.unfinished, elsewhere=True, sessions=sessions)
        log.info("slots: %d, and not %d any more: %s", more, slots, why)
        labels = [part.label for part in settings.plan.parts]
        service.grow(share_slots(more, {label: n for label in labels if (n := coordinator.left(label))}))


async def _leaves_cores_free(host: PolicyHost) -> bool:
    """Waits until it can be told whether the policy is computed by other processors, and returns it."""
    meter = PassMeter()
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        pid = host.pid
        wanted = None if pid is None else wanted_cores(pid)
        if wanted is None:
            continue
        there = host.access
        try:
            stats = await fetch_stats(
                there.addresses[0],
                timeout=_ANSWER_SECONDS,
                token=there.token,  # the socket
            )
        except SparringError as error:  # it is being started again, or busy
            log.debug("whether there should be more slots is not known: %s", error)
            continue
        elsewhere = meter.heard(stats.inference_seconds.sum, wanted)
        if elsewhere is not None:
            return elsewhere
