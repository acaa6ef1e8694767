"""LIBERO as other projects evaluate on it, beside ours by their protocol: a program of its own.

    python libero_by_others.py vla-eval|openpi|gr00t TASK SIDE OUT.npz [IDLE_TASK]

Both play the same policy, which has planned its actions before and notes what it is shown: one that succeeds, and, on
IDLE_TASK, an idle one that runs out of time. vla-eval's loop, runner and
benchmark are its own. openpi's client loop and GR00T's environment are not on PyPI: they are written here after what
they do, with openpi's own image tools, on LIBERO's own `OffScreenRenderEnv`.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent.parent / "src"
INDEX = 1
"""Not the first episode: that what is before it counts is among what is compared."""
AT_REST = [0.0] * 6 + [-1.0]
FOREVER = 2000
"""Steps: more than any project plays."""


def environment() -> dict[str, str]:
    """The variables of a process of this Python that finds LIBERO's packages before ours."""
    from sparring.env_worker.benchmarks.libero import Libero
    from sparring.orchestrator.machine.environments import interpreter

    python = Path(interpreter(Libero()))
    (libero,) = (python.parent.parent / "lib").glob("python3.*/site-packages")
    paths = [HERE, SOURCES, sysconfig.get_path("purelib"), libero]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


class Planned:
    """A policy that plays what it has planned, and notes what it is shown.

    Args:
        actions: The plan, as it is played in the simulator.
        layout: How the foreign side wants an action.
        chunk: How many actions it answers with; those after `play` must not be played, and are nonsense.
    """

    def __init__(self, actions: Sequence[Any], layout: Any, chunk: int) -> None:
        self._actions, self._layout, self._chunk = np.asarray(actions), layout, chunk
        self._next = 0
        self.shown: list[dict[str, Any]] = []

    def ask(self, shown: Mapping[str, Any]) -> Any:
        self.shown.append({name: np.array(value) for name, value in shown.items()})
        play = self._layout.play
        told = self._actions[self._next : self._next + play]
        self._next += play
        padding = np.full((play - len(told), 7), 0.5)
        nonsense = np.full((self._chunk - play, 7), -1.0)
        return np.concatenate([self._layout.given_back(np.concatenate([told, padding])), nonsense]).astype(np.float32)


def plan(simulator: Any, seed: int) -> list[Any]:
    """The actions by which the scripted expert succeeds, with a gripper that is not quite closed or open."""
    from sparring.policy_server.policies.libero_expert import LiberoExpert

    expert = LiberoExpert()
    names, player, actions = frozenset(expert.spec.observations), expert.new_session(None, seed), []  # type: ignore[arg-type]
    seen = simulator.reset(seed=seed, index=INDEX, look=names)
    for _ in range(simulator.max_steps):
        (action,) = expert.act([seen], [player])[0]  # type: ignore[list-item]
        action = np.clip(action, -1, 1).astype(np.float32)
        action[-1] = 0.75 if action[-1] > 0 else -0.75
        actions.append(action)
        step = simulator.step(action, look=names)
        seen = step.observation
        if step.success:
            return actions
    raise AssertionError("the expert did not succeed: there would be nothing that outcomes could differ in")


class Behind:
    """A session with a policy behind a bridge, without the wire: the layout in between is the bridge's own.

    Not a server: what is compared are the rules of the simulator's side.
    """

    def __init__(self, policy: Planned, layout: Any) -> None:
        self._policy, self._layout = policy, layout
        self.needs = layout.spec

    def start(self, **_: Any) -> None:
        pass

    def act(self, seen: Mapping[str, Any], *, step: int) -> Any:
        from sparring.protos.chunk import Chunk

        whole = np.asarray(self._policy.ask(self._layout.shown(seen)))
        return Chunk(self._played(whole), 0.0, 0.0, 1)

    def _played(self, whole: Any) -> Any:
        from dataclasses import replace

        # All that it answers, so that the rule decides how many of them are played.
        return replace(self._layout, play=len(whole)).played(whole)


