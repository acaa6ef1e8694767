"""A program that trains in Ray: its policy lives in an actor, and is evaluated there from time to time."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import ray
from toy_policies import Wanderer

from sparring import ActorPolicy, Evaluator, PolicyActor, Results

PLAN: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 4}


@ray.remote
class Learner(PolicyActor):
    """Trains, in real life."""

    def __init__(self) -> None:
        self.policy = Counting()
        random.seed(7)

    def told(self) -> dict[str, Any]:
        state = random.getstate()
        random.seed(7)
        return {
            "batches": self.policy.batches,
            "observations": self.policy.observations,
            "sessions kept": len(self._sessions or {}),
            "generator": "untouched" if random.getstate() == state else "another one",
        }


class Counting(Wanderer):
    batches = observations = 0

    def act(self, observations: Any, states: Any) -> Any:
        self.batches += 1
        self.observations += len(observations)
        random.random()  # a policy that draws where training does
        return super().act(observations, states)


def rows(results: Results) -> list[list[Any]]:
    return [[row.task, row.index, row.seed, row.outcome, row.reward_sum, row.steps] for row in results.rows]


def main() -> None:
    ray.init(address=sys.argv[1], log_to_driver=False)
    learner = Learner.options(num_cpus=0).remote()
    policy = ActorPolicy(learner)
    where: dict[str, Any] = {"launcher": "ray", "workers": 2, "slots_per_worker": 2}
    with Evaluator() as evaluator:
        in_ray = rows(evaluator.evaluate(policy, **PLAN, **where))
        again = rows(evaluator.evaluate(policy, **PLAN, **where))
        here = rows(evaluator.evaluate(Wanderer(), **PLAN, slots=2))
    found = {"in ray": in_ray, "again": again, "here": here, **ray.get(learner.told.remote())}
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
