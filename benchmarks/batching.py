# ruff: noqa: E402 - the path comes first
"""Actions per second of one LeRobot policy: many sessions on one server, with batching and without, against LeRobot.

An ACT of about 10 M parameters on the CPU. Five contenders take turns, round after round: the server with batching, the
same server with `--max-queue-delay 0.005`, the same limited to batches of one, LeRobot's own loop (`select_action` on a
batch of eight in lock-step, with its processors, as lerobot-eval has it), and the network alone, called again and again
with the same batch of eight.

    python benchmarks/batching.py [--rounds 5] [--seconds 3] [--sessions 1 2 4 8 16] [--threads 1]

All compute with one thread unless told otherwise: on a machine that others use, too, torch's threads mostly wait for
each other. There, the clock measures the neighbours; CPU time is what a contender needed itself.

Runs in LeRobot's environment: make env-lerobot-0.4, then .venvs/lerobot-0.4/bin/python benchmarks/batching.py
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import psutil

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lerobot"))  # checkpoints.py, and torchvision beside a CPU build of torch

import torch
import torchvision_on_cpu  # noqa: F401
from checkpoints import act_config, save
from common import child, conclude, show

from policy_server.client import Offer, PolicyClient
from protos.spec import TensorSpec

SIDE: Final = 96
LOCK_STEP: Final = 8
BATCHING, WAITING, SINGLE = "server, batching", "server, waits up to 5 ms", "server, batch of 1"
LEROBOT, NETWORK = "LeRobot, lock-step", "network alone"
CHUNK: Final = 10
START_SECONDS: Final = 300.0
OFFER: Final = Offer(
    {
        "observation.image": TensorSpec("uint8", (SIDE, SIDE, 3)),
        "observation.state": TensorSpec("float32", (4,)),
    },
    action_low=(-1.0,) * 4,
    action_high=(1.0,) * 4,
)


@dataclass(frozen=True)
class Turn:
    """How many actions a contender made, by the clock and by the CPU time of whoever computed them."""

    per_second: float
    per_cpu_second: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a turn")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="sessions at once")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each contender")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    turns: dict[tuple[str, int], list[Turn]] = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparring-bench-")))
        save(act_config(SIDE, chunk_size=CHUNK, n_action_steps=CHUNK), folder / "act")
        batching = stack.enter_context(_server(folder, "batching", options.threads))
        waiting = stack.enter_context(_server(folder, "waiting", options.threads, "--max-queue-delay=0.005"))
        single = stack.enter_context(_server(folder, "single", options.threads, "--max-batch=1"))
        lock_step, network, parameters = _lerobot(folder / "act")
        memory: dict[int, float] = {}
        for number in range(options.rounds):
            for sessions in options.sessions:
                if sessions == LOCK_STEP:  # right before the server that they are compared with
                    turns[LEROBOT, sessions].append(_alone(lock_step, options.seconds))
                    turns[NETWORK, sessions].append(_alone(network, options.seconds))
                turns[BATCHING, sessions].append(_served(batching, sessions, options.seconds))
                memory.setdefault(sessions, psutil.Process(batching[1]).memory_info().rss / 2**20)
                turns[WAITING, sessions].append(_served(waiting, sessions, options.seconds))
                turns[SINGLE, sessions].append(_served(single, sessions, options.seconds))
            sys.stderr.write(f"round {number + 1} of {options.rounds}\n")
    _report(turns, options.sessions, parameters, memory)


def _report(
    turns: dict[tuple[str, int], list[Turn]], sessions: list[int], parameters: float, memory: dict[int, float]
) -> None:
    def ratio(a: str, b: str, n: int, kind: str) -> float:
        """How many times as many actions; turns of one round are compared with each other."""
        pairs = zip(turns[a, n], turns[b, n], strict=True)
        return median(getattr(x, kind) / getattr(y, kind) for x, y in pairs)

    results: dict[str, Any] = {}
    for kind, title in (
        ("per_second", "actions per second"),
        ("per_cpu_second", "actions per CPU second of the server"),
    ):
        rows = []
        for name in (BATCHING, WAITING, SINGLE, LEROBOT, NETWORK):
            medians = {n: median(getattr(t, kind) for t in turns[name, n]) for n in sessions if turns[name, n]}
            rows.append([name, *(f"{medians[n]:,.0f}" if n in medians else "" for n in sessions)])
            results.setdefault(kind, {})[name] = medians
        ratios = {n: ratio(BATCHING, SINGLE, n, kind) for n in sessions}
        rows.append(["batching : batch of 1", *(f"{ratios[n]:.2f}×" for n in sessions)])
        show(f"{title}, by number of sessions (medians over rounds)", ["", *map(str, sessions)], rows)
        results[kind]["batching : batch of 1"] = ratios
        if LOCK_STEP in sessions:
            results[kind]["batching : LeRobot"] = ratio(BATCHING, LEROBOT, LOCK_STEP, kind)
            # Batches of eight on both sides: what the server adds, not what smaller batches cost.
            results[kind]["overhead over the network"] = ratio(NETWORK, WAITING, LOCK_STEP, kind) - 1
    by_cpu = results["per_cpu_second"]
    conclude(
        "batching",
        target="by CPU time: batching not slower than batch 1 at any session count (3 % of noise allowed), "
        "overhead over the network alone at most 10 % at 8 sessions",
        met=all(r >= 0.97 for r in by_cpu["batching : batch of 1"].values())
        and by_cpu.get("overhead over the network", 0.0) <= 0.1,
        parameters_in_millions=parameters,
        server_mib={n: round(m) for n, m in memory.items()},
        **results,
    )


@contextmanager
def _server(folder: Path, name: str, threads: int, *flags: str) -> Iterator[tuple[str, int]]:
    arguments = json.dumps({"device": "cpu", "threads": threads})
    program = (  # as `python -m policy_server`, beside a torchvision that imports
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'lerobot')!r}); import torchvision_on_cpu; "
        "from policy_server.__main__ import main; main()"
    )
    listen = f"--listen=unix://{folder}/{name}.sock"
    with child(
        "-c", program, f"--policy=lerobot:{folder}/act", f"--policy-args={arguments}", listen, *flags
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the policy server did not start.")
        yield json.loads(line)["listening"][0], process.pid


def _observation(dice: np.random.Generator) -> dict[str, Any]:
    return {
        "observation.image": dice.integers(0, 256, (SIDE, SIDE, 3), np.uint8),
        "observation.state": dice.random(4, np.float32),
    }


def _served(server: tuple[str, int], sessions: int, seconds: float) -> Turn:
    """Sessions that ask again as soon as they are answered: simulators that take no time."""
    address, pid = server
    counts = [0] * sessions
    everyone = threading.Barrier(sessions + 1)
    end = [0.0]

    def ask(number: int) -> None:
        observation = _observation(np.random.default_rng(number))
        with PolicyClient(address, timeout=60) as client, client.open(OFFER, benchmark="bench") as session:
            session.start(task="bench", instruction="Reach a goal position", seed=number)
            session.act(observation, step=0)
            everyone.wait(START_SECONDS)
            everyone.wait(START_SECONDS)
            step = 1
            while time.perf_counter() < end[0]:
                counts[number] += len(session.act(observation, step=step).actions)
                step += 1

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(sessions)]
    for thread in threads:
        thread.start()
    everyone.wait(START_SECONDS)
    began, cpu = time.perf_counter(), _cpu_seconds(pid)
    end[0] = began + seconds
    everyone.wait(START_SECONDS)
    for thread in threads:
        thread.join(START_SECONDS)
    return Turn(sum(counts) / (time.perf_counter() - began), sum(counts) / (_cpu_seconds(pid) - cpu))


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _lerobot(folder: Path) -> tuple[Callable[[], int], Callable[[], int], float]:
    """A step of LeRobot's loop and a call of the network alone, which return their number of actions, and its size."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.envs.utils import preprocess_observation
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    config = PreTrainedConfig.from_pretrained(folder)
    policy = get_policy_class(config.type).from_pretrained(folder, config=config)
    pre, post = make_pre_post_processors(config, pretrained_path=str(folder))
    dice = np.random.default_rng(0)
    rows = [_observation(dice) for _ in range(LOCK_STEP)]
    raw = {
        "pixels": np.stack([row["observation.image"] for row in rows]),
        "agent_pos": np.stack([row["observation.state"] for row in rows]),
    }

    def look() -> Any:
        return pre({**preprocess_observation(raw), "task": ["Reach a goal position"] * LOCK_STEP})

    def lock_step() -> int:
        with torch.inference_mode():
            action = policy.select_action(look())
        return len(post(action).to("cpu").numpy())

    ready = look()

    def network() -> int:
        with torch.inference_mode():
            return LOCK_STEP * len(policy.predict_action_chunk(ready)[0])

    return lock_step, network, sum(p.numel() for p in policy.parameters()) / 1e6


def _alone(call: Callable[[], int], seconds: float) -> Turn:
    call()
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while (spent := time.perf_counter() - began) < seconds:
        count += call()
    return Turn(count / spent, count / (time.process_time() - cpu))


if __name__ == "__main__":
    main()
