r"""What it saves to make an observation only when the policy looks; by default a chunk of 50 actions per 480×480 image.

The same episodes twice, taking turns: rendering on demand, and rendering at every step as the peers do. Rewards must be
equal to the last bit. Seconds are told twice: of the episodes alone, and of the whole run with start-up and shutdown.

    python benchmarks/look_once.py [--rounds 2] [--episodes 1] [--max-steps 100]
    python benchmarks/look_once.py --benchmark libero --tasks libero_spatial/2 --chunk 10 --target 4 --rounds 1 \
        --look observation.images.image observation.images.image2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from common import conclude, cpu_of_descendants, evaluate, show

from sparring.orchestrator.results.row import EpisodeRow

TASKS = "reach-v3,drawer-open-v3,hammer-v3,stick-push-v3"
MODES = ("on-demand", "every-step")
TARGET = 8.0


@dataclass
class _Total:
    wall: float = 0.0
    cpu: float = 0.0
    rows: list[EpisodeRow] = field(default_factory=list)

    @property
    def episodes(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def renders(self) -> int:
        return sum(row.renders for row in self.rows)

    def rewards(self) -> list[tuple[str, int, float, float, int, str]]:
        return [(r.task, r.seed, r.reward_sum, r.reward_max, r.steps, r.outcome) for r in self.rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="metaworld")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--chunk", type=int, default=50)
    parser.add_argument("--look", nargs="+", default=["observation.image"], help="what the policy looks at")
    parser.add_argument("--target", type=float, default=TARGET, help="least ratio that passes")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each way, each with episodes of its own")
    parser.add_argument("--episodes", type=int, default=1, help="episodes per task and round")
    parser.add_argument("--max-steps", type=int, default=100, help="0: the benchmark's own 500")
    parser.add_argument("--slots", type=int, default=1)
    options = parser.parse_args()

    settings = {
        "benchmark": options.benchmark,
        "task": options.tasks,
        "policy": "random",
        "policy_arg": {"chunk": options.chunk, "observations": options.look},
        "episodes": options.episodes,
        "max_steps": options.max_steps,
        "slots": options.slots,
    }
    totals = {mode: _Total() for mode in MODES}
    for turn in range(options.rounds):
        for mode in MODES:
            _take_turn(totals[mode], {**settings, "seed": 1000 + turn * options.episodes, "observe": mode})
    _report(totals, options.target)


def _take_turn(total: _Total, settings: dict[str, Any]) -> None:
    began, cpu_before = time.perf_counter(), cpu_of_descendants()
    results = evaluate(settings)
    total.wall += time.perf_counter() - began
    total.cpu += cpu_of_descendants() - cpu_before
    total.rows += results.rows


def _report(totals: dict[str, _Total], target: float) -> None:
    once, always = (totals[mode] for mode in MODES)
    identical = once.rewards() == always.rewards()
    measured: Sequence[tuple[str, float, float]] = [
        ("seconds of the episodes", once.episodes, always.episodes),
        ("seconds of the whole run", once.wall, always.wall),
        ("CPU seconds of the whole run", once.cpu, always.cpu),
        ("renders", once.renders, always.renders),
    ]
    show(
        f"{len(once.rows)} episodes, {sum(r.steps for r in once.rows)} steps; rewards identical: {identical}",
        ["", *MODES, "ratio"],
        [[name, f"{a:,.4g}", f"{b:,.4g}", f"{b / a:.1f}×"] for name, a, b in measured],
    )
    conclude(
        "look_once",
        target=f"at least {target:g}× fewer seconds, identical rewards",
        met=identical and always.episodes / once.episodes >= target,
        ratio_episodes=always.episodes / once.episodes,
        ratio_whole_run=always.wall / once.wall,
        ratio_cpu=always.cpu / once.cpu,
        renders={mode: totals[mode].renders for mode in MODES},
        rewards_identical=identical,
    )
    if not identical:
        raise SystemExit("rewards differ between the two ways of looking: that must not be.")


if __name__ == "__main__":
    main()