def ours(
    name: str, task_name: str, side: int, chunk: int, *, idle: bool
) -> tuple[Any, list[dict[str, Any]], list[Any], int]:
    from sparring.env_worker.benchmarks.libero import Libero
    from sparring.env_worker.episode.play import Order, run_episode
    from sparring.env_worker.protocol import protocols_of, whole
    from sparring.policy_server.bridges.presets import PRESETS
    from sparring.protos.episode_rules import EpisodeRules

    benchmark = Libero()
    protocol = whole(benchmark, protocols_of(benchmark)[name])
    layout = PRESETS[protocol.layout]["libero"]
    (task,) = benchmark.tasks(task_name)
    simulator = benchmark.make(task, benchmark.read_settings({**protocol.settings, "resolution": side}))
    seed = protocol.seed + INDEX
    actions = [np.array(AT_REST)] * FOREVER if idle else plan(simulator, seed)
    policy = Planned(actions, layout, chunk)
    order = Order(task, INDEX, seed, EpisodeRules(**protocol.rules))
    record = run_episode(simulator, Behind(policy, layout), order)  # type: ignore[arg-type]
    simulator.close()
    return record, policy.shown, actions, seed


def by_vla_eval(task_name: str, side: int, actions: Sequence[Any], layout: Any) -> tuple[bool, int, list[Any]]:
    from vla_eval.benchmarks.libero import LIBEROBenchmark
    from vla_eval.benchmarks.libero import benchmark as module
    from vla_eval.runners.sync_runner import SyncEpisodeRunner

    module.LIBERO_ENV_RESOLUTION = side
    suite, number = task_name.split("/")
    policy = Planned(actions, layout, 1)

    class Connection:
        """The wire's end: what it is shown is noted, and what was planned is answered."""

        def __init__(self, answer: Any) -> None:
            self._answer = answer

        async def start_episode(self, *_: Any) -> None:
            pass

        async def end_episode(self, *_: Any) -> None:
            pass

        async def act(self, shown: Any) -> Any:
            return {"actions": self._answer({**shown["images"], "states": shown["states"]})}

    async def play() -> Any:
        # Its states are as ours with this; without, rotations are made shorter than pi.
        benchmark = LIBEROBenchmark(suite, send_wrist_image=True, send_state=True, quat_no_antipodal=True)
        task, runner = benchmark.get_tasks()[int(number)], SyncEpisodeRunner()
        idle = Connection(lambda _: np.array(AT_REST))
        for index in range(INDEX):
            await runner.run_episode(benchmark, {**task, "episode_idx": index}, idle, max_steps=2)
        limit = benchmark.get_metadata()["max_steps"]
        mine = Connection(lambda shown: policy.ask(shown)[0])
        found = await runner.run_episode(benchmark, {**task, "episode_idx": INDEX}, mine, max_steps=limit)
        benchmark.cleanup()
        return found

    found = asyncio.run(play())
    return bool(found["metrics"]["success"]), found["steps"], policy.shown


def _environment(task_name: str, side: int) -> tuple[Any, Any]:
    """LIBERO's own environment of a task, and the task's official states."""
    import torch
    from libero.libero import benchmark, get_libero_path
    from libero.libero.envs import OffScreenRenderEnv

    suite, number = task_name.split("/")
    task = benchmark.get_benchmark_dict()[suite]().get_task(int(number))
    folder = Path(task.problem_folder)
    states = torch.load(Path(get_libero_path("init_states")) / folder / task.init_states_file, weights_only=False)
    problem = Path(get_libero_path("bddl_files")) / folder / task.bddl_file
    return OffScreenRenderEnv(bddl_file_name=str(problem), camera_heights=side, camera_widths=side), states


def _axis_angle(quaternion: Any) -> Any:
    w = min(1.0, max(-1.0, quaternion[3]))
    sine = math.sqrt(1.0 - w * w)
    return np.zeros(3) if math.isclose(sine, 0.0) else quaternion[:3] * 2.0 * math.acos(w) / sine


