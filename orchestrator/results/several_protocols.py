"""Whether a run has played the same tasks by several protocols, so that a rate of all its episodes is none of any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparring.orchestrator.plan import Plan
    from sparring.orchestrator.results.document_parts import RunProtocol
    from sparring.orchestrator.results.results import Results


def protocols_side_by_side(results: Results) -> list[str]:
    """Returns the labels of the parts, where a run has played the same tasks by several protocols; else nothing."""
    return planned_side_by_side(results.plan, results.protocols)


def planned_side_by_side(plan: Plan, protocols: Mapping[str, RunProtocol]) -> list[str]:
    """Returns the same of a run that may not have begun.

    Args:
        plan: Of the run.
        protocols: By which rules each part is played, by its label.
    """
    labels = [label for label in plan.tasks if label in protocols]
    tasks = [[task.name for task in plan.tasks[label]] for label in labels]
    owners = {protocols[label].benchmark for label in labels}
    known = len(labels) == len(plan.tasks)
    if not known or len(labels) < 2 or len(owners) > 1 or any(found != tasks[0] for found in tasks):
        return []
    # By one and the same, it is not about protocols.
    return labels if len({protocols[label].sha256 for label in labels}) > 1 else []
