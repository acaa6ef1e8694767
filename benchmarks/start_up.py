"""Seconds from `sparring run` to the first step, and CPU seconds of the whole command: what starting costs.

A run of one episode of one step: it is recorded the moment the step is done, and everything else is starting and
ending. With --against the same is measured with another checkout's command, in turns, and the ratio is told.

    python benchmarks/start_up.py [--rounds 9] [--against /path/to/other/.venv/bin/sparring]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from common import conclude, cpu_of_descendants, recorded, show

RUNS = {
    "toy": ("--benchmark", "toy", "--task", "short", "--policy", "zero"),
    "Meta-World, expert": ("--benchmark", "metaworld", "--task", "reach-v3", "--policy", "expert"),
}
DEADLINE = 120.0


@dataclass(frozen=True)
class Sample:
    """One run of the command."""

    first_step: float
    whole: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(sys.executable).parent / "sparring"
    parser.add_argument("--command", type=Path, default=here, help="the command that is measured")
    parser.add_argument("--against", type=Path, help="the command of another checkout, to compare with")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each; medians are shown")
    parser.add_argument("--allowed", type=float, default=1.05, help="largest ratio to the other one that passes")
    options = parser.parse_args()

    commands = {"here": options.command, **({"there": options.against} if options.against else {})}
    ratios: dict[str, float] = {}
    numbers: dict[str, dict[str, dict[str, float]]] = {}
    for title, arguments in RUNS.items():
        samples = _measure(commands, arguments, options.rounds)
        numbers[title] = {who: _medians(found) for who, found in samples.items()}
        rows = [[who, *(f"{number:.2f}" for number in numbers[title][who].values())] for who in samples]
        if options.against:
            ratio = {kind: numbers[title]["here"][kind] / number for kind, number in numbers[title]["there"].items()}
            rows.append(["here / there", *(f"{number:.2f}" for number in ratio.values())])
            ratios |= {f"{title}: {kind}": number for kind, number in ratio.items()}
        show(f"{title}: seconds, medians of {options.rounds}", ["", *_medians(samples["here"])], rows)
    conclude(
        "start_up",
        target=f"≤ {options.allowed}× of what it is compared with" if ratios else "none: nothing to compare with",
        met=all(ratio <= options.allowed for ratio in ratios.values()),
        medians=numbers,
        ratios=ratios,
    )


def _measure(commands: dict[str, Path], arguments: Sequence[str], rounds: int) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {who: [] for who in commands}
    for command in commands.values():
        _run(command, arguments)  # so that all of them find bytecode and the disk's cache
    for turn in range(rounds):
        for who in sorted(commands, reverse=bool(turn % 2)):
            samples[who].append(_run(commands[who], arguments))
    return samples


def _run(command: Path, arguments: Sequence[str]) -> Sample:
    """One run, in a folder that is thrown away; the toy benchmark is the checkout's own."""
    toy = command.absolute().parents[2] / "tests" / "toy"
    environment = {**os.environ, "PYTHONPATH": str(toy), "PYTHONDONTWRITEBYTECODE": ""}
    before = cpu_of_descendants()
    with tempfile.TemporaryDirectory(prefix="sparring-bench-") as folder:
        began = time.perf_counter()
        process = subprocess.Popen(
            [command, "run", *arguments, "--episodes", "1", "--max-steps", "1", "--slots", "1", "--output", "out"],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        first_step = None
        while process.poll() is None and first_step is None and time.perf_counter() - began < DEADLINE:
            if recorded(Path(folder, "out", "journal.sqlite")):
                first_step = time.perf_counter() - began
            time.sleep(0.005)
        _, said = process.communicate(timeout=DEADLINE)
        whole = time.perf_counter() - began
    if process.returncode or first_step is None:
        sys.exit(f"{command} ended with exit code {process.returncode}: {said}")
    return Sample(first_step, whole, cpu_of_descendants() - before)


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    return {
        "to the first step": median(sample.first_step for sample in samples),
        "to the end": median(sample.whole for sample in samples),
        "CPU": median(sample.cpu for sample in samples),
    }


if __name__ == "__main__":
    main()
