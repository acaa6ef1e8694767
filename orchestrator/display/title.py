"""What a run is, in a line, and how far it is."""

from __future__ import annotations

import shlex

from sparring.orchestrator.display.screen import count
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.results import Results


def title(policy: str, plan: Plan) -> str:
    """Returns what a run is: the policy, the benchmarks, and how many episodes."""
    size = f"{count(len(plan.labels()), 'task')} × {count(plan.episodes, 'episode')}"
    size += f" × {count(plan.repeats, 'policy seed')}" if plan.repeats > 1 else ""
    return f"{policy} on {' and '.join(plan.tasks)}: {size}"


def results_title(results: Results) -> str:
    """Returns what the run was that results are of."""
    return title("a policy" if results.policy is None else results.policy.name, results.plan)


def status(results: Results) -> str:
    """Returns whether it is finished, and what to do if not."""
    if results.status == "finished":
        if results.early_stop is not None and results.early_stop.stopped:
            return f"stopped early: {results.early_stop.rounds} of {count(results.early_stop.planned, 'round')}"
        return "finished"
    so_far = f"{len(results.rows)} of {count(len(results.plan.ids()), 'episode')}"
    if results.status == "running":
        return f"running now: {so_far}"
    resume = "" if results.folder is None else f"; go on with: sparring resume {shlex.quote(str(results.folder))}"
    return f"unfinished: {so_far}{resume}"
