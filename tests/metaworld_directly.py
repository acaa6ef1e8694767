"""Meta-World's experts without Sparring, in a module of its own that other processes can import."""

from __future__ import annotations

import warnings


def driven_directly(name: str, episodes: int, seed: int) -> list[tuple[str, int, str, int, float]]:
    """The expert of a task in the environment as LeRobot makes it, with nothing of Sparring in between."""
    import metaworld
    from metaworld.policies import ENV_POLICY_MAP

    warnings.simplefilter("ignore")
    mt1 = metaworld.MT1(name, seed=42)
    env = mt1.train_classes[name]()
    env.set_task(mt1.train_tasks[0])
    env.reset()
    env._freeze_rand_vec = False
    env.seeded_rand_vec = True
    outcomes = []
    for k in range(episodes):
        env.seed(seed + k)
        observation, _ = env.reset()
        expert = ENV_POLICY_MAP[name]()
        total, steps, success, truncated = 0.0, 0, False, False
        while not success and not truncated:
            observation, reward, _, truncated, info = env.step(expert.get_action(observation))
            total += float(reward)
            steps += 1
            success = bool(info["success"])
        outcomes.append((name, k, "success" if success else "failure", steps, total))
    return outcomes
