"""How large a run can be: arithmetic from what was measured (docs/performance.md), for docs/scaling.md.

python benchmarks/scaling.py [--slots 10000] [--steps 200] [--chunk 10] [--images 2] [--side 256]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from math import ceil

ORCHESTRATOR_SECONDS = 0.52e-3
"""Of CPU for an episode of 200 steps, with its actions and trace: 100,000 of "Many workers"."""
HEARTBEAT_SECONDS = 0.13e-3
"""Of CPU for a heartbeat, of which a worker sends one a second: the same, where there is nothing else to do."""
ROW_BYTES = 340
"""Of an episode in the journal, without actions and trace."""
STEP_BYTES = 40
"""Of actions and trace in the journal, for each step of seven numbers (benchmarks/load_workers.py: "bytes kept")."""
TRIPS_PER_SECOND = 681
"""Of one server, two 256×256 images each, with TLS (docs/hosting.md)."""
TRIP_BYTES = 2 * 256 * 256 * 3
PASS_SECONDS, ROW_SECONDS, BATCH = 0.040, 0.002, 64
"""Of a modelled policy on a GPU ("Many slots, one GPU")."""
STEP_SECONDS = 0.0045
"""Of LIBERO's physics ("Many slots, one GPU": 45 ms for ten)."""
SLOTS_PER_WORKER = 8
MAX_WORKERS = 4096
"""That one run takes (orchestrator/coordination/bounds.py)."""


@dataclass(frozen=True)
class Scale:
    """A run of so many slots.

    Attributes:
        slots: Episodes at once.
        steps: Of an episode.
        chunk: Actions that are played for one look.
        images: That the policy looks at.
        side: Of an image, in pixels; three bytes each.
    """

    slots: int = 10_000
    steps: int = 200
    chunk: int = 10
    images: int = 2
    side: int = 256

    @property
    def workers(self) -> int:
        """Connections of the orchestrator."""
        return ceil(self.slots / SLOTS_PER_WORKER)

    @property
    def answer_seconds(self) -> float:
        """Of a policy whose batches are full, which is when it answers most."""
        return PASS_SECONDS + BATCH * ROW_SECONDS

    @property
    def look_seconds(self) -> float:
        """From one look of a slot to its next, if no answer waits for another."""
        return self.chunk * STEP_SECONDS + self.answer_seconds

    @property
    def looks(self) -> float:
        """Observations per second of all slots."""
        return self.slots / self.look_seconds

    @property
    def look_bytes(self) -> int:
        """Of the images of one observation."""
        return self.images * self.side**2 * 3

    @property
    def replicas(self) -> int:
        """Policy servers: enough to compute, and enough to decrypt and read."""
        computed = self.looks / (BATCH / self.answer_seconds)
        read = self.looks * self.look_bytes / (TRIPS_PER_SECOND * TRIP_BYTES)
        return ceil(max(computed, read))

    @property
    def episode_seconds(self) -> float:
        """Of one episode."""
        return ceil(self.steps / self.chunk) * self.look_seconds

    @property
    def episodes(self) -> float:
        """Per second: rows that the journal is given."""
        return self.slots / self.episode_seconds

    @property
    def journal_bytes(self) -> int:
        """Of an episode."""
        return ROW_BYTES + self.steps * STEP_BYTES

    @property
    def orchestrator_cores(self) -> float:
        """CPU seconds per second; what one process has is one core."""
        return self.episodes * ORCHESTRATOR_SECONDS + self.workers * HEARTBEAT_SECONDS

    @property
    def orchestrators(self) -> int:
        """Runs that the plan is to be divided among, so that each of them has half a core left."""
        return max(ceil(self.orchestrator_cores / 0.5), ceil(self.workers / MAX_WORKERS))

    @property
    def full_at(self) -> int:
        """Slots of such episodes with which one orchestrator has nothing left of its core."""
        return int(self.slots / self.orchestrator_cores)


def table(scale: Scale) -> list[str]:
    """Returns the arithmetic for one size, as the page has it."""
    lines = [
        ("workers, and connections of the orchestrator", f"{scale.workers:,}"),
        ("from one look of a slot to its next", f"{scale.look_seconds * 1e3:.0f} ms"),
        ("observations per second", f"{scale.looks:,.0f}"),
        ("images to the policy servers", f"{scale.looks * scale.look_bytes / 1e9:.1f} GB/s"),
        ("policy servers", f"{scale.replicas:,}"),
        ("sessions of each of them", f"{ceil(scale.slots / scale.replicas):,}"),
        ("seconds of an episode", f"{scale.episode_seconds:.1f}"),
        ("episodes per second, and rows of the journal", f"{scale.episodes:,.0f}"),
        ("bytes per second of the journal", f"{scale.episodes * scale.journal_bytes / 1e6:.1f} MB/s"),
        ("the orchestrator's CPU", f"{scale.orchestrator_cores:.2f} cores"),
        ("orchestrators, each at most half a core", f"{scale.orchestrators}"),
        ("one orchestrator's core is full at", f"{scale.full_at:,} slots"),
    ]
    return [f"| {what} | {amount} |" for what, amount in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in Scale.__dataclass_fields__.items():
        parser.add_argument(f"--{name}", type=int, default=value.default)
    lines = ["| | |", "|---|---|", *table(Scale(**vars(parser.parse_args())))]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
