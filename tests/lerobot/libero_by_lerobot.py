"""LeRobot's LIBERO, and LeRobot's loop on it: a program of its own, where LeRobot and LIBERO are both there.

    python libero_by_lerobot.py replay  TASK SIDE SEED OUT.npz
    python libero_by_lerobot.py evaluate TASK SIDE SEED STEPS CHECKPOINT OUT.npz
    python libero_by_lerobot.py rules    TASK SIDE SEED OUT.npz

LeRobot's tests have Meta-World's MuJoCo, LIBERO's have another one and no LeRobot. `environment()` is what puts both in
one process: packages of LeRobot's environment first, LIBERO's after them, ours last.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SETTLED = {
    "robot0_eef_pos": ("eef", "pos"),
    "robot0_eef_quat": ("eef", "quat"),
    "robot0_eef_mat": ("eef", "mat"),
    "robot0_gripper_qpos": ("gripper", "qpos"),
    "robot0_gripper_qvel": ("gripper", "qvel"),
    "robot0_joint_pos": ("joints", "pos"),
    "robot0_joint_vel": ("joints", "vel"),
}
"""Our names of what LeRobot has in `robot_state`."""
IMAGES = {"agentview_image": "image", "robot0_eye_in_hand_image": "image2"}


def environment() -> dict[str, str]:
    """The variables of a process of LeRobot's Python that finds LIBERO's packages before ours."""
    from sparring.env_worker.benchmarks.libero import Libero
    from sparring.orchestrator.machine.environments import interpreter

    python = Path(interpreter(Libero()))
    (libero,) = (python.parent.parent / "lib").glob("python3.*/site-packages")
    paths = [HERE, HERE.parent.parent / "src", sysconfig.get_path("purelib"), libero]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def replay(task: str, side: int, seed: int) -> dict[str, Any]:
    """An episode that the scripted expert has solved, by its actions: in our simulator and in LeRobot's."""
    from sparring.env_worker.benchmarks.libero import Libero
    from sparring.env_worker.protocol import protocols_of, whole
    from sparring.policy_server.policies.libero_expert import LiberoExpert

    benchmark, expert = Libero(), LiberoExpert()
    found: dict[str, list[Any]] = {}

    def note(who: str, **values: Any) -> None:
        for name, value in values.items():
            found.setdefault(f"{who}/{name}", []).append(np.array(value))

    protocol = whole(benchmark, protocols_of(benchmark)["lerobot-0.6"])
    settings = benchmark.read_settings({**protocol.settings, "resolution": side})
    simulator = benchmark.make(benchmark.tasks(task)[0], settings)
    privileged, player, actions = frozenset(expert.spec.observations), expert.new_session(None, seed), []  # type: ignore[arg-type]
    seen = simulator.reset(seed=seed, index=1, look=privileged)
    for _ in range(simulator.max_steps):
        (action,) = expert.act([seen], [player])[0]  # type: ignore[list-item]
        actions.append(np.clip(action, -1, 1).astype(np.float32))
        step = simulator.step(actions[-1], look=privileged)
        seen = step.observation
        if step.success:
            break
    # Again with eyes open at some steps, as a policy with chunks would look.
    names = frozenset({*IMAGES, *SETTLED, "observation.state"})
    note("ours", **simulator.reset(seed=seed, index=1, look=names))
    for number, action in enumerate(actions, 1):
        step = simulator.step(action, look=names if number % 5 == 0 or number == len(actions) else names - set(IMAGES))
        note("ours", reward=step.reward, success=step.success, **step.observation)
    simulator.close()

    env = _theirs(task, side)
    env.init_state_id = 1
    observation, _ = env.reset(seed=seed)
    note("theirs", **_ours_of(observation))
    for number, action in enumerate(actions, 1):
        observation, reward, _, _, info = env.step(action)
        shown = _ours_of(observation)
        if number % 5 and number != len(actions):
            shown = {name: value for name, value in shown.items() if name not in IMAGES}
        note("theirs", reward=reward, success=info["is_success"], **shown)
    env.close()
    return {name: np.stack(values) for name, values in found.items()}


def rules() -> dict[str, Any]:
    """What LeRobot's evaluation is by default, by the names of our rules."""
    import inspect

    from lerobot.configs.eval import EvalPipelineConfig
    from lerobot.envs.configs import LiberoEnv as LiberoConfig
    from lerobot.envs.libero import TASK_SUITE_MAX_STEPS, LiberoEnv

    config, made = LiberoConfig(), inspect.signature(LiberoEnv).parameters
    assert config.observation_height == config.observation_width
    assert config.init_states
    assert config.episode_length is None, "then a suite's own limit is taken"
    return {
        **{f"limit_{suite.removeprefix('libero_')}": limit for suite, limit in TASK_SUITE_MAX_STEPS.items()},
        "resolution": config.observation_height,
        "control": config.control_mode,
        "settling_steps": made["num_steps_wait"].default,
        "seed": EvalPipelineConfig.__dataclass_fields__["seed"].default,
    }


