"""How busy two slots are while tasks of very uneven length are left, from the first lease to the last.

A slot is busy from taking a lease to sending its result, by the slot's own clock; all between (the way of the result,
the journal, the way of the next lease) is idle time. Nothing renders, so episodes are short and the gaps weigh most.

    python benchmarks/no_barrier.py [--episodes 15] [--slots 2]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from statistics import median

from common import conclude, evaluate, show

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import RunListener, SlotActivity

# The expert needs from 50 to 500 steps for these.
TASKS = "drawer-close-v3,reach-v3,button-press-v3,door-open-v3,stick-pull-v3,peg-unplug-side-v3,basketball-v3"
TARGET = 0.95


@dataclass
class _Lease:
    slot: tuple[str, int]
    given: float
    row: EpisodeRow | None = None


class _Timekeeper(RunListener):
    """Notes when each episode was leased and to whom; the first word about an episode is its lease."""

    def __init__(self) -> None:
        self.leases: dict[tuple[str, int], _Lease] = {}
        self.retries = 0

    def on_activity(self, activity: SlotActivity) -> None:
        if activity.task:
            lease = _Lease((activity.worker, activity.slot), time.perf_counter())
            self.leases.setdefault((activity.task, activity.index), lease)

    def on_result(self, row: EpisodeRow) -> None:
        self.leases[row.task, row.index].row = row

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self.retries += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=TASKS, help="tasks of uneven length")
    parser.add_argument("--episodes", type=int, default=15, help="episodes per task")
    parser.add_argument("--slots", type=int, default=2)
    options = parser.parse_args()

    seen = _Timekeeper()
    settings = {"benchmark": "metaworld", "task": options.tasks, "policy": "expert"}
    evaluate({**settings, "episodes": options.episodes, "slots": options.slots}, seen)
    if seen.retries:
        raise SystemExit(f"{seen.retries} episodes were retried: the machine is in trouble, nothing was measured.")
    _report(list(seen.leases.values()), options.slots)


def _report(leases: list[_Lease], slots: int) -> None:
    first = min(lease.given for lease in leases)
    last = max(lease.given for lease in leases)
    window = (last - first) * slots
    # An episode that is running when the last lease is given counts up to that moment.
    busy = sum(min(_row(lease).seconds, last - lease.given) for lease in leases)
    playing = sum(min(_played(lease), last - lease.given) for lease in leases)
    steps = [_row(lease).steps for lease in leases]
    show(
        f"{slots} slots, {len(leases)} episodes of {min(steps)} to {max(steps)} steps",
        ["", "seconds", "of slot time"],
        [
            ["slot time between first and last lease", f"{window:.1f}", "100.0 %"],
            ["busy: in an episode", f"{busy:.1f}", f"{busy / window:.1%}"],
            ["  of it making simulators", f"{busy - playing:.1f}", f"{(busy - playing) / window:.1%}"],
            ["idle: between two episodes", f"{window - busy:.1f}", f"{1 - busy / window:.1%}"],
        ],
    )
    conclude(
        "no_barrier",
        target=f"slots busy ≥ {TARGET:.0%} between the first lease and the last",
        met=busy / window >= TARGET,
        busy=busy / window,
        median_episode_seconds=median(_row(lease).seconds for lease in leases),
        idle_seconds_per_lease=(window - busy) / len(leases),
        slots=slots,
        episodes=len(leases),
    )


def _row(lease: _Lease) -> EpisodeRow:
    assert lease.row is not None, "the run is finished, so every lease has its result"
    return lease.row


def _played(lease: _Lease) -> float:
    row = _row(lease)
    return row.physics_s + row.render_s + row.policy_s + row.transport_s


if __name__ == "__main__":
    main()
