"""CPU time of a LIBERO step without rendering: robosuite's own, ours before and now, and the physics alone.

Runs in LIBERO's environment. In each task, the contenders take turns with the same actions from the same initial state,
and have to leave the same positions and velocities behind, bit by bit. They are robosuite's own step; our simulator
around that, as it was before (`loop=robosuite`); our simulator now; and 25 × (`mj_step1`, `mj_step2`).

    .venvs/libero/bin/python benchmarks/libero_step.py [--tasks libero_spatial/0 ...] [--steps 60] [--rounds 3]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

import mujoco
import numpy as np
from common import conclude, show

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.benchmarks.libero import Libero, LiberoSettings, LiberoSimulator

TARGET = 2.5
SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10", "libero_90")
STATE = frozenset({"observation.state"})
CHUNK = 10
"""The policy looks at its state once in so many steps."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=[f"{suite}/{k}" for suite in SUITES for k in (0, 4, 8)])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, dict[str, float]] = {}
    for name in options.tasks:
        times[name] = measure(name, options.steps, options.rounds)
        line = ", ".join(f"{who} {ms:.2f}" for who, ms in times[name].items())
        sys.stderr.write(f"{name}: {line} ms of CPU per step\n")
    suites = {suite: [t for name, t in times.items() if name.startswith(f"{suite}/")] for suite in SUITES}
    rows, ratios, floor = [], {}, {}
    for suite, found in [*suites.items(), ("all", list(times.values()))]:
        if not found:
            continue
        mean = {who: fmean(task[who] for task in found) for who in found[0]}
        ratios[suite], floor[suite] = mean["robosuite"] / mean["fast"], mean["fast"] / mean["physics"]
        rows.append([suite, *(f"{ms:.2f}" for ms in mean.values()), f"{ratios[suite]:.2f}×", f"{floor[suite]:.2f}×"])
    show(
        f"milliseconds of CPU per step, {len(times)} tasks, {options.steps} steps, medians of {options.rounds} rounds",
        ["", "robosuite", "before", "now", "physics", "robosuite : now", "now : physics"],
        rows,
    )
    conclude(
        "libero_step",
        target=f"at least {TARGET}× less than robosuite's own in each suite",
        met=min(ratios.values()) >= TARGET,
        ratios=ratios,
        against_physics=floor,
    )


def measure(name: str, steps: int, rounds: int) -> dict[str, float]:
    """Milliseconds of CPU per step of each contender: the median of rounds, in which they take turns."""
    benchmark = Libero()
    task = benchmark.tasks(name)[0]
    fast, slow = (benchmark.make(task, LiberoSettings(resolution=64, loop=loop)) for loop in ("fast", "robosuite"))
    assert isinstance(fast, LiberoSimulator)
    assert isinstance(slow, LiberoSimulator)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 7))

    def own(step: int) -> None:
        slow._environment.step(actions[step])

    def simulated(simulator: LiberoSimulator) -> Callable[[int], None]:
        return lambda step: void(simulator.step(actions[step], look=NOTHING if step % CHUNK else STATE))

    contenders: dict[str, tuple[LiberoSimulator, Callable[[int], None]]] = {
        "robosuite": (slow, own),
        "loop=robosuite": (slow, simulated(slow)),
        "fast": (fast, simulated(fast)),
    }
    taken: dict[str, list[float]] = {who: [] for who in (*contenders, "physics")}
    for turn in range(rounds + 1):  # the first one compiles
        ends = set()
        for who, (simulator, step) in contenders.items():
            simulator.reset(seed=1, index=turn, look=NOTHING)
            milliseconds = cpu(step, steps)
            data = simulator._environment.sim.data._data
            ends.add((data.qpos.tobytes(), data.qvel.tobytes()))
            if turn:
                taken[who].append(milliseconds)
        if len(ends) != 1:
            sys.exit(f"{name}: the contenders did not end in the same state")
        states = visited(fast, actions, turn)
        if turn:
            taken["physics"].append(cpu(physics(fast, states), steps))
    fast.close()
    slow.close()
    return {who: median(values) for who, values in taken.items()}


def visited(simulator: LiberoSimulator, actions: Any, turn: int) -> list[Any]:
    """The whole state at the beginning of each step of the episode, with the controls that were last given."""
    model, data = simulator._environment.sim.model._model, simulator._environment.sim.data._data
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    simulator.reset(seed=1, index=turn, look=NOTHING)
    states = []
    for action in actions:
        states.append(np.empty(mujoco.mj_stateSize(model, kind)))
        mujoco.mj_getState(model, data, states[-1], kind)
        simulator.step(action, look=NOTHING)
    return states


def physics(simulator: LiberoSimulator, states: list[Any]) -> Callable[[int], None]:
    """The bare loop on the same states, with controls that stay what they are for a step."""
    model, data = simulator._environment.sim.model._model, simulator._environment.sim.data._data

    def step(number: int) -> None:
        mujoco.mj_setState(model, data, states[number], mujoco.mjtState.mjSTATE_INTEGRATION)
        for _ in range(25):
            mujoco.mj_step1(model, data)
            mujoco.mj_step2(model, data)

    return step


def cpu(step: Callable[[int], None], steps: int) -> float:
    """Milliseconds of CPU per call."""
    start = time.process_time()
    for number in range(steps):
        step(number)
    return (time.process_time() - start) / steps * 1000


def void(_: object) -> None:
    """Drops what a step returns."""


if __name__ == "__main__":
    main()
