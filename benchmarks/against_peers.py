r"""The same checkpoint and the same seeds through other evaluators and through Sparring, taking turns: one table.

    python benchmarks/against_peers.py [--benchmark metaworld libero] [--rounds 1] [--only NAME ...]

Contenders are LeRobot's own command (as it is; without films and with one simulator, and with soft resets on LIBERO; on
Meta-World also with a simulator for each episode, in processes of their own), vla-eval
with its own LIBERO and its own LeRobot server, LIBERO as openpi loops over it, and Sparring without and with films.
Each is a command of its own, in a process of its own, with one thread for the network. What cannot be run here is a
line that says why. What is compared:

    evaluation  seconds of simulators, episodes and films, without imports and loading; as each contender tells it
    whole       seconds of the command
    CPU         seconds, of the command and all its processes
    memory      the most that its processes held at once (PSS), sampled every second
    renders     frames that MuJoCo drew
    rewards     equal to the first contender's, episode by episode; and how many of the first one's chunks of actions
                the network gave here, too: where all rewards are 0, that is what says that the same was played

    make env-lerobot-0.6 env-peers      # once; the second has LeRobot, LIBERO, vla-eval and openpi's client in one
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import psutil
from common import conclude, cpu_of_descendants, recorded, show

from sparring.env_worker.gl import choose_backend
from sparring.orchestrator.machine.environments import venvs_folder
from sparring.orchestrator.results.results import Results

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
DEADLINE: Final = 3600.0
SEED: Final = 1000
CHUNK: Final = {"metaworld": 50, "libero": 10}
SAMPLED: Final = 1.0
"""Seconds between two samples of memory."""
SPARRING: Final = "Sparring"
COLUMNS: Final = ("evaluation, s", "whole, s", "CPU, s", "MiB", "renders")
TIMED: Final = 3
"""How many of these are seconds, and told as ratios, too."""
CLOSE: Final = 1e-3
"""Largest difference of two answers that are the same: batches and precision change last bits, which grow."""


@dataclass(frozen=True)
class Load:
    """What everybody is to play."""

    benchmark: str
    tasks: str
    episodes: int
    steps: int
    checkpoint: Path

    @property
    def names(self) -> str:
        """The tasks as Sparring names them."""
        if self.benchmark == "metaworld":
            return self.tasks
        suite, numbers = self.tasks.split("/")
        return ",".join(f"{suite}/{number}" for number in numbers.split(","))

    def __str__(self) -> str:
        return (
            f"{self.benchmark}: {self.names}, {self.episodes} episode(s) of each, {self.steps} steps, "
            f"chunks of {CHUNK[self.benchmark]}"
        )


@dataclass(frozen=True)
class Told:
    """What a contender says of itself: seconds of evaluation, and rewards by `TASK:INDEX`."""

    seconds: float
    rewards: dict[str, float]


@dataclass(frozen=True)
class Turn:
    """What came of one turn."""

    told: Told
    whole: float
    cpu: float
    memory: float
    renders: int
    answers: Any


@dataclass(frozen=True)
class Contender:
    """Somebody who can evaluate a checkpoint.

    Attributes:
        name: For people.
        benchmark: That it is run on.
        python: Whose packages it needs.
        arguments: Of that Python.
        read: What it said of itself, from its folder and when its rows and films were there.
        variables: Of its process.
    """

    name: str
    benchmark: str
    python: str
    arguments: Callable[[Load, Path], Sequence[str]]
    read: Callable[[Load, Path, Watch], Told]
    variables: dict[str, str] = field(default_factory=dict)

    def missing(self) -> str:
        """Says why it cannot be run here; nothing if it can."""
        if not _python(self.python).exists():
            return f"not here: make env-{self.python}"
        if self.benchmark == "libero" and not os.environ.get("SPARRING_LIBERO_ASSETS"):
            return "not here: SPARRING_LIBERO_ASSETS is to name LIBERO's assets, so that nobody downloads them"
        return ""


class Watch(threading.Thread):
    """Samples the memory of a process and all below it, and when Sparring's episodes were recorded."""

    def __init__(self, pid: int, folder: Path) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self.rows: list[float] = []
        self._top, self._folder = psutil.Process(pid), folder
        self._over = threading.Event()

    def run(self) -> None:
        sampled = 0.0
        while not self._over.wait(0.05):
            count = recorded(self._folder / "out" / "journal.sqlite")
            self.rows += [time.time()] * (count - len(self.rows))
            if time.monotonic() - sampled > SAMPLED:
                sampled = time.monotonic()
                self.peak = max(self.peak, self._pss())

    def end(self) -> None:
        self._over.set()
        self.join(DEADLINE)

    def _pss(self) -> float:
        total = 0
        with suppress(psutil.Error):
            for process in (self._top, *self._top.children(recursive=True)):
                with suppress(OSError, psutil.Error, StopIteration):
                    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                    total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total / 1024


