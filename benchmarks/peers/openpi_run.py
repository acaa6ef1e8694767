"""LIBERO as openpi evaluates on it, with openpi's client, image tools and wire format; its example is not on PyPI.

    python openpi_run.py CHECKPOINT SUITE TASKS EPISODES STEPS SEED OUT
    python openpi_run.py serve CHECKPOINT

As openpi has it: both cameras drawn at every step, images turned and resized at every step, one question per chunk, one
seed per task, and a film of each episode. Images are not made smaller and a chunk is played whole, because the
checkpoint is the others'. The server is one like openpi's with LeRobot's policy behind it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 256
SETTLING, IDLE = 10, [0.0] * 6 + [-1.0]


def serve(checkpoint: str) -> None:
    """Answers with LeRobot's policy, one observation at a time."""
    import torch
    from contenders import serve_as_openpi
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors
    from lerobot.policies.utils import prepare_observation_for_inference

    config = PreTrainedConfig.from_pretrained(checkpoint, cli_overrides=["--device=cpu"])
    policy: Any = get_policy_class(config.type).from_pretrained(checkpoint, config=config)
    pre, post = make_pre_post_processors(config, pretrained_path=checkpoint)

    def answer(observation: dict[str, Any]) -> Any:
        frame = {
            "observation.images.image": observation["observation/image"],
            "observation.images.image2": observation["observation/wrist_image"],
            "observation.state": np.asarray(observation["observation/state"], np.float32),
        }
        ready = prepare_observation_for_inference(frame, torch.device("cpu"), task=observation["prompt"])
        with torch.inference_mode():
            return post(policy.predict_action_chunk(pre(ready)))[0].numpy()

    asyncio.run(serve_as_openpi(answer))


def main() -> None:
    checkpoint, suite_name, tasks, episodes, steps, seed, out = sys.argv[1:]
    from common import child
    from libero.libero import benchmark
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    with child(__file__, "serve", checkpoint) as server:
        assert server.stdout is not None
        # LeRobot prints while it loads; the address comes after that.
        address = next(line for line in server.stdout if line.startswith("127.0.0.1:"))
        host, _, port = address.strip().rpartition(":")
        client = WebsocketClientPolicy(host, int(port))
        suite = benchmark.get_benchmark_dict()[suite_name]()
        began, rewards = time.monotonic(), {}
        for number in map(int, tasks.split(",")):
            task, env, states = _task(suite, number, int(seed))
            for index in range(int(episodes)):
                film = Path(out).with_name(f"{number}-{index}.mp4")
                rewards[f"{suite_name}/{number}:{index}"] = _play(
                    env, client, states[index], task.language, int(steps), film
                )
            env.close()
        seconds = time.monotonic() - began
    Path(out).write_text(json.dumps({"seconds": seconds, "rewards": rewards}))


def _task(suite: Any, number: int, seed: int) -> tuple[Any, Any, Any]:
    import torch
    from libero.libero import get_libero_path
    from libero.libero.envs import OffScreenRenderEnv

    task = suite.get_task(number)
    folder = Path(get_libero_path("bddl_files"), task.problem_folder)
    env = OffScreenRenderEnv(bddl_file_name=str(folder / task.bddl_file), camera_heights=SIDE, camera_widths=SIDE)
    env.seed(seed)
    states = Path(get_libero_path("init_states"), task.problem_folder, task.init_states_file)
    return task, env, torch.load(states, weights_only=False)


def _play(env: Any, client: Any, state: Any, sentence: str, steps: int, film: Path) -> float:
    import imageio
    from openpi_client.image_tools import convert_to_uint8, resize_with_pad

    env.reset()
    seen = env.set_init_state(state)
    plan: deque[Any] = deque()
    frames, total = [], 0.0
    for step in range(SETTLING + steps):
        if step < SETTLING:
            action = IDLE
        else:
            turned = [seen[name][::-1, ::-1] for name in ("agentview_image", "robot0_eye_in_hand_image")]
            image, wrist = (convert_to_uint8(resize_with_pad(np.ascontiguousarray(i), SIDE, SIDE)) for i in turned)
            if not plan:
                observation = {"observation/image": image, "observation/wrist_image": wrist, "prompt": sentence}
                plan.extend(client.infer({**observation, "observation/state": _state(seen)})["actions"])
            action = plan.popleft().tolist()
        seen, reward, done, _ = env.step(action)
        frames.append(np.ascontiguousarray(seen["agentview_image"][::-1, ::-1]))
        if step >= SETTLING:
            total += float(reward)
        if done:
            break
    imageio.mimwrite(str(film), frames, fps=10)
    return total


def _state(seen: Any) -> Any:
    from sparring.env_worker.benchmarks.libero import lerobot_state  # the same arithmetic

    return lerobot_state(seen["robot0_eef_pos"], seen["robot0_eef_quat"], seen["robot0_gripper_qpos"])


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1] == "serve" else main()
