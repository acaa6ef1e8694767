"""What films cost an evaluation: none, failures by replay, and failures filmed while the policy plays, in turns.

With the expert hardly anything is filmed. With a policy that does nothing everything is, or nothing, if films are of
successes; with one that does nothing and looks at every step ("seeing"), everything is seen already. The expert filmed
live, with every step rendered, takes a quarter of an hour: only with --live. CPU seconds are those of all processes of
a run, frames those in its films.

    python benchmarks/films.py [--episodes 6] [--task easy] [--rounds 1] [--live] [--plans expert failing seeing]
    python benchmarks/films.py --benchmark libero --task libero_object/0 --failing-task libero_object/0 --episodes 2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import av
from common import conclude, cpu_of_descendants, evaluate, show

CONTENDERS = {
    "no films": {"video": "none"},
    "failures, by replay": {"video": "failures"},
    "failures, filmed live": {"video": "failures", "video_live": True},
    "successes, by replay": {"video": "successes"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="metaworld")
    parser.add_argument("--task", default="easy")
    parser.add_argument("--episodes", type=int, default=6, help="episodes per task")
    parser.add_argument("--failing-task", default="reach-v3", help="for the policy that always fails")
    parser.add_argument("--camera", default="observation.image", help="the benchmark's, for the policy that looks")
    parser.add_argument("--max-steps", type=int, default=100, help="of the policy that always fails")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--live", action="store_true", help="also film the expert live")
    parser.add_argument("--plans", nargs="+", choices=["expert", "failing", "seeing"], default=["expert", "failing"])
    options = parser.parse_args()

    shared = {"benchmark": options.benchmark, "episodes": options.episodes, "slots": options.slots}
    plans = {
        "expert": {**shared, "task": options.task, "policy": "expert"},
        "always fails": {
            **shared,
            "task": options.failing_task,
            "policy": "zero",
            "max_steps": options.max_steps,
        },
    }
    looks = {"observations": [options.camera]}
    plans["always fails, seeing"] = {**plans["always fails"], "policy_arg": looks}
    wanted = {"expert": "expert", "always fails": "failing", "always fails, seeing": "seeing"}
    plans = {name: settings for name, settings in plans.items() if wanted[name] in options.plans}
    taken: dict[tuple[str, str], list[Taken]] = {}
    for turn in range(options.rounds):
        for plan, settings in plans.items():
            for name, video in list(CONTENDERS.items())[:: -1 if turn % 2 else 1]:
                if plan == "expert" and "video_live" in video and not options.live:
                    continue
                if plan != "always fails" and video["video"] == "successes":
                    continue
                taken.setdefault((plan, name), []).append(_taken({**settings, **video}))

    def ratio(kind: str, plan: str, name: str, to: str) -> float:
        pairs = zip(taken[plan, name], taken[plan, to], strict=True)
        return median(getattr(a, kind) / getattr(b, kind) for a, b in pairs)

    rows = []
    for (plan, name), several in taken.items():
        middle = [median(getattr(one, kind) for one in several) for kind in ("seconds", "cpu", "films", "frames")]
        to = [f"{ratio(kind, plan, name, 'no films'):.2f}" for kind in ("seconds", "cpu")]
        rows.append([f"{plan}: {name}", *(f"{number:.1f}" for number in middle[:2]), *map(str, middle[2:]), *to])
    show(
        f"{options.benchmark}, {options.episodes} episodes per task, {options.slots} slots",
        ["", "seconds", "CPU", "films", "frames", "seconds to no films", "CPU to no films"],
        rows,
    )
    numbers: dict[str, float] = {}
    for kind in ("seconds", "cpu"):
        if "expert" in plans:
            numbers[f"expert to no films, {kind}"] = ratio(kind, "expert", "failures, by replay", "no films")
        for plan in plans.keys() - {"expert"}:
            numbers[f"{plan}, to live, {kind}"] = ratio(kind, plan, "failures, by replay", "failures, filmed live")
        if "always fails" in plans:
            numbers[f"nothing to film to no films, {kind}"] = ratio(
                kind, "always fails", "successes, by replay", "no films"
            )
    conclude(
        "films",
        target="by replay at most 1.15 of no films with the expert, and no slower than live with a policy that fails",
        met=all(number <= (1.15 if "to no films" in name else 1.0) for name, number in numbers.items()),
        **numbers,
    )


@dataclass(frozen=True)
class Taken:
    """What one run took, and what came of it."""

    seconds: float
    cpu: float
    films: int
    frames: int


def _frames(folder: Path) -> int:
    """Counts the frames of a run's films."""
    count = 0
    for film in sorted((folder / "videos").rglob("*.mp4")):
        with av.open(str(film)) as opened:
            count += sum(packet.size > 0 for packet in opened.demux(video=0))
    return count


def _taken(settings: Mapping[str, Any]) -> Taken:
    frames: list[int] = []
    before, began = cpu_of_descendants() + time.process_time(), time.perf_counter()
    results = evaluate(settings, at_end=lambda folder: frames.append(_frames(folder)))
    seconds = time.perf_counter() - began
    cpu = cpu_of_descendants() + time.process_time() - before
    return Taken(seconds, cpu, sum(bool(row.video) for row in results.rows), frames[0])


if __name__ == "__main__":
    main()
