"""Episodes per minute with a policy as a GPU would have it, by the number of slots, and what policy and physics allow.

The policy occupies its server for 40 ms per forward pass and 2 ms per row, and computes nothing (modelled.py). The
physics is LIBERO's own, without images, in chunks of ten actions. For each number of slots two policies take turns: one
that costs nothing, which shows what the physics allows, and the modelled one. The bound is the lower one of that and of
what the policy can answer with all slots in each batch; one slot alone cannot reach it, as it waits for its answers.
`auto` begins with what the cores are good for, and takes more when it has seen where the policy is computed; what it
does before that is not counted.

    python benchmarks/many_slots.py [--slots 1 2 4 8 16 auto] [--episodes 4] [--steps 100] [--pass-ms 40] [--row-ms 2]

What a slot does before its first result (making its simulator) is not counted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import conclude, evaluate, show

from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import RunListener

CHUNK = 10
PARTS = {"physics": "physics_s", "policy": "policy_s", "transport": "transport_s"}


class _Watch(RunListener):
    """When each result came."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, EpisodeRow]] = []
        self.slots = 0
        self.grown_at = 0
        """How many results there were when there were the last new slots."""

    def on_worker(self, worker: str, slots: int) -> None:
        if slots > self.slots:
            self.slots, self.grown_at = slots, len(self.rows)

    def on_result(self, row: EpisodeRow) -> None:
        self.rows.append((time.monotonic(), row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", nargs="+", default=["1", "2", "4", "8", "16", "auto"])
    parser.add_argument("--benchmark", default="libero")
    parser.add_argument("--task", default="libero_object/0")
    parser.add_argument("--episodes", type=int, default=4, help="of each slot, after its first")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pass-ms", type=float, default=40.0)
    parser.add_argument("--row-ms", type=float, default=2.0)
    options = parser.parse_args()
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))

    looks = -(-options.steps // CHUNK)
    rows, numbers, chosen = [], {}, 0
    for wanted in options.slots:
        reached, slots, where = _measured(options, wanted, {"pass_ms": options.pass_ms, "row_ms": options.row_ms})
        physics, _, _ = _measured(options, str(slots), {"pass_ms": 0, "row_ms": 0})
        policy = 60_000 * slots / (options.pass_ms + options.row_ms * slots) / looks
        bound = min(physics, policy)
        chosen = slots if wanted == "auto" else chosen
        numbers[wanted] = {
            "slots": slots,
            "physics": physics,
            "policy": policy,
            "reached": reached,
            "of bound": reached / bound,
            "in": where,
        }
        cells = [f"{value:,.1f}" for value in (physics, policy, reached)]
        shares = [f"{where[name]:.0%}" for name in PARTS]
        name = f"auto: {slots}" if wanted == "auto" else wanted
        rows.append([name, *cells, f"{reached / bound:.0%}", *shares])
    show(
        f"{options.task}, {options.steps} steps, chunks of {CHUNK}; episodes per minute",
        ["slots", "physics alone", "policy alone", "both", "of the bound", *(f"in {name}" for name in PARTS)],
        rows,
    )
    most = max(float(row["reached"]) for row in numbers.values())
    conclude(
        "many_slots",
        target="--slots auto reaches 80 % of the best number of slots",
        met="auto" not in numbers or numbers["auto"]["reached"] >= 0.8 * most,
        auto=chosen,
        slots=numbers,
    )


def _measured(
    options: argparse.Namespace, slots: str, policy: Mapping[str, Any]
) -> tuple[float, int, dict[str, float]]:
    """Episodes per minute once every slot has played one, how many slots there were, and where they spent that time."""
    watch = _Watch()
    evaluate(
        {
            "benchmark": options.benchmark,
            "task": options.task,
            "policy": "modelled:Modelled",
            "policy_arg": {**policy, "chunk": CHUNK},
            "episodes": (options.episodes + 2) * (8 if slots == "auto" else int(slots)),
            "max_steps": options.steps,
            "slots": slots if slots == "auto" else int(slots),
        },
        watch,
    )
    before = watch.grown_at + watch.slots
    counted = watch.rows[before:]
    minutes = (counted[-1][0] - watch.rows[before - 1][0]) / 60
    seconds = sum(row.seconds for _, row in counted)
    where = {name: sum(getattr(row, column) for _, row in counted) / seconds for name, column in PARTS.items()}
    return len(counted) / minutes, watch.slots, where


if __name__ == "__main__":
    main()
