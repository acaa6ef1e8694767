"""How a rate, or a mean, comes to rest: one point for each episode, with its interval as it was then."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.intervals import wilson
from sparring.orchestrator.results.repeats import EpisodeMeans, PlaysWorth
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.view.whole_rounds import WholeRounds

_DENSE: Final = 1000
"""So many points are kept one by one, as many again of every second episode, of every fourth, and so on."""


class Convergence:
    """Counts episodes as they come: in the run's own loop, so that each costs the same, however many there were.

    Where episodes are played several times, with other seeds of the policy, intervals are of what plays are worth.

    Args:
        plan: Of the run.
        metric: What the run is about: `success` or `return`.
    """

    def __init__(self, plan: Plan, metric: str) -> None:
        self._plan = plan
        self._by_return = metric == "return"
        self._outcomes: Counter[str] = Counter()
        self._rounds = WholeRounds(plan)
        self._worth = PlaysWorth()
        self._n, self._mean = 0, 0.0
        self._means = EpisodeMeans()
        self._every = 1
        self._count = 0
        self.points: list[tuple[int, float, float | None, float | None]] = []
        """How many episodes, the rate or the mean, and the ends of its interval, if it has one."""

    def add(self, row: EpisodeRow, before: EpisodeRow | None = None) -> None:
        """Counts an episode; one that was an error, and has been played again, instead of what it was before."""
        if before is not None:
            self._outcomes[before.outcome] -= 1
        self._outcomes[row.outcome] += 1
        self._rounds.add(row, again=before is not None)
        task, episode = (row.benchmark, row.task), self._plan.round_of(row.index)
        if row.outcome in ("success", "failure"):
            self._worth.add(task, episode, won=row.outcome == "success")
        if row.outcome != "error":
            self._n += 1
            self._mean += (row.reward_sum - self._mean) / self._n
            self._means.add((task, episode), row.reward_sum)
            self._point(last=row)

    @property
    def _successes(self) -> int:
        return self._outcomes["success"]

    @property
    def _of(self) -> int:
        return self._outcomes["success"] + self._outcomes["failure"]

    def _point(self, last: EpisodeRow) -> None:
        self._count += 1
        if self._count % self._every or (not self._by_return and last.outcome == "played"):
            return
        if self._by_return:
            interval = self._means.interval
            self.points.append((self._n, self._mean, *(interval or (None, None))))
        else:
            self.points.append((self._of, self._successes / self._of, *self._interval()))
        if len(self.points) % _DENSE == 0:
            self._every *= 2

    def _interval(self) -> tuple[float, float]:
        worth = self._worth.worth
        return wilson(self._successes * worth, self._of * worth)

    def to_json(self) -> dict[str, Any]:
        """Returns how it stands."""
        successes, judged, errors = self._successes, self._of, self._outcomes["error"]
        return {
            "successes": successes,
            "judged": judged,
            "errors": errors,
            "rate": successes / judged if judged else None,
            "interval": self._interval() if judged else None,
            "any_time": self._any_time(),
            "mean": self._mean if self._n else None,
            "mean_interval": self._means.interval,
        }

    def _any_time(self) -> tuple[float, float] | None:
        """Returns an interval that holds whenever it is looked at, by whole rounds of all tasks; None without scipy."""
        try:
            from sparring.orchestrator.comparison.sequential import rate_interval
        except ModuleNotFoundError:
            return None
        successes, judged = self._rounds.successes
        return rate_interval(successes, judged) if judged else None
