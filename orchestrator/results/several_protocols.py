"""Whether a run has played the same tasks by several protocols, so that a rate of all its episodes is none of any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparring.orchestrator.results.results import Results


def protocols_side_by_side(results: Results) -> list[str]:
    """Returns the labels of the parts, where a run has played the same tasks by several protocols; else nothing."""
    labels = [label for label in results.plan.tasks if label in results.protocols]
    tasks = [[task.name for task in results.plan.tasks[label]] for label in labels]
    owners = {results.protocols[label].benchmark for label in labels}
    known = len(labels) == len(results.plan.tasks)
    if not known or len(labels) < 2 or len(owners) > 1 or any(found != tasks[0] for found in tasks):
        return []
    # By one and the same, it is not about protocols.
    return labels if len({results.protocols[label].sha256 for label in labels}) > 1 else []
