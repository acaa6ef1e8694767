"""How episodes went, step by step: rewards and the first success, small enough for thousands in one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparring.orchestrator.plan import EpisodeId
from sparring.protos.action_list import UnreadableActions
from sparring.protos.trace import Trace

MOST_POINTS: Final = 40
"""Of a timeline: longer episodes are told by means of several steps."""
MOST_EPISODES: Final = 20_000
"""Whose timelines are in a report: of more, a page does not draw single episodes either."""


@dataclass(frozen=True)
class Timeline:
    """The steps of an episode, in short.

    Attributes:
        rewards: Of each step; in long episodes, the mean of each of `MOST_POINTS` equal parts.
        success_at: The first step at which the task was done; 0: none.
    """

    rewards: list[float]
    success_at: int

    @classmethod
    def of(cls, trace: Trace) -> Timeline:
        """Shortens a trace."""
        rewards = trace.rewards[1:]  # the first is of the reset
        points = min(MOST_POINTS, len(rewards))
        ends = [round(len(rewards) * number / points) for number in range(points + 1)] if points else []
        means = [sum(rewards[a:b]) / (b - a) for a, b in pairwise(ends)]
        done = next((step for step, success in enumerate(trace.successes) if success == 1.0), 0)
        return cls([float(f"{mean:.3g}") for mean in means], done)


def timelines(traces: Mapping[EpisodeId, bytes]) -> dict[EpisodeId, Timeline]:
    """Returns the timelines of the episodes whose traces can be read: a folder may be anybody's."""
    found: dict[EpisodeId, Timeline] = {}
    for episode, content in traces.items():
        try:
            found[episode] = Timeline.of(Trace.unpack(content))
        except UnreadableActions:
            continue
    return found
