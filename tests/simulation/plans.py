"""The plans that are simulated, and what each episode comes to, whoever plays it and however often."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import RunSettings, read_settings
from sparring.protos import evaluation_pb2 as pb

SEED = 100
_TASKS = ("short", "long", "flaky", "raises")


@dataclass(frozen=True)
class Truth:
    """What comes of an episode that is played to its end."""

    outcome: str
    reward: float
    steps: int

    def result(self, lease: int) -> pb.Result:
        """Returns what an honest worker says of it."""
        if self.outcome == "error":
            kind = pb.ERROR_KIND_SIMULATOR
            return pb.Result(lease=lease, outcome=pb.OUTCOME_ERROR, error="the world came apart.", error_kind=kind)
        outcome = pb.OUTCOME_SUCCESS if self.outcome == "success" else pb.OUTCOME_FAILURE
        return pb.Result(lease=lease, outcome=outcome, reward_sum=self.reward, reward_max=1.0, steps=self.steps)


def truth_of(episode: EpisodeId) -> Truth:
    """Returns what an episode comes to: a success, a failure, or an error every time."""
    rng = Random(str(episode))
    outcome = rng.choices(("success", "failure", "error"), (6, 3, 1))[0]
    return Truth(outcome, round(rng.uniform(-5, 5), 3), rng.randrange(1, 200))


def recording_of(episode: EpisodeId) -> bytes:
    """Returns what is recorded of an episode."""
    return f"what was seen in {episode}. ".encode() * 3


def settings_of(
    tasks: int, episodes: int, max_parallel_tasks: int, record: Path | None = None, **more: Any
) -> RunSettings:
    """Returns the settings of a run of so many tasks with so many episodes each, recorded there or not at all."""
    given: dict[str, Any] = {
        "benchmark": "toy",
        "task": ",".join(_TASKS[:tasks]),
        "policy": "zero",
        "episodes": episodes,
        "seed": SEED,
        "max_parallel_tasks": max_parallel_tasks,
        "record": record,
        **more,
    }
    return read_settings(given)


@functools.cache
def plan_of(tasks: int, episodes: int) -> Plan:
    """Returns the plan of these settings."""
    return make_plan(settings_of(tasks, episodes, 0))
