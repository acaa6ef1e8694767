"""Whether a run may stop now. It counts whole rounds in their order, so that who is done first does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparring.orchestrator.comparison.shares import shares
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.early_stop import EarlyStop, StopReason
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import planned_side_by_side
from sparring.orchestrator.run.protocols import protocols_played
from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command

if TYPE_CHECKING:
    from sparring.orchestrator.comparison.stopping import StopRule


class EarlyStopping:
    """Hears of recorded episodes, and says when the run may stop.

    Args:
        plan: Of the run.
        rules: By which it may stop; none: it plays its whole plan.
        alpha: Of the rules.
        recorded: What earlier executions have left; errors are tried again, so they do not count.
    """

    def __init__(
        self, plan: Plan, rules: Sequence[StopRule] = (), alpha: float = 0.05, recorded: Iterable[EpisodeRow] = ()
    ) -> None:
        self._plan = plan
        self._rules = rules
        self._alpha = alpha
        self._tasks = len(plan.labels())
        self._waiting: dict[int, dict[EpisodeId, EpisodeRow]] = {}
        self._rounds = 0
        self._reason: StopReason | None = None
        for row in recorded if rules else ():
            if row.outcome != "error" and row.index < plan.plays:
                self._waiting.setdefault(plan.round_of(row.index), {})[row.id] = row
        self._count_rounds()

    @property
    def may_stop(self) -> bool:
        """Whether there is a rule: then episodes are to be played round by round."""
        return bool(self._rules)

    @property
    def rounds(self) -> int | None:
        """How many rounds the run has, if it is to stop before its plan is done."""
        return self._rounds if self._reason is not None and self._rounds < self._plan.episodes else None

    @property
    def plan(self) -> Plan:
        """What the run is to do, as far as that is known by now: of one that stops, the rounds that it has."""
        return self._plan if self.rounds is None else replace(self._plan, episodes=self.rounds)

    def kept(self, rows: Iterable[EpisodeRow]) -> list[EpisodeRow]:
        """Returns the rows that are of the run: of one that stops, those of its rounds, whoever was ahead."""
        return [row for row in rows if self.rounds is None or self._plan.round_of(row.index) < self.rounds]

    def heard(self, row: EpisodeRow) -> bool:
        """Hears of an episode that is recorded for good; returns whether the run is to stop because of it."""
        if not self._rules or self._reason is not None:
            return False
        self._waiting.setdefault(self._plan.round_of(row.index), {})[row.id] = row
        self._count_rounds()
        return self.rounds is not None

    def state(self) -> EarlyStop | None:
        """Returns what the rules have seen, for run.json; None: there are none."""
        if not self._rules:
            return None
        so_far = EarlyStop(reason=self._reason, rounds=self._rounds, planned=self._plan.episodes, alpha=self._alpha)
        for rule in self._rules:
            so_far = rule.told(so_far)
        return so_far

    def _count_rounds(self) -> None:
        whole = self._tasks * self._plan.repeats
        while self._reason is None and len(self._waiting.get(self._rounds, ())) == whole:
            from sparring.orchestrator.comparison.stopping import judged  # needs scipy, which few runs do

            played = self._waiting.pop(self._rounds)
            self._rounds += 1
            self._reason = judged(self._rules, shares(played.values(), self._plan))


def early_stopping(settings: RunSettings, plan: Plan, recorded: Iterable[EpisodeRow] = ()) -> EarlyStopping:
    """Returns what says when a run may stop, by its settings.

    Args:
        settings: Of the run.
        plan: Of the run.
        recorded: What earlier executions have left.

    Raises:
        UsageError: If scipy is missing, or the run that this one is to be held against cannot be compared with it.
    """
    asked = settings.stop
    if not asked.is_asked:
        return EarlyStopping(plan)
    which = Hint("until") if asked.until is not None else Hint("against")
    if settings.plan.rules.metric != "success":
        raise UsageError(f"{which} is about success rates: it goes with {Hint('metric', value='success')}.")
    protocols = protocols_played(settings)
    if labels := planned_side_by_side(plan, protocols):
        # Evaluations may have names of their own, which are no protocols.
        such_as = f", such as {Hint('protocol', value=labels[0])}" if protocols[labels[0]].name == labels[0] else ""
        raise UsageError(
            f"{which} is about one success rate, and this run plays the same tasks by several rules, each of which has "
            f"a rate of its own ({', '.join(labels)}): play one at a time{such_as}."
        )
    try:
        from sparring.orchestrator.comparison.stopping import PreciseEnough
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "scipy":
            raise
        raise UsageError(
            f"a run that may stop early needs scipy; install it: {install_command('compare') or 'pip install scipy'}"
        ) from None
    rules: list[StopRule] = []
    if asked.half_width is not None:
        rules.append(PreciseEnough(asked.half_width, asked.alpha))
    if asked.against is not None:
        other = Results.load(asked.against)
        _check_comparable(other, settings, plan)
        rules.append(rule_against(other, plan, str(asked.against), asked.alpha, futility=asked.futility))
    return EarlyStopping(plan, rules, asked.alpha, recorded)


def rule_against(other: Results, plan: Plan, name: str, alpha: float, *, futility: bool) -> StopRule:
    """Returns the rule that holds a run against another one. It needs scipy.

    Args:
        other: The other one.
        plan: Of the run.
        name: What the other is called.
        alpha: How likely it may see a difference that is none.
        futility: Whether it stops where nothing is to be expected of the rest.
    """
    from sparring.orchestrator.comparison.stopping import Different

    rounds = min(plan.episodes, _whole_rounds(other, plan))
    found = shares(other.rows, other.plan)
    return Different(found, name, rounds, alpha=alpha, futility=futility, id=other.id)


def _check_comparable(other: Results, settings: RunSettings, plan: Plan) -> None:
    """Refuses a run that says nothing about this one, before this one starts."""
    from sparring.orchestrator.comparison.comparable import obstacles

    name = f"the run in {str(other.folder)!r}"
    own = settings.output.folder
    if other.folder is not None and own is not None and other.folder.resolve() == own.resolve():
        raise UsageError(f"{Hint('against')} names the folder of this very run; name that of another.")
    if other.status != "finished":
        raise UsageError(
            f"{name} is not finished, so that it would be another one tomorrow. Finish it first: sparring resume, or "
            f"name another with {Hint('against')}."
        )
    there = {(benchmark, task.name) for benchmark, task in other.plan.labels().values()}
    missing = [label for label, (benchmark, task) in plan.labels().items() if (benchmark, task.name) not in there]
    protocols = protocols_played(settings)
    own_run = Results(plan, [], seconds=0.0, folder=None, settings=settings.flat(), protocols=protocols)
    found = obstacles(other, own_run)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        found.insert(0, f"it has not the tasks {', '.join(missing[:3])}{more}.")
    found += _other_seeds(other.plan, plan)
    if found:
        raise UsageError(
            f"{name} cannot be compared with this one:\n" + "\n".join(f"  {sentence}" for sentence in found)
        )
    if not any(row.outcome in ("success", "failure") for row in other.rows):
        raise UsageError(f"{name} has no episode that ended in a success or a failure: there is nothing to compare.")


def _other_seeds(there: Plan, here: Plan) -> Iterator[str]:
    """Says which parts of both plans have other seeds, and so no pairs."""
    common = [label for label in here.tasks if label in there.tasks]
    seeds = {label: (there.seeds.get(label, there.seed), here.seeds.get(label, here.seed)) for label in common}
    for label, (other, own) in seeds.items():
        if other != own:
            whose = "its seed" if len(common) == 1 else f"its seed of {label}"
            yield f"{whose} is {other}, and this one's is {own}: they have no pairs."


def _whole_rounds(other: Results, plan: Plan) -> int:
    """Returns how many rounds of a plan a run has, counted from the first."""
    wanted = {(benchmark, task.name) for benchmark, task in plan.labels().values()}
    counted = Counter(other.plan.round_of(row.index) for row in other.rows if (row.benchmark, row.task) in wanted)
    whole = len(wanted) * other.plan.repeats
    return next(index for index in range(len(counted) + 1) if counted[index] < whole)