def by_openpi(task_name: str, side: int, actions: Sequence[Any], layout: Any) -> tuple[bool, int, list[Any]]:
    """openpi's loop over the episodes of a task, up to the one that is compared."""
    from openpi_client import image_tools

    limits = {"spatial": 220, "object": 280, "goal": 300, "10": 520, "90": 400}
    most, waiting, replan = limits[task_name.split("/")[0].removeprefix("libero_")], 10, 5
    env, states = _environment(task_name, side)
    env.seed(7)
    policy = Planned(actions, layout, 10)

    def seen(raw: Any, name: str) -> Any:
        turned = np.ascontiguousarray(raw[name][::-1, ::-1])
        return image_tools.convert_to_uint8(image_tools.resize_with_pad(turned, 224, 224))

    for index in range(INDEX + 1):
        env.reset()
        raw, queue, done, step = env.set_init_state(states[index]), [], False, 0
        while step < most + waiting and not done:
            if step < waiting:
                raw, _, _, _ = env.step(AT_REST)
            elif index < INDEX:
                break  # what an earlier episode comes to is nobody's business; that it was reset is
            else:
                if not queue:
                    state = (raw["robot0_eef_pos"], _axis_angle(raw["robot0_eef_quat"]), raw["robot0_gripper_qpos"])
                    answer = policy.ask(
                        {
                            "observation/image": seen(raw, "agentview_image"),
                            "observation/wrist_image": seen(raw, "robot0_eye_in_hand_image"),
                            "observation/state": np.concatenate(state),
                        }
                    )
                    queue = list(answer[:replan])
                raw, _, done, _ = env.step(queue.pop(0).tolist())
            step += 1
    env.close()
    return bool(done), step - waiting, policy.shown


def by_gr00t(task_name: str, side: int, actions: Sequence[Any], layout: Any, seed: int) -> tuple[bool, int, list[Any]]:
    """GR00T's environment in its wrapper that plays 8 actions; it is not seeded, so the same draw is made for it."""
    env, _ = _environment(task_name, side)
    policy = Planned(actions, layout, 16)
    np.random.seed(seed)
    raw, done, steps = env.reset(), False, 0
    while not done and steps < 720:
        rotation = _axis_angle(raw["robot0_eef_quat"])
        numbers = dict(zip(("x", "y", "z", "roll", "pitch", "yaw"), [*raw["robot0_eef_pos"], *rotation], strict=True))
        shown = {f"state.{name}": np.array([value], np.float32) for name, value in numbers.items()}
        shown["state.gripper"] = np.array(raw["robot0_gripper_qpos"], np.float32)
        shown["video.image"] = raw["agentview_image"][::-1, ::-1]
        shown["video.wrist_image"] = raw["robot0_eye_in_hand_image"][::-1, ::-1]
        for given in policy.ask(shown)[:8]:
            action = np.array(given)
            action[-1] = -np.sign(2.0 * action[-1] - 1.0)
            raw, _, _, _ = env.step(action)
            done, steps = bool(env.check_success()), steps + 1
            if done or steps >= 720:
                break
    env.close()
    return done, steps, policy.shown


def main() -> None:
    from sparring.env_worker.benchmarks._libero.installation import prepare_libero
    from sparring.env_worker.benchmarks.libero import LiberoSettings, _assets
    from sparring.env_worker.gl import choose_backend

    os.environ["MUJOCO_GL"] = choose_backend()
    prepare_libero(_assets(LiberoSettings()))  # before others import LIBERO, which would ask for its settings
    who, task, side, out, *idle = sys.argv[1:]
    found = both(who, task, int(side), idle=False)
    for waited in idle:
        found |= {f"idle/{name}": value for name, value in both(who, waited, int(side), idle=True).items()}
    np.savez(out, **found)


def both(who: str, task: str, side: int, *, idle: bool) -> dict[str, Any]:
    """An episode by our protocol and by theirs."""
    from sparring.policy_server.bridges.presets import PRESETS

    layout, chunk = PRESETS[who]["libero"], {"vla-eval": 1, "openpi": 10, "gr00t": 16}[who]
    record, shown, actions, seed = ours(who, task, side, chunk, idle=idle)
    if who == "gr00t":
        success, steps, theirs = by_gr00t(task, side, actions, layout, seed)
    else:
        success, steps, theirs = (by_vla_eval if who == "vla-eval" else by_openpi)(task, side, actions, layout)
    found: dict[str, Any] = {
        "ours/success": record.outcome == "success", "ours/steps": record.steps,
        "theirs/success": success, "theirs/steps": steps,
    }  # fmt: skip
    for side_name, noted in (("ours", shown), ("theirs", theirs)):
        for name in noted[0]:
            found[f"{side_name}/{name.replace('/', '.')}"] = np.stack([one[name] for one in noted])
    return found


if __name__ == "__main__":
    main()
