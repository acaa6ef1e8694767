"""What images of demonstrations cost: exported afterwards, or recorded by a policy that plays the demonstrations back.

An expert plays episodes and nothing is rendered. What it would have seen at every fifth step is then had in two ways,
in turns: by `sparring export`, and, as before there was that, by a run whose policy answers with the recorded actions
and looks at images. Both render the same frames.

    python benchmarks/demonstrations.py [--episodes 20] [--rounds 1] [--slots 2]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from common import conclude, cpu_of_descendants, show

CHUNK = 5
SIDE = 64
LOOKED_AT = '["observation.image", "observation.state"]'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="button-press-topdown-v3")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--slots", type=int, default=2)
    options = parser.parse_args()

    plan = ["--benchmark", "metaworld", "--task", options.task, "--episodes", str(options.episodes), "--seed", "100000"]
    slots = ["--slots", str(options.slots)]
    taken: dict[str, list[tuple[float, float]]] = {"the expert's own run": [], "exported": [], "played back": []}
    with tempfile.TemporaryDirectory(prefix="sparring-bench-") as temporary:
        folder = Path(temporary)
        expert = ["run", *plan, *slots, "--policy", "expert", "--record", "demos", "--output", "experts"]
        taken["the expert's own run"].append(_taken(folder, expert))
        looking = ["--policy-arg", f"chunk={CHUNK}", "--policy-arg", f"observations={LOOKED_AT}"]
        images = ["--benchmark-arg", f"resolution={SIDE}"]
        for turn in range(options.rounds):
            exported, seen = f"exported-{turn}", f"seen-{turn}"
            ways = {
                "exported": ["export", "experts", exported, "--format", "npz", "--only", "successes", "--every",
                             str(CHUNK), "--resolution", str(SIDE), *slots],
                "played back": ["run", *plan, *slots, "--policy", "replay", "--policy-arg", "file=demos", *looking,
                                *images, "--record", seen, "--output", f"run-{turn}"],
            }  # fmt: skip
            for name in list(ways)[:: -1 if turn % 2 else 1]:
                taken[name].append(_taken(folder, ways[name]))
            frames, alike = _compared(folder / exported, folder / seen)
    middle = {name: [median(numbers) for numbers in zip(*several, strict=True)] for name, several in taken.items()}
    show(
        f"{options.episodes} demonstrations of {options.task}, {frames} frames of {SIDE}×{SIDE}, {options.slots} slots",
        ["", "seconds", "CPU"],
        [[name, *(f"{number:.1f}" for number in numbers)] for name, numbers in middle.items()],
    )
    conclude(
        "demonstrations",
        target="the same frames, no slower than playing the demonstrations back",
        met=alike and middle["exported"][0] <= middle["played back"][0],
        same_frames=alike,
        frames=frames,
        played_back_to_exported=middle["played back"][0] / middle["exported"][0],
        played_back_to_exported_cpu=middle["played back"][1] / middle["exported"][1],
    )


def _taken(folder: Path, arguments: Sequence[str]) -> tuple[float, float]:
    """Runs the command; returns its seconds and the CPU seconds of all its processes."""
    before, began = cpu_of_descendants(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "sparring", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"nothing was measured: {done.stderr}")
    return seconds, cpu_of_descendants() - before


def _compared(exported: Path, seen: Path) -> tuple[int, bool]:
    """Returns how many images were exported, and whether those that the policy saw are among them, to the bit."""
    frames, alike = 0, True
    for path in sorted(exported.rglob("*.npz")):
        with np.load(path) as ours, np.load(seen / path.relative_to(exported)) as theirs:
            images, shown = (each["observations/observation.image"] for each in (ours, theirs))
            frames += len(images)
            alike &= np.array_equal(images[: len(shown)], shown)
    return frames, alike


if __name__ == "__main__":
    main()
