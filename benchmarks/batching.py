# ruff: noqa: E402 - the path comes first
"""Actions per second of one LeRobot policy: many sessions on one server, with batching and without, against LeRobot.

An ACT of about 10 M parameters on the CPU. Four contenders take turns, round after round: the server with batching, the
same server limited to batches of one, LeRobot's own loop (`select_action` on a batch of eight in lock-step, with its
processors, as lerobot-eval has it), and the network alone, called again and again with the same batch of eight.

    python benchmarks/batching.py [--rounds 3] [--seconds 4] [--sessions 1 2 4 8 16]

Runs in LeRobot's environment: make env-lerobot, then .venvs/lerobot/bin/python benchmarks/batching.py
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="sessions at once")
    options = parser.parse_args()

    rates: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparring-bench-")))
        save(act_config(SIDE, chunk_size=CHUNK, n_action_steps=CHUNK), folder / "act")
        batching, pid = stack.enter_context(_server(folder, "batching"))
        single, _ = stack.enter_context(_server(folder, "single", "--max-batch=1"))
        lock_step, network, parameters = _lerobot(folder / "act")
        memory = {}
        for turn in range(options.rounds):
            for sessions in options.sessions:
                rates["batching"][sessions].append(_rate(batching, sessions, options.seconds))
                memory.setdefault(sessions, psutil.Process(pid).memory_info().rss / 2**20)
                rates["batch 1"][sessions].append(_rate(single, sessions, options.seconds))
            rates["LeRobot"][LOCK_STEP].append(_alone(lock_step, options.seconds))
            rates["network"][LOCK_STEP].append(_alone(network, options.seconds))
            sys.stderr.write(f"round {turn + 1} of {options.rounds}\n")
    _report({name: {n: median(v) for n, v in by.items()} for name, by in rates.items()}, parameters, memory)


def _report(rates: dict[str, dict[int, float]], parameters: float, memory: dict[int, float]) -> None:
    counts = list(rates["batching"])
    ratios = {n: rates["batching"][n] / rates["batch 1"][n] for n in counts}
    against_lerobot = rates["batching"].get(LOCK_STEP, 0.0) / rates["LeRobot"][LOCK_STEP]
    overhead = rates["network"][LOCK_STEP] / rates["batching"].get(LOCK_STEP, float("inf")) - 1
    show(
        f"actions per second (median over rounds), ACT of {parameters:.1f} M parameters, {CHUNK} actions a look",
        ["", *(f"{n} session{'s' * (n > 1)}" for n in counts)],
        [
            ["server, batching", *(f"{rates['batching'][n]:,.0f}  ({ratios[n]:.2f}×)" for n in counts)],
            ["server, --max-batch 1", *(f"{rates['batch 1'][n]:,.0f}  (1×)" for n in counts)],
            *(
                [title, *(f"{rates[name][n]:,.0f}" if n in rates[name] else "" for n in counts)]
                for name, title in (("LeRobot", "LeRobot, lock-step"), ("network", "network alone"))
            ),
        ],
    )
    conclude(
        "batching",
        target="batching not slower than batch 1 at any session count; overhead over the network alone <= 10 % at 8",
        met=all(ratio >= 1 for ratio in ratios.values()) and overhead <= 0.1,
        rates=rates,
        ratios=ratios,
        against_lerobot=against_lerobot,
        overhead_at_8=overhead,
        server_mib={n: round(m) for n, m in memory.items()},
    )


@contextmanager
def _server(folder: Path, name: str, *flags: str) -> Iterator[tuple[str, int]]:
    arguments = json.dumps({"device": "cpu"})
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


def _rate(address: str, sessions: int, seconds: float) -> float:
    """Actions per second of sessions that ask again as soon as they are answered: simulators that take no time."""
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
    began = time.perf_counter()
    end[0] = began + seconds
    everyone.wait(START_SECONDS)
    for thread in threads:
        thread.join(START_SECONDS)
    return sum(counts) / (time.perf_counter() - began)


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


def _alone(call: Callable[[], int], seconds: float) -> float:
    call()
    began, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        count += call()
    return count / spent


if __name__ == "__main__":
    main()
