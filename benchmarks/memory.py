"""What one more slot costs in memory, and whether a slot grows over a run of many tasks.

Memory is PSS: a page that n processes share counts 1/n in each, so that sums are right although slots are forks of one
process. A slot's cost is the growth of the sum over worker, fork server and slots per added slot.

    python benchmarks/memory.py [--slots 1 2 4] [--tasks mt50]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import Any

import psutil
from common import conclude, evaluate, show

from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import RunListener

MIB = 2**20
STEPS = 10
LOADS: dict[str, dict[str, Any]] = {
    "no rendering": {"policy": "expert", "max_steps": 50},
    "480×480 image": {
        "policy": "random",
        "policy_arg": {"chunk": STEPS, "observations": ["observation.image"]},
        "max_steps": STEPS,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 2, 4], help="slots of the runs that are compared")
    parser.add_argument("--tasks", default="mt50", help="tasks of the run that must not grow")
    parser.add_argument("--allowed-growth", type=float, default=1.1, help="largest last / first that passes")
    options = parser.parse_args()

    more = {load: _one_more_slot(load, options.slots) for load in LOADS}
    growth = {load: _growth(load, options.tasks) for load in LOADS}
    conclude(
        "memory",
        target=f"last 10 of 50 tasks ≤ {options.allowed_growth}× the first 10",
        met=all(last / first <= options.allowed_growth for first, last in growth.values()),
        one_more_slot_mib=more,
        first_and_last_tasks_mib=growth,
    )


def _one_more_slot(load: str, slots: Sequence[int]) -> float:
    """MiB per added slot, all of them in the same task."""
    totals = []
    rows = []
    for count in slots:
        watcher = Sampler()
        evaluate(
            {"benchmark": "metaworld", "task": "reach-v3", "episodes": 8 * count, "slots": count, **LOADS[load]},
            watcher,
        )
        full = [sample for sample in watcher.samples if len(sample.slots) == count][-3 * count :]
        totals.append(median(sample.total for sample in full))
        each = median(pss for sample in full for pss in sample.slots)
        rows.append([str(count), f"{totals[-1]:.0f}", f"{each:.0f}"])
    per_slot = (totals[-1] - totals[0]) / (slots[-1] - slots[0])
    show(
        f"{load}: PSS in MiB; one more slot costs {per_slot:.0f}",
        ["slots", "worker, fork server, slots", "a slot"],
        rows,
    )
    return per_slot


def _growth(load: str, tasks: str) -> tuple[float, float]:
    """PSS of a slot in the first and in the last ten tasks of a run with one slot."""
    watcher = Sampler()
    evaluate({"benchmark": "metaworld", "task": tasks, "episodes": 1, "slots": 1, **LOADS[load]}, watcher)
    each = [sample.slots[0] for sample in watcher.samples if len(sample.slots) == 1]
    tens = [each[start : start + 10] for start in range(0, len(each), 10)]
    show(
        f"{load}: PSS of the slot in MiB over {len(each)} tasks",
        ["tasks", "median", "largest"],
        [[f"{10 * n + 1}–{10 * n + len(ten)}", f"{median(ten):.0f}", f"{max(ten):.0f}"] for n, ten in enumerate(tens)],
    )
    return median(tens[0]), median(tens[-1])


class Sample:
    """PSS of everything below this process that belongs to the worker, in MiB."""

    def __init__(self) -> None:
        below = psutil.Process().children(recursive=True)
        servers = [process for process in below if "multiprocessing.forkserver" in " ".join(process.cmdline())]
        # Slots keep the command line of the process they are forks of.
        roots = [process for process in servers if process.ppid() not in {server.pid for server in servers}]
        slots = [slot for root in roots for slot in root.children()]
        workers = [process for process in below if "env_worker" in process.cmdline()]
        self.slots = [_pss(slot) for slot in slots]
        self.total = sum(self.slots) + sum(_pss(process) for process in (*roots, *workers))


def _pss(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / MIB


class Sampler(RunListener):
    """Takes a sample whenever an episode was recorded: the slot that played it still holds its simulator."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def on_result(self, row: EpisodeRow) -> None:
        with suppress(psutil.NoSuchProcess):  # at the end of a run its processes end, too
            self.samples.append(Sample())


if __name__ == "__main__":
    main()