def _python(environment: str) -> Path:
    return venvs_folder() / environment / "bin" / "python"


# ------------------------------------------------------------------------------------ who takes part


def _lerobot(load: Load, folder: Path, *more: str) -> list[str]:
    task = load.tasks if load.benchmark == "metaworld" else load.tasks.split("/")[0]
    flags = [f"--env.type={load.benchmark}", f"--env.task={task}", f"--eval.n_episodes={load.episodes}"]
    if load.benchmark == "libero":
        flags += [f"--env.task_ids=[{load.tasks.split('/')[1]}]", f"--env.episode_length={load.steps}"]
        flags += ["--env.observation_height=256", "--env.observation_width=256"]
    program = "from lerobot.scripts.lerobot_eval import main; main()"
    where = [f"--policy.path={load.checkpoint}", "--policy.device=cpu", f"--output_dir={folder}/out", f"--seed={SEED}"]
    return ["-c", program, *where, *flags, *more]


def _lerobot_alone(load: Load, folder: Path) -> list[str]:
    soft = ["--env.hard_reset=false"] if load.benchmark == "libero" else []
    return _lerobot(load, folder, "--eval.batch_size=1", *soft)


def _lerobot_at_once(load: Load, folder: Path) -> list[str]:
    return _lerobot(load, folder, f"--eval.batch_size={load.episodes}", "--eval.use_async_envs=true")


def _read_lerobot(load: Load, folder: Path, watch: Watch) -> Told:
    info = json.loads((folder / "out" / "eval_info.json").read_text())
    names = load.names.split(",")
    rewards = {
        f"{name}:{index}": reward
        for name, task in zip(names, info["per_task"], strict=True)
        for index, reward in enumerate(task["metrics"]["sum_rewards"])
    }
    return Told(info["overall"]["eval_s"], rewards)


def _sparring(load: Load, folder: Path, video: str) -> list[str]:
    size = ["--benchmark-arg", "resolution=256"] if load.benchmark == "libero" else []
    return [
        "-m", "sparring", "run", "--benchmark", load.benchmark, "--task", load.names,
        "--policy", f"lerobot:{load.checkpoint}", "--policy-arg", "device=cpu", "--episodes", str(load.episodes),
        "--seed", str(SEED), "--max-steps", str(load.steps), *size, "--video", video, "--output", f"{folder}/out",
    ]  # fmt: skip


def _read_sparring(load: Load, folder: Path, watch: Watch) -> Told:
    rows = Results.load(folder / "out").rows
    ended = [*watch.rows, *(film.stat().st_mtime for film in (folder / "out").rglob("*.mp4"))]
    began = min(watch.rows) - min(row.seconds for row in rows)  # one slot, or slots that begin together
    return Told(max(ended) - began, {f"{row.task}:{row.index}": row.reward_sum for row in rows})


def _script(name: str) -> Callable[[Load, Path], Sequence[str]]:
    def arguments(load: Load, folder: Path) -> list[str]:
        suite, tasks = load.tasks.split("/")
        numbers = [str(load.episodes), str(load.steps), str(SEED)]
        return [str(HERE / "peers" / name), str(load.checkpoint), suite, tasks, *numbers, str(folder / "told.json")]

    return arguments


def _read_script(load: Load, folder: Path, watch: Watch) -> Told:
    return Told(**json.loads((folder / "told.json").read_text()))


