"""CPU time of a Meta-World step and reset without rendering: Meta-World's own, ours, and the physics alone.

In each task both take turns with the same actions from the same seeds, and have to give the same rewards and
observations and leave the same positions and velocities behind, bit by bit. Physics alone is `mj_step` with the
environment's frame skip, from the states that the episode came through.

    .venv/bin/python benchmarks/metaworld_step.py [--tasks reach-v3 ...] [--steps 100] [--rounds 3]
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
from sparring.env_worker.benchmarks.metaworld import ENVIRONMENT_STATE, Metaworld, MetaworldSettings, MetaworldSimulator

TASKS = ("reach-v3", "door-open-v3", "coffee-button-v3", "pick-place-v3", "push-v3", "assembly-v3", "stick-pull-v3")
STATE = frozenset({ENVIRONMENT_STATE})
CHUNK = 10
"""The policy looks at its state once in so many steps."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, dict[str, float]] = {}
    for name in options.tasks:
        times[name] = measure(name, options.steps, options.rounds)
        sys.stderr.write(f"{name}: {', '.join(f'{what} {ms:.3f}' for what, ms in times[name].items())} ms of CPU\n")
    mean = {what: fmean(task[what] for task in times.values()) for what in next(iter(times.values()))}
    steps, resets = mean["own step"] / mean["step"], mean["own reset"] / mean["reset"]
    show(
        f"milliseconds of CPU, {len(times)} tasks, {options.steps} steps, medians of {options.rounds} rounds",
        ["", "Meta-World", "now", "physics", "Meta-World : now"],
        [
            ["step", f"{mean['own step']:.3f}", f"{mean['step']:.3f}", f"{mean['physics']:.3f}", f"{steps:.2f}×"],
            ["reset", f"{mean['own reset']:.2f}", f"{mean['reset']:.2f}", "-", f"{resets:.2f}×"],
        ],
    )
    conclude(
        "metaworld_step",
        target="neither steps nor resets take longer than Meta-World's own",
        met=min(steps, resets) >= 1.0,
        steps=steps,
        resets=resets,
    )


def measure(name: str, steps: int, rounds: int) -> dict[str, float]:
    """Milliseconds of CPU of each contender's steps and resets: the medians of rounds, in which they take turns."""
    own, ours = simulator(name), simulator(name)
    original = type(own._env).__mro__[1]
    own._env.__class__ = original  # as Meta-World has it
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 4)).astype(np.float32)
    taken: dict[str, list[float]] = {what: [] for what in ("own step", "step", "physics", "own reset", "reset")}
    for turn in range(rounds + 1):  # the first one warms up
        seen = []
        for prefix, contender in (("own ", own), ("", ours)):
            reset = cpu(lambda _, c=contender, t=turn: c.reset(seed=t, index=0, look=NOTHING), 1)
            trace: list[bytes] = []
            step = cpu(lambda k, c=contender, found=trace: played(c, actions[k], k, found), steps)
            data = contender._env.data
            seen.append((trace, data.qpos.tobytes(), data.qvel.tobytes()))
            if turn:
                taken[f"{prefix}reset"].append(reset)
                taken[f"{prefix}step"].append(step)
        if seen[0] != seen[1]:
            sys.exit(f"{name}: the contenders did not do the same")
        if turn:
            taken["physics"].append(cpu(physics(ours, actions, turn), steps))
    own.close()
    ours.close()
    return {what: median(values) for what, values in taken.items()}


def simulator(name: str) -> MetaworldSimulator:
    made = Metaworld().make(Metaworld().tasks(name)[0], MetaworldSettings())
    assert isinstance(made, MetaworldSimulator)
    return made


def played(simulator: MetaworldSimulator, action: Any, number: int, trace: list[bytes]) -> None:
    """Plays a step, and keeps what came of it."""
    step = simulator.step(action, look=NOTHING if number % CHUNK else STATE)
    shown = step.observation.get(ENVIRONMENT_STATE)
    trace.append(np.float64(step.reward).tobytes() + (b"" if shown is None else shown.tobytes()))


def physics(simulator: MetaworldSimulator, actions: Any, turn: int) -> Callable[[int], None]:
    """Returns the bare physics of an episode's steps, on the states that it came through."""
    env, kind = simulator._env, mujoco.mjtState.mjSTATE_INTEGRATION
    simulator.reset(seed=turn, index=0, look=NOTHING)
    states = []
    for action in actions:
        states.append(np.empty(mujoco.mj_stateSize(env.model, kind)))
        mujoco.mj_getState(env.model, env.data, states[-1], kind)
        simulator.step(action, look=NOTHING)

    def step(number: int) -> None:
        mujoco.mj_setState(env.model, env.data, states[number], kind)
        mujoco.mj_step(env.model, env.data, env.frame_skip)

    return step


def cpu(step: Callable[[int], object], calls: int) -> float:
    """Milliseconds of CPU per call."""
    start = time.process_time()
    for number in range(calls):
        step(number)
    return (time.process_time() - start) / calls * 1000


if __name__ == "__main__":
    main()
