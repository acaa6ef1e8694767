"""Seconds from `sparring run` to the first look or step, to the end, and CPU seconds of the whole command.

Runs of one episode of one step: it is recorded the moment the step is done, and everything else is starting and ending.
`eval` is what `make eval` does, whose rows must be the same everywhere. With --against all is measured with another
checkout, too, in turns, and the ratios are told.

    python benchmarks/start_up.py [--rounds 9] [--against CHECKOUT] [--runs toy expert help]
    python benchmarks/start_up.py --runs act --python .venvs/lerobot-0.6/bin/python --against CHECKOUT
    python benchmarks/start_up.py --runs eval --rounds 3 --against CHECKOUT
    python benchmarks/start_up.py --runs containers act-containers --image TAG --image-there TAG --against CHECKOUT
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from common import conclude, cpu_of_descendants, recorded, show

HERE = Path(__file__).resolve().parent.parent
ONCE = ("--episodes", "1", "--max-steps", "1", "--slots", "1")
LOOK = ("--policy", "zero", "--policy-arg", "observations=[observation.image]")
REACH = ("run", "--benchmark", "metaworld", "--task", "reach-v3")
DOCKER = (*REACH, "--launcher", "docker", "--image", "metaworld={image}")
RUNS = {
    "help": ("--help",),
    "toy": ("run", "--benchmark", "toy", "--task", "short", "--policy", "zero", *ONCE),
    "expert": (*REACH, "--policy", "expert", *ONCE),
    "act": (*REACH, "--policy", "lerobot:{checkpoint}", *ONCE),
    "containers": (*DOCKER, *LOOK, *ONCE),
    "act-containers": (*DOCKER, "--policy", "lerobot:{checkpoint}", *ONCE),
    "eval": ("run", "--benchmark", "metaworld", "--task", "mt50", "--policy", "expert", "--episodes", "5"),
}
DEADLINE = 900.0
_MAKE = """
import sys, checkpoints
from pathlib import Path
checkpoints.save(checkpoints.act_config(480, chunk_size=50, n_action_steps=50), Path(sys.argv[1]))
"""
_EQUAL = ("benchmark", "task", "index", "seed", "outcome", "steps", "reward_sum", "reward_max", "out_of_range")


@dataclass(frozen=True)
class Contender:
    """A checkout, and the Python that it is run with.

    Attributes:
        checkout: Its folder.
        python: Has what it needs.
        words: What stands for `{...}` in arguments.
    """

    checkout: Path
    python: Path
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """With the checkout's own modules before all others'; those of its tests are the toy and what LeRobot needs."""
        parts = [self.checkout / "src", self.checkout / "tests" / "toy"]
        if "lerobot" in str(self.python):
            parts.append(self.checkout / "tests" / "lerobot")
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, parts)), "PYTHONDONTWRITEBYTECODE": ""}

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Returns the command with these arguments."""
        return [str(self.python), "-P", "-m", "sparring", *(word.format(**self.words) for word in arguments)]


@dataclass(frozen=True)
class Sample:
    """One run of the command."""

    first: float
    whole: float
    cpu: float
    rows: str = ""
    """Hash of what must be equal in its rows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=["help", "toy", "expert"], help="what is measured")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="that has what the runs need")
    parser.add_argument(
        "--checkpoint", type=Path, help="of act; by default an ACT is made, of 480 pixels and chunks of 50"
    )
    parser.add_argument("--image", default="sparring/metaworld", help="of containers, from this checkout")
    parser.add_argument("--image-there", default="sparring/metaworld", help="of containers, from the other one")
    parser.add_argument("--slots", help="of eval; by default each checkout's own number, which was another at b4ce5c9")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each; medians are shown")
    parser.add_argument("--allowed", type=float, default=1.05, help="largest ratio to the other one that passes")
    options = parser.parse_args()

    ratios: dict[str, float] = {}
    numbers: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="sparring-bench-") as folder:
        checkpoint = options.checkpoint or Path(folder, "act")
        python = options.python.absolute()
        words = {"checkpoint": str(checkpoint.absolute()), "image": options.image}
        contenders = {"here": Contender(HERE, python, words)}
        if options.against:
            there = {**words, "image": options.image_there}
            contenders["there"] = Contender(options.against.resolve(), python, there)
        if {"act", "act-containers"} & set(options.runs) and options.checkpoint is None:
            command = [str(python), "-c", _MAKE, str(checkpoint)]
            subprocess.run(command, env=contenders["here"].environment, check=True, stdout=subprocess.DEVNULL)
        for title in options.runs:
            more = ("--slots", options.slots) if title == "eval" and options.slots else ()
            samples = _measure(contenders, (*RUNS[title], *more), options.rounds)
            _check_equal(title, samples)
            numbers[title] = {who: _medians(found) for who, found in samples.items()}
            rows = [[who, *(f"{number:.2f}" for number in numbers[title][who].values())] for who in samples]
            if options.against:
                there_ = numbers[title]["there"]
                ratio = {kind: numbers[title]["here"][kind] / number for kind, number in there_.items()}
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


def _measure(contenders: Mapping[str, Contender], arguments: Sequence[str], rounds: int) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {who: [] for who in contenders}
    if "mt50" not in arguments:
        for contender in contenders.values():
            _run(contender, arguments)  # so that all of them find bytecode and the disk's cache
    for turn in range(rounds):
        for who in sorted(contenders, reverse=bool(turn % 2)):
            samples[who].append(_run(contenders[who], arguments))
    return samples


def _run(contender: Contender, arguments: Sequence[str]) -> Sample:
    """One run, in a folder that is thrown away."""
    before = cpu_of_descendants()
    with tempfile.TemporaryDirectory(prefix="sparring-bench-") as folder:
        is_run = arguments[0] == "run"
        began = time.perf_counter()
        process = subprocess.Popen(
            contender.command([*arguments, "--output", "out"] if is_run else arguments),
            cwd=folder, env=contender.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        first = None
        while is_run and process.poll() is None and first is None and time.perf_counter() - began < DEADLINE:
            if recorded(Path(folder, "out", "journal.sqlite")):
                first = time.perf_counter() - began
            time.sleep(0.005)
        _, said = process.communicate(timeout=DEADLINE)
        whole = time.perf_counter() - began
        if process.returncode or (is_run and first is None):
            sys.exit(f"{contender.checkout} ended with exit code {process.returncode}: {said}")
        rows = _rows(Path(folder, "out", "episodes.csv")) if is_run else ""
    return Sample(whole if first is None else first, whole, cpu_of_descendants() - before, rows)


def _rows(file: Path) -> str:
    with file.open() as opened:
        rows = sorted([row.get(name, "") for name in _EQUAL] for row in csv.DictReader(opened))
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _check_equal(title: str, samples: Mapping[str, Sequence[Sample]]) -> None:
    found = {sample.rows for several in samples.values() for sample in several}
    if len(found) > 1:
        sys.exit(f"{title}: the rows of the episodes are not the same: nothing was measured.")


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    return {
        "to the first step": median(sample.first for sample in samples),
        "to the end": median(sample.whole for sample in samples),
        "CPU": median(sample.cpu for sample in samples),
    }


if __name__ == "__main__":
    main()