def contenders(benchmark: str) -> list[Contender]:
    """Everybody on one benchmark; the first is who others are compared with."""
    lerobot = "lerobot-0.6" if benchmark == "metaworld" else "peers"
    unfilmed = {"PEERS_FILMS": "none"}
    found = [
        Contender("lerobot-eval, its default", benchmark, lerobot, _lerobot, _read_lerobot),
        Contender("lerobot-eval, no films", benchmark, lerobot, _lerobot_alone, _read_lerobot, unfilmed),
    ]
    if benchmark == "metaworld":  # of LIBERO's tasks there is one episode each, so that would be the same again
        found.append(Contender("lerobot-eval, at once", benchmark, lerobot, _lerobot_at_once, _read_lerobot, unfilmed))
    if benchmark == "libero":
        found += [
            Contender("vla-eval 0.8", benchmark, "peers", _script("vla_eval_run.py"), _read_script),
            Contender("openpi's loop, films", benchmark, "peers", _script("openpi_run.py"), _read_script),
        ]
    return [
        *found,
        Contender(
            "Sparring, films", benchmark, "lerobot-0.6", lambda load, to: _sparring(load, to, "all"), _read_sparring
        ),
        Contender(SPARRING, benchmark, "lerobot-0.6", lambda load, to: _sparring(load, to, "none"), _read_sparring),
    ]


# ------------------------------------------------------------------------------------ taking turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", nargs="+", default=["metaworld", "libero"], choices=["metaworld", "libero"])
    parser.add_argument("--rounds", type=int, default=1, help="turns of each contender; medians are shown")
    parser.add_argument("--only", nargs="+", help="only contenders whose name has one of these in it")
    parser.add_argument("--metaworld", default="reach-v3", help="its tasks")
    parser.add_argument("--metaworld-episodes", type=int, default=2, help="of each task")
    parser.add_argument("--metaworld-steps", type=int, default=100)
    parser.add_argument("--libero", default="libero_object/0,1", help="its tasks: a suite, and numbers")
    parser.add_argument("--libero-steps", type=int, default=100)
    options = parser.parse_args()

    numbers: dict[str, dict[str, Any]] = {}
    titles, rows, missing = [], list[Sequence[str]](), list[str]()
    with tempfile.TemporaryDirectory(prefix="sparring-bench-") as name:
        for benchmark in options.benchmark:
            # One episode of each LIBERO task: of later ones, vla-eval and openpi have no seed.
            episodes = options.metaworld_episodes if benchmark == "metaworld" else 1
            steps = options.metaworld_steps if benchmark == "metaworld" else options.libero_steps
            checkpoint = Path(name) / benchmark / "checkpoint"
            load = Load(benchmark, getattr(options, benchmark), episodes, steps, checkpoint)
            numbers[benchmark] = _compare(load, options, Path(name) / benchmark)
            titles.append(f"{load}\n")
            rows += _rows(benchmark, numbers[benchmark])
            missing += [f"{benchmark}: {who}: {row['missing']}\n" for who, row in _without(numbers[benchmark])]
    ratios = [column for timed in COLUMNS[:TIMED] for column in (timed, "ratio")]
    show("".join(titles).rstrip(), ["", *ratios, *COLUMNS[TIMED:], "rewards", "chunks"], rows)
    sys.stdout.writelines(missing)
    played = [row for found in numbers.values() for row in found.values() if "missing" not in row]
    equal = [row["rewards equal"] and row["chunks"][0] == row["chunks"][1] for row in played]
    conclude(
        "against_peers",
        target="of all that could be run: the same rewards, and the same chunks of actions, as the first one has",
        met=all(equal) and bool(equal),
        **numbers,
    )


def _compare(load: Load, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    everybody = contenders(load.benchmark)
    chosen = [c for c in everybody if not options.only or any(part in c.name for part in options.only)]
    missing = {c.name: c.missing() for c in chosen}
    if not _python("lerobot-0.6").exists():
        sys.exit("LeRobot is not here, and nobody can play its checkpoint: make env-lerobot-0.6")
    _save(load)
    turns: dict[str, list[Turn]] = {c.name: [] for c in chosen}
    for number in range(options.rounds):
        for contender in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
            if not missing[contender.name]:
                sys.stderr.write(f"{load.benchmark}, round {number + 1}: {contender.name}\n")
                turn = _take_turn(contender, load, folder / f"{number}-{chosen.index(contender)}")
                if isinstance(turn, str):
                    missing[contender.name] = turn
                else:
                    turns[contender.name].append(turn)
    return _numbers({name: (missing[name], turns[name]) for name in turns})


def _environment(notes: Path, load: Load, **more: str) -> dict[str, str]:
    paths = [HERE / "peers", ROOT / "tests" / "lerobot", HERE, ROOT / "src"]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PEERS_NOTES": str(notes),
        "PEERS_STEPS": str(load.steps) if load.benchmark == "metaworld" else "",
        "MUJOCO_GL": choose_backend(),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        **more,
    }  # fmt: skip


