# ruff: noqa: E402 - the path comes first
"""Actions per second of one LeRobot policy: many sessions on one server, with batching and without, against LeRobot.

An ACT of about 10 M parameters on the CPU. Five contenders take turns, round after round: the server without waiting
(`--max-queue-delay 0`), the server as it is by default (`auto`), the same limited to batches of one, LeRobot's own loop
(`select_action` on a batch of eight in lock-step, with its processors, as lerobot-eval has it), and the network alone,
called again and again with the same batch of eight.

What the server adds to the network is measured twice: against the network alone on the very batches that the server
made (the server's own work: gRPC, codec, stacking, processors), and against the network on batches of eight.

    python benchmarks/batching.py [--rounds 5] [--seconds 4] [--sessions 1 2 4 8 16] [--threads 1]

All compute with one thread unless told otherwise: on a machine that others use, too, torch's threads mostly wait for
each other. There, the clock measures the neighbours; CPU time is what a contender needed itself.

Runs in LeRobot's environment: make env-lerobot-0.4, then .venvs/lerobot-0.4/bin/python benchmarks/batching.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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

from sparring.policy_server.client import Offer, PolicyClient, fetch_stats
from sparring.protos.spec import TensorSpec

SIDE: Final = 96
LOCK_STEP: Final = 8
BATCHING, WAITING, SINGLE = "never waits", "default (auto)", "batch of 1"
LEROBOT, NETWORK = "LeRobot, 8 in lock-step", "network alone, 8 rows"
SERVERS: Final = {BATCHING: ("--max-queue-delay=0",), WAITING: (), SINGLE: ("--max-batch=1",)}
CHUNK: Final = 10
START_SECONDS: Final = 300.0
NETWORK_SECONDS: Final = 0.5
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
    """What a contender did in its turn."""

    actions: int
    seconds: float
    cpu_seconds: float
    """Of whoever computed the actions."""
    batches: Mapping[int, int] = field(default_factory=dict)
    """Forward passes by their number of rows."""

    @property
    def per_second(self) -> float:
        return self.actions / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.actions / self.cpu_seconds


class Turns:
    """All turns of all contenders, and what they say about each other."""

    def __init__(self) -> None:
        self._turns: defaultdict[tuple[str, int], list[Turn]] = defaultdict(list)

    def add(self, name: str, sessions: int, turn: Turn) -> None:
        self._turns[name, sessions].append(turn)

    def medians(self, name: str, sessions: Sequence[int], kind: str) -> dict[int, float]:
        return {n: median(getattr(t, kind) for t in self._turns[name, n]) for n in sessions if self._turns[name, n]}

    def ratio(self, a: str, b: str, sessions: int, kind: str) -> float:
        """How many times as many actions; turns of one round are compared with each other."""
        pairs = zip(self._turns[a, sessions], self._turns[b, sessions], strict=True)
        return median(getattr(x, kind) / getattr(y, kind) for x, y in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn; auto learns in the first of them")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="sessions at once")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each contender")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    turns, memory = Turns(), dict[int, float]()
    with tempfile.TemporaryDirectory(prefix="sparring-bench-") as name:
        folder = Path(name)
        save(act_config(SIDE, chunk_size=CHUNK, n_action_steps=CHUNK), folder / "act")
        alone = LeRobot(folder / "act")
        for number in range(options.rounds):
            _play_round(number, options, folder, alone, turns, memory)
            sys.stderr.write(f"round {number + 1} of {options.rounds}\n")
    _report(turns, options.sessions, alone.parameters, memory)


def _play_round(
    number: int, options: argparse.Namespace, folder: Path, alone: LeRobot, turns: Turns, memory: dict[int, float]
) -> None:
    """A turn of every contender at every number of sessions.

    Servers are new in each round, because where its weights happen to lie in memory makes a process a few percent
    faster or slower for all its life. Another one is first, because a contender finds the caches of the one before.
    """
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(_server(folder, f"{number}-{place}", options.threads, *SERVERS[name]))
            for place, name in enumerate(_rotated(list(SERVERS), number))
        }
        for sessions in options.sessions:
            if sessions == LOCK_STEP:  # right before the servers that they are compared with
                turns.add(LEROBOT, sessions, _alone(alone.lock_step, options.seconds))
                turns.add(NETWORK, sessions, _alone(alone.network(sessions), options.seconds))
            for name, server in servers.items():
                turn = _served(server, sessions, options.seconds)
                turns.add(name, sessions, turn)
                turns.add(f"{name}, its batches", sessions, _network_on(turn.batches, alone))
                if name == BATCHING:
                    memory.setdefault(sessions, psutil.Process(server[1]).memory_info().rss / 2**20)


def _rotated(names: list[str], by: int) -> list[str]:
    return names[by % len(names) :] + names[: by % len(names)]


def _report(turns: Turns, sessions: list[int], parameters: float, memory: dict[int, float]) -> None:
    results: dict[str, Any] = {}
    for kind, title in (
        ("per_second", "actions per second"),
        ("per_cpu_second", "actions per CPU second of the server"),
    ):
        found = {name: turns.medians(name, sessions, kind) for name in (*SERVERS, LEROBOT, NETWORK)}
        rows = [[name, *(f"{by[n]:,.0f}" if n in by else "" for n in sessions)] for name, by in found.items()]
        for name in (BATCHING, WAITING):
            against = {n: turns.ratio(name, SINGLE, n, kind) for n in sessions}
            rows.append([f"{name} : batch of 1", *(f"{against[n]:.2f}×" for n in sessions)])
            # The server's own work; what smaller batches cost is not in it.
            added = {n: turns.ratio(f"{name}, its batches", name, n, kind) - 1 for n in sessions}
            rows.append([f"{name}, added to the network", *(f"{added[n]:+.1%}" for n in sessions)])
            results.setdefault(kind, {})[name] = {"actions": found[name], "over batch 1": against, "added": added}
            if LOCK_STEP in sessions:
                results[kind][name]["over LeRobot"] = turns.ratio(name, LEROBOT, LOCK_STEP, kind)
                results[kind][name]["added to the network on 8"] = turns.ratio(NETWORK, name, LOCK_STEP, kind) - 1
        show(f"{title}, by number of sessions (medians over rounds)", ["", *map(str, sessions)], rows)
    servers = [results[kind][name] for kind in ("per_second", "per_cpu_second") for name in (BATCHING, WAITING)]
    conclude(
        "batching",
        target="by the clock and by CPU time: batching not slower than batch 1 at any session count (3 % of noise "
        "allowed), and at 8 sessions at most 10 % over the network alone on the same batches",
        met=all(r >= 0.97 for server in servers for r in server["over batch 1"].values())
        and all(server["added"].get(LOCK_STEP, 0.0) <= 0.1 for server in servers),
        parameters_in_millions=parameters,
        server_mib={n: round(m) for n, m in memory.items()},
        **results,
    )


@contextmanager
def _server(folder: Path, name: str, threads: int, *flags: str) -> Iterator[tuple[str, int]]:
    arguments = json.dumps({"device": "cpu", "threads": threads})
    program = (  # as `python -m sparring.policy_server`, beside a torchvision that imports
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'lerobot')!r}); import torchvision_on_cpu; "
        "from sparring.policy_server.__main__ import main; main()"
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


def _observation(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "observation.image": rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8),
        "observation.state": rng.random(4, np.float32),
    }


ROWS: Final = [_observation(np.random.default_rng(number)) for number in range(64)]


def _served(server: tuple[str, int], sessions: int, seconds: float) -> Turn:
    """Sessions that ask again as soon as they are answered: simulators that take no time."""
    address, pid = server
    counts = [0] * sessions
    everyone = threading.Barrier(sessions + 1)
    end = [0.0]

    def ask(number: int) -> None:
        observation = ROWS[number]
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
    before, began, cpu = _batches(address), time.perf_counter(), _cpu_seconds(pid)
    end[0] = began + seconds
    everyone.wait(START_SECONDS)
    for thread in threads:
        thread.join(START_SECONDS)
    spent, cpu_spent = time.perf_counter() - began, _cpu_seconds(pid) - cpu
    return Turn(sum(counts), spent, cpu_spent, _batches(address) - before)


def _batches(address: str) -> Counter[int]:
    return Counter(dict(asyncio.run(fetch_stats(address, timeout=60)).batches))


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


class LeRobot:
    """The checkpoint in LeRobot's own hands."""

    def __init__(self, folder: Path) -> None:
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.envs.utils import preprocess_observation
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        config = PreTrainedConfig.from_pretrained(folder)
        self._policy: Any = get_policy_class(config.type).from_pretrained(folder, config=config)
        self._pre, self._post = make_pre_post_processors(config, pretrained_path=str(folder))
        self._preprocess_observation: Any = preprocess_observation
        self.parameters = sum(p.numel() for p in self._policy.parameters()) / 1e6

    def lock_step(self) -> int:
        """A step of LeRobot's loop with eight environments; returns the number of actions."""
        with torch.inference_mode():
            action = self._policy.select_action(self._look(LOCK_STEP))
        return len(self._post(action).to("cpu").numpy())

    def network(self, rows: int) -> Callable[[], int]:
        """A function that calls the network on so many rows, always the same, and returns the number of actions."""
        ready = self._look(rows)

        def call() -> int:
            with torch.inference_mode():
                return rows * len(self._policy.predict_action_chunk(ready)[0])

        return call

    def _look(self, rows: int) -> Any:
        raw = {
            "pixels": np.stack([row["observation.image"] for row in ROWS[:rows]]),
            "agent_pos": np.stack([row["observation.state"] for row in ROWS[:rows]]),
        }
        return self._pre({**self._preprocess_observation(raw), "task": ["Reach a goal position"] * rows})


def _alone(call: Callable[[], int], seconds: float) -> Turn:
    call()
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while (spent := time.perf_counter() - began) < seconds:
        count += call()
    return Turn(count, spent, time.process_time() - cpu)


def _network_on(batches: Mapping[int, int], alone: LeRobot) -> Turn:
    """What the network alone would have needed for these batches, from a short turn of each size."""
    actions, seconds, cpu_seconds = 0, 0.0, 0.0
    for rows, count in batches.items():
        turn = _alone(alone.network(rows), NETWORK_SECONDS)
        passes = count * rows * CHUNK / turn.actions
        actions += count * rows * CHUNK
        seconds += turn.seconds * passes
        cpu_seconds += turn.cpu_seconds * passes
    return Turn(actions, seconds, cpu_seconds)


if __name__ == "__main__":
    main()