def evaluate(task: str, side: int, seed: int, steps: int, checkpoint: str) -> dict[str, Any]:
    """A checkpoint in LeRobot's own loop, two episodes: rewards, successes, and what the policy did.

    What is not LeRobot's: the hand's rotation is computed in double precision and then rounded, as we do it. LeRobot
    rounds first. That last bit, which `replay` compares, moves a pixel within some steps, and then everything.
    """
    import torch
    from gymnasium.vector import SyncVectorEnv
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.envs.configs import LiberoEnv
    from lerobot.envs.factory import make_env_pre_post_processors
    from lerobot.envs.libero import create_libero_envs
    from lerobot.policies.factory import make_policy, make_pre_post_processors
    from lerobot.processor.env_processor import LiberoProcessorStep
    from lerobot.scripts.lerobot_eval import eval_policy

    suite, number = task.split("/")
    size = {"observation_height": side, "observation_width": side}
    config = PreTrainedConfig.from_pretrained(checkpoint, cli_overrides=["--device=cpu"])
    config.pretrained_path = Path(checkpoint)
    env_config = LiberoEnv(task=suite, task_ids=[int(number)], episode_length=steps, **size)
    envs = create_libero_envs(
        suite, 1, {**env_config.gym_kwargs, "task_ids": [int(number)]}, env_cls=SyncVectorEnv, episode_length=steps
    )
    (vector,) = envs[suite].values()
    policy = make_policy(config, env_cfg=env_config)
    pre, post = make_pre_post_processors(config, pretrained_path=checkpoint)
    env_pre, env_post = make_env_pre_post_processors(env_config, config)
    LiberoProcessorStep._quat2axisangle = _rotations
    played = _noting(vector)  # `return_episode_data` cannot stack LIBERO's nested observations
    with torch.no_grad():
        info = eval_policy(vector, policy, env_pre, env_post, pre, post, n_episodes=2, start_seed=seed)
    vector.close()
    return {
        "sum_rewards": [row["sum_reward"] for row in info["per_episode"]],
        "successes": [row["success"] for row in info["per_episode"]],
        "actions": np.stack(played).reshape(2, steps, -1),
    }


def _rotations(_: Any, quaternions: Any) -> Any:
    import torch

    from sparring.env_worker.benchmarks.libero import lerobot_state

    nothing = np.zeros(3)
    found = [lerobot_state(nothing, quaternion.numpy(), nothing[:2])[3:6] for quaternion in quaternions]
    return torch.from_numpy(np.stack(found))


def _noting(vector: Any) -> list[Any]:
    """The actions that a vector of one environment is given, as they come."""
    played: list[Any] = []
    step = vector.step

    def noted(actions: Any) -> Any:
        played.append(np.array(actions[0]))
        return step(actions)

    vector.step = noted
    return played


def _theirs(task: str, side: int) -> Any:
    from lerobot.envs.libero import LiberoEnv, _get_suite

    suite, number = task.split("/")
    size = {"observation_width": side, "observation_height": side}
    return LiberoEnv(_get_suite(suite), int(number), suite, obs_type="pixels_agent_pos", **size)


def _ours_of(observation: Any) -> dict[str, Any]:
    """LeRobot's observation by our names; its images are OpenGL's, with the lowest row first."""
    state = observation["robot_state"]
    processed = _processed(observation)
    return {
        "observation.state": processed,
        **{name: state[part][kind] for name, (part, kind) in SETTLED.items()},
        **{name: observation["pixels"][key][::-1] for name, key in IMAGES.items()},
    }


def _processed(observation: Any) -> Any:
    """The state as LeRobot's own processor makes it for a policy."""
    from lerobot.envs.utils import preprocess_observation
    from lerobot.processor.env_processor import LiberoProcessorStep

    robot = observation["robot_state"]
    batch = {part: {kind: value[None] for kind, value in values.items()} for part, values in robot.items()}
    return LiberoProcessorStep().observation(preprocess_observation({"robot_state": batch}))["observation.state"][0]


def main() -> None:
    from sparring.env_worker.benchmarks._libero.installation import prepare_libero
    from sparring.env_worker.benchmarks.libero import LiberoSettings, _assets
    from sparring.env_worker.gl import choose_backend

    os.environ["MUJOCO_GL"] = choose_backend()
    prepare_libero(_assets(LiberoSettings()))  # before LeRobot imports LIBERO, which would ask for its settings
    if os.environ.get("SPARRING_ONE_BIT"):  # pytest's plug-in has made the change in another process
        sys.path.append(str(HERE.parent))
        from one_bit.changes import pytest_configure

        pytest_configure()
    what, task, side, seed, *more, out = sys.argv[1:]
    if what == "replay":
        found = replay(task, int(side), int(seed))
    elif what == "rules":
        found = rules()
    else:
        found = evaluate(task, int(side), int(seed), int(more[0]), more[1])
    np.savez(out, **found)


if __name__ == "__main__":
    main()
