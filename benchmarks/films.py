"""What films cost an evaluation: none, failures by replay, and failures filmed while the policy plays, in turns.

With the expert hardly anything is filmed, with a policy that does nothing everything is. The expert filmed live, with
every step rendered, takes a quarter of an hour: only with --live.

    python benchmarks/films.py [--episodes 6] [--task easy] [--rounds 1] [--live]
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from common import conclude, evaluate, show

CONTENDERS = {
    "no films": {"video": "none"},
    "failures, by replay": {"video": "failures"},
    "failures, filmed live": {"video": "failures", "video_live": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="metaworld")
    parser.add_argument("--task", default="easy")
    parser.add_argument("--episodes", type=int, default=6, help="episodes per task")
    parser.add_argument("--failing-task", default="reach-v3", help="for the policy that always fails")
    parser.add_argument("--max-steps", type=int, default=100, help="of the policy that always fails")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--live", action="store_true", help="also film the expert live")
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
    seconds: dict[tuple[str, str], list[float]] = {}
    films: dict[tuple[str, str], int] = {}
    for _ in range(options.rounds):
        for plan, settings in plans.items():
            for name, video in CONTENDERS.items():
                if plan == "expert" and "video_live" in video and not options.live:
                    continue
                began = time.perf_counter()
                results = evaluate({**settings, **video})
                seconds.setdefault((plan, name), []).append(time.perf_counter() - began)
                films[plan, name] = sum(bool(row.video) for row in results.rows)

    def ratio(plan: str, name: str, to: str) -> float:
        return median(a / b for a, b in zip(seconds[plan, name], seconds[plan, to], strict=True))

    rows = [
        [f"{plan}: {name}", f"{median(spent):.1f}", str(films[plan, name]), f"{ratio(plan, name, 'no films'):.2f}"]
        for (plan, name), spent in seconds.items()
    ]
    show(
        f"{options.benchmark}, {options.episodes} episodes per task, {options.slots} slots",
        ["", "seconds", "films", "to no films"],
        rows,
    )
    with_expert = ratio("expert", "failures, by replay", "no films")
    failing = ratio("always fails", "failures, by replay", "failures, filmed live")
    conclude(
        "films",
        target="by replay at most 1.15 of no films with the expert, and no slower than live with a policy that fails",
        met=with_expert <= 1.15 and failing <= 1.0,
        expert_to_no_films=with_expert,
        failing_to_live=failing,
    )


if __name__ == "__main__":
    main()
