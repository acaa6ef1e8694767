"""vla-eval as its Python interface runs it without a container: its LeRobot server, its harness, its LIBERO.

    python vla_eval_run.py CHECKPOINT SUITE TASKS EPISODES STEPS SEED OUT

Settings are those under which its LIBERO shows what LeRobot's does: both cameras, and an axis-angle whose sign is left.
Its gripper is the action's sign, which is all that the Panda's gripper takes of it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    checkpoint, suite, tasks, episodes, steps, seed, out = sys.argv[1:]
    from libero.libero import benchmark
    from vla_eval.api import evaluate
    from vla_eval.model_servers.lerobot import LeRobotModelServer

    names = [task.language for task in benchmark.get_benchmark_dict()[suite]().tasks]
    chosen = [names[int(number)] for number in tasks.split(",")]
    cameras = {"agentview": "observation.images.image", "wrist": "observation.images.image2"}
    server = LeRobotModelServer("act", checkpoint, image_keys=cameras, device="cpu")
    entry = {
        "benchmark": "vla_eval.benchmarks.libero.benchmark:LIBEROBenchmark",
        "episodes_per_task": int(episodes),
        "max_steps": int(steps),
        "tasks": chosen,
        "params": {
            "suite": suite,
            "seed": int(seed),
            "send_wrist_image": True,
            "send_state": True,
            "quat_no_antipodal": True,
        },
    }
    began = time.monotonic()
    (result,) = evaluate(server, {"benchmarks": [entry]}, docker=False, output_dir=Path(out).parent / "vla-eval")
    seconds = time.monotonic() - began
    rewards, failed = {}, []
    for task in result["tasks"]:
        for index, episode in enumerate(task["episodes"]):
            failed += [episode["failure_reason"]] if episode.get("failure_reason") else []
            number = chosen.index(task["task"])
            rewards[f"{suite}/{tasks.split(',')[number]}:{index}"] = float(bool(episode["metrics"]["success"]))
    if failed:
        sys.exit(f"vla-eval's episodes failed: {failed[0]}")
    Path(out).write_text(json.dumps({"seconds": seconds, "rewards": rewards}))


if __name__ == "__main__":
    main()
