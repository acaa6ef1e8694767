"""The same checkpoints under LeRobot's own evaluation and under Sparring: the same reward sums, episode by episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import act_config, diffusion_config, saving, tdmpc_config
from metaworld_by_lerobot import make_envs
from support import Sparring, read_csv
from tiny_models import smolvla_config

SEED = 1000
SMALL = 96

# Families and variants are compared step by step in test_lerobot_policy.py; these go through everything.
CHECKPOINTS = {
    "act": act_config,
    "act-ensembling": lambda side: act_config(side, n_action_steps=1, temporal_ensemble_coeff=0.01),
    "diffusion": diffusion_config,
    "tdmpc": lambda side: tdmpc_config(side, n_action_repeats=1),
    "smolvla": lambda side: smolvla_config(side=side),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return saving(CHECKPOINTS, tmp_path_factory.mktemp("checkpoints"))


@cache
def by_lerobot(
    folder: Path, tasks: Sequence[str], *, episodes: int, steps: int, side: int
) -> list[tuple[str, int, float]]:
    """Reward sums of LeRobot's evaluation, put together as `lerobot-eval` does, one environment at a time.

    What is not LeRobot's: what `make_envs` says, and torch's global generator is seeded with the episode's seed at its
    start.
    """
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.envs.configs import MetaworldEnv
    from lerobot.envs.factory import make_env_pre_post_processors
    from lerobot.policies.factory import make_policy, make_pre_post_processors
    from lerobot.scripts.lerobot_eval import eval_policy

    config = PreTrainedConfig.from_pretrained(folder, cli_overrides=["--device=cpu"])
    config.pretrained_path = folder
    sums = []
    for task in tasks:
        env_config = MetaworldEnv(task=task)
        (vector,) = make_envs(env_config, task, steps=steps, side=side)[task].values()
        policy = make_policy(config, env_cfg=env_config, rename_map={"": ""})  # a map: sizes are not compared
        policy.reset = seeding_rng(policy.reset)  # type: ignore[method-assign]
        pre, post = make_pre_post_processors(config, pretrained_path=str(folder))
        env_pre, env_post = make_env_pre_post_processors(env_config, config)
        with torch.no_grad():
            result = eval_policy(vector, policy, env_pre, env_post, pre, post, n_episodes=episodes, start_seed=SEED)
        vector.close()
        sums += [(task, row["episode_ix"], row["sum_reward"]) for row in result["per_episode"]]
    return sums


def seeding_rng(reset: Any) -> Any:
    episode = iter(range(SEED, SEED + 100))

    def seeded() -> None:
        torch.manual_seed(next(episode))
        reset()

    return seeded


@pytest.fixture
def by_sparring(sparring: Sparring, tmp_path: Path) -> Iterator[Any]:
    """Reward sums of a run that is going on: a real server, a real worker. They are there when they are asked for."""

    def run(
        folder: Path, tasks: Sequence[str], *flags: str, episodes: int, steps: int, side: int, slots: int = 1
    ) -> list[tuple[str, int, float]]:
        output = f"out-{len(list(tmp_path.iterdir()))}"
        done = sparring(
            "run", "--benchmark", "metaworld", "--task", ",".join(tasks), "--policy", f"lerobot:{folder}",
            "--policy-arg", "device=cpu", "--episodes", str(episodes), "--seed", str(SEED), "--max-steps", str(steps),
            "--benchmark-arg", f"resolution={side}", "--slots", str(slots), "--output", output, *flags, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rows = {(r["task"], int(r["index"])): r for r in read_csv(tmp_path / output)}
        assert {r["outcome"] for r in rows.values()} <= {"success", "failure"}, rows
        return [(task, k, float(rows[task, k]["reward_sum"])) for task in tasks for k in range(episodes)]

    # LeRobot's side is computed meanwhile: most of a run is waiting for processes to start.
    with ThreadPoolExecutor(1) as pool:
        yield partial(pool.submit, run)


TASKS = ("reach-v3", "door-open-v3")


@pytest.mark.everything  # every run of the tests has ACT's reward sums in test_drop_in.py
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_batch_of_one_gives_lerobots_reward_sums(name: str, folder: Any, by_sparring: Any) -> None:
    size = {"episodes": 2, "steps": 12, "side": SMALL}
    run = by_sparring(folder(name, SMALL), TASKS, **size)
    theirs, ours = by_lerobot(folder(name, SMALL), TASKS, **size), run.result()
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    assert [row[2] for row in ours] == pytest.approx([row[2] for row in theirs], rel=1e-6)
    assert len({round(row[2], 3) for row in theirs}) == 4, "episodes that are all alike would prove nothing"


@pytest.mark.everything
def test_at_full_resolution(folder: Any, by_sparring: Any) -> None:
    size = {"episodes": 1, "steps": 8, "side": 480}
    run = by_sparring(folder("act", 480), TASKS[:1], **size)
    theirs, ours = by_lerobot(folder("act", 480), TASKS[:1], **size), run.result()
    assert ours[0][2] == pytest.approx(theirs[0][2], rel=1e-6)


@pytest.mark.everything
def test_sessions_that_share_batches_give_lerobots_reward_sums(folder: Any, by_sparring: Any) -> None:
    """Four sessions of two tasks at once: where LeRobot's shared queues and generator would mix them up."""
    size = {"episodes": 2, "steps": 12, "side": SMALL}
    alone = ("--policy-arg", "deterministic=true", "--policy-arg", "pad_to=1")  # a batch of one, whoever is waiting
    runs = [by_sparring(folder("diffusion", SMALL), TASKS, *flags, **size, slots=4) for flags in (alone, ())]
    theirs = [row[2] for row in by_lerobot(folder("diffusion", SMALL), TASKS, **size)]
    ours, batched = ([row[2] for row in run.result()] for run in runs)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert batched == pytest.approx(theirs, rel=1e-4), "batches change the last bits, which grow over an episode"


@pytest.mark.everything
def test_sessions_of_a_policy_with_a_memory_of_its_own_give_lerobots_reward_sums(folder: Any, by_sparring: Any) -> None:
    """TD-MPC plans on from its last plan: one policy object, four sessions."""
    size = {"episodes": 2, "steps": 12, "side": SMALL}
    run = by_sparring(folder("tdmpc", SMALL), TASKS, **size, slots=4)
    theirs = [row[2] for row in by_lerobot(folder("tdmpc", SMALL), TASKS, **size)]
    ours = [row[2] for row in run.result()]
    assert ours == pytest.approx(theirs, rel=1e-6)
