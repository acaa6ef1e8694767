"""Whether `--max-queue-delay auto` is ever worse than not waiting: modelled policies, slots and cores, in virtual time.

The batcher is the real one; the clock is not, so that nothing depends on the machine and a minute of play takes less
than a second. A slot takes a core for the time of its physics, asks the policy, and begins again. Times of physics are
drawn for each chunk, the same ones for both contenders; --draw N draws others.

    python benchmarks/queue_delay.py [--slots 1 2 4 8 16] [--cores 2 8 64] [--looks 100] [--draw 0]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from common import conclude, show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import virtual_time

from sparring.policy_server.batcher import Batcher
from sparring.policy_server.options import QueueDelay
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from sparring.protos.spec import Offer

POLICIES: Final = {  # Milliseconds of a pass, and of each of its rows.
    "costs nothing": (0.0, 0.0),
    "small network, 2 + 0.5": (2.0, 0.5),
    "VLA, 40 + 2": (40.0, 2.0),
    "padded, 40 + 0": (40.0, 0.0),
    "slow rows, 5 + 20": (5.0, 20.0),
    "very slow, 300 + 30": (300.0, 30.0),
}
PHYSICS: Final = {  # Milliseconds of ten steps, and how much that varies.
    "LIBERO": (45.0, 0.2),
    "Meta-World": (4.0, 0.3),
    "uneven": (60.0, 1.0),
}
LEAST: Final = 0.99
TASK: Final = Instruction("go", name="go", offer=Offer({}, (-1.0,), (1.0,)))


class _Modelled(Policy):
    spec = PolicySpec(action_dim=1)

    def __init__(self, of_pass: float, of_row: float) -> None:
        self._pass, self._row = of_pass / 1000, of_row / 1000

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        virtual_time.clock().now += self._pass + self._row * len(observations)
        return [np.zeros((1, 1))] * len(observations)


def answers(policy: str, physics: str, slots: int, cores: int, looks: int, delay: QueueDelay, *, draw: int = 0) -> int:
    """How many answers slots get in the time that one alone needs for so many looks."""
    mean, spread = PHYSICS[physics]
    seconds = looks * (mean + sum(POLICIES[policy])) / 1000

    async def body() -> int:
        loop = virtual_time.clock()
        batcher = Batcher(
            _Modelled(*POLICIES[policy]),
            max_queue_delay=delay,
            expected=lambda: slots,
            thread=virtual_time.VirtualThread(loop),
        )
        free = asyncio.Semaphore(cores)

        async def play(number: int) -> int:
            times, count = np.random.default_rng((number, draw)), 0
            who = _Who()
            await batcher.new_session(TASK, 0, who=who)
            while loop.time() < seconds:
                async with free:
                    await asyncio.sleep(mean / 1000 * times.lognormal(-(spread**2) / 2, spread))
                await batcher.act(Observation({}, TASK), None, action_dim=1, who=who)
                count += 1
            return count

        try:
            return sum(await asyncio.gather(*map(play, range(slots))))
        finally:
            await batcher.close()

    return virtual_time.run(body())


class _Who:
    """A session."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--looks", type=int, default=100, help="of a slot that waits for nobody")
    parser.add_argument("--draw", type=int, default=0, help="which times of physics are drawn")
    options = parser.parse_args()

    ratios: dict[str, dict[int, float]] = {}
    for physics in PHYSICS:
        for cores in options.cores:
            for policy in POLICIES:
                play = [(policy, physics, n, cores, options.looks) for n in options.slots]
                found = {
                    n: answers(*one, "auto", draw=options.draw) / answers(*one, 0.0, draw=options.draw)
                    for n, one in zip(options.slots, play, strict=True)
                }
                ratios[f"{physics}, {cores} cores: {policy}"] = found
    curve = _curve(options.cores, options.looks)
    rows = [[name, *(f"{found[n]:.3f}×" for n in options.slots)] for name, found in ratios.items()]
    show("answers with auto : without waiting, by slots", ["", *map(str, options.slots)], rows)
    worst = min((ratio, f"{name}, {n} slots") for name, found in ratios.items() for n, ratio in found.items())
    best = max((ratio, f"{name}, {n} slots") for name, found in ratios.items() for n, ratio in found.items())
    conclude(
        "queue_delay",
        target=f"auto gives at least {LEAST} of the answers in every case",
        met=worst[0] >= LEAST,
        worst=worst,
        best=best,
        more=sum(ratio > 1.05 for found in ratios.values() for ratio in found.values()),
        less=sum(ratio < 1 for found in ratios.values() for ratio in found.values()),
        cases=sum(map(len, ratios.values())),
        curve=curve,
        ratios=ratios,
    )


def _curve(all_cores: Sequence[int], looks: int) -> dict[str, dict[int, float]]:
    """What share of the bound, the lower one of policy and physics, slots reach with `auto`: LIBERO and a VLA."""
    policy, physics = "VLA, 40 + 2", "LIBERO"
    (of_pass, of_row), (mean, _) = POLICIES[policy], PHYSICS[physics]
    found: dict[str, dict[int, float]] = {}
    for cores in all_cores[:2]:
        for each in (0.5, 1, 2, 3, 4):
            slots = round(each * cores)
            reached = answers(policy, physics, slots, cores, looks, "auto") / looks / (mean + of_pass + of_row)
            bound = min(slots / (of_pass + of_row * slots), min(slots, cores) / mean)
            found.setdefault(f"{cores} cores", {})[slots] = reached / bound
    shares = [[name, *(f"{n}: {share:.0%}" for n, share in by.items())] for name, by in found.items()]
    show(f"share of the bound, by slots: {physics}, {policy}", ["", "½ a core", "1", "2", "3", "4"], shares)
    return found


if __name__ == "__main__":
    main()