def _save(load: Load) -> None:
    load.checkpoint.parent.mkdir(parents=True)
    environment = {name: v for name, v in _environment(Path(), load).items() if not name.startswith("PEERS")}
    program = [HERE / "peers" / "checkpoint.py", load.benchmark, str(CHUNK[load.benchmark]), load.checkpoint]
    done = subprocess.run(
        [_python("lerobot-0.6"), *program], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        sys.exit(f"no checkpoint could be made: {done.stderr[-2000:]}")


def _take_turn(contender: Contender, load: Load, folder: Path) -> Turn | str:
    """What came of a turn, or why nothing did."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    before, began = cpu_of_descendants(), time.perf_counter()
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [_python(contender.python), *contender.arguments(load, folder)],
            cwd=folder, env=_environment(notes, load, **contender.variables), stdout=said, stderr=said,
        )  # fmt: skip
        watch = Watch(process.pid, folder)
        watch.start()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        whole = time.perf_counter() - began
        watch.end()
    cpu = cpu_of_descendants() - before
    if process.returncode:
        last = (folder / "said.txt").read_text(errors="replace").strip().splitlines() or ["nothing was said"]
        return f"ended with exit code {process.returncode}: {last[-1][:200]}"
    renders = sum(int.from_bytes(file.read_bytes(), "little") for file in notes.glob("*.frames"))
    answers = np.concatenate([np.frombuffer(file.read_bytes(), np.float32) for file in notes.glob("*.answers")])
    dimension = CHUNK[load.benchmark] * (4 if load.benchmark == "metaworld" else 7)
    told = contender.read(load, folder, watch)
    return Turn(told, whole, cpu, watch.peak, renders, answers.reshape(-1, dimension))


def _found(wanted: Any, given: Any) -> int:
    """How many chunks of one contender another one's network has given, too; trial passes give more."""
    return sum(bool((np.abs(given - chunk).max(axis=1) < CLOSE).any()) for chunk in wanted)


def _numbers(found: dict[str, tuple[str, list[Turn]]]) -> dict[str, Any]:
    """The medians of each contender by the names of the columns, or why there are none."""
    first = next((turns[0] for _, turns in found.values() if turns), None)
    kinds = (lambda t: t.told.seconds, lambda t: t.whole, lambda t: t.cpu, lambda t: t.memory, lambda t: t.renders)
    numbers: dict[str, Any] = {}
    for name, (why, turns) in found.items():
        if not turns or first is None:
            numbers[name] = {"missing": why}
            continue
        values = [median(kind(turn) for turn in turns) for kind in kinds]
        same = min(_found(first.answers, turn.answers) for turn in turns)
        numbers[name] = dict(zip(COLUMNS, values, strict=True)) | {
            "rewards equal": all(_same(turn.told.rewards, first.told.rewards) for turn in turns),
            "chunks": [same, len(first.answers)],
        }
    return numbers


def _rows(benchmark: str, numbers: dict[str, Any]) -> Iterator[Sequence[str]]:
    """The table's rows of one benchmark; ratios are to Sparring without films."""
    ours = numbers.get(SPARRING, {})
    for who, row in numbers.items():
        if "missing" in row:
            continue
        timed = [(f"{row[c]:,.1f}", f"{row[c] / ours[c]:.1f}×" if c in ours else "") for c in COLUMNS[:TIMED]]
        same, of = row["chunks"]
        yield [
            f"{benchmark}: {who}",
            *(cell for pair in timed for cell in pair),
            *(f"{row[column]:,.0f}" for column in COLUMNS[TIMED:]),
            "equal" if row["rewards equal"] else "differ",
            f"{same} of {of}",
        ]


def _without(numbers: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(who, row) for who, row in numbers.items() if "missing" in row]


def _same(some: dict[str, float], others: dict[str, float]) -> bool:
    return some.keys() == others.keys() and all(abs(some[k] - v) <= 1e-6 * max(1, abs(v)) for k, v in others.items())


if __name__ == "__main__":
    main()
