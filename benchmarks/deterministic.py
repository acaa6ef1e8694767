# ruff: noqa: E402 - the path comes first
"""What deterministic mode costs: milliseconds of a batch, by how many sessions wait, and seconds at the start.

An ACT of about 11 M parameters on the CPU, one thread. Three contenders take turns: batches as they come, the fixed
shape of deterministic mode, and rows one by one, which it falls back to where the fixed shape is not enough.

    python benchmarks/deterministic.py [--rounds 15]

Times are of the CPU, so that neighbours on the machine are not in them. Runs in LeRobot's environment: make
env-lerobot-0.6, then .venvs/lerobot-0.6/bin/python benchmarks/deterministic.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lerobot"))  # checkpoints.py, and torchvision beside a CPU build of torch

import lerobot_on_311  # noqa: F401
import torchvision_on_cpu  # noqa: F401
from checkpoints import act_config, save
from common import show
from sessions import SIDE, Player, load

SESSIONS: Final = (1, 4, 8)
CONTENDERS: Final[dict[str, dict[str, Any]]] = {
    "not deterministic": {},
    "pad_to=8": {"deterministic": True, "pad_to": 8},
    "one by one": {"deterministic": True, "pad_to": 1},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="How often each contender has its turn.")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = save(act_config(SIDE), Path(folder) / "act")
        policies = {name: load(checkpoint, threads=1, **options) for name, options in CONTENDERS.items()}
    start = {}
    for name, policy in policies.items():
        began = time.process_time()
        policy.warm_up()
        start[name] = time.process_time() - began
    took: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for waiting in SESSIONS:
            for name, policy in policies.items():
                players = [Player(policy, seed) for seed in range(waiting)]
                looks, states = [player.look() for player in players], [player.state for player in players]
                policy.act(looks, states)  # whose sentence is new to it in the first round
                began = time.process_time()
                policy.act(looks, states)
                took[name, waiting].append(time.process_time() - began)
    plain, rows = next(iter(CONTENDERS)), []
    for name, policy in policies.items():
        cells = []
        for waiting in SESSIONS:
            own, base = median(took[name, waiting]), median(took[plain, waiting])
            cells.append(f"{1000 * own:.1f} ({own / base:.2f}×)")
        rows.append([name, *cells, f"{start[name]:.2f}", str(len(policy.warnings))])
    columns = ["ms of CPU", *(f"{n} rows" for n in SESSIONS), "start, s", "warnings"]
    show("What deterministic mode costs", columns, rows)


if __name__ == "__main__":
    main()
