"""A recorded run: what its folder has of its episodes, and which of them are to be played again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.document import RunDocument, read_document
from sparring.orchestrator.results.makers import Maker
from sparring.orchestrator.results.reading import KeptEpisode, read_kept
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.settings import Evaluation
from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError, unknown


@dataclass(frozen=True)
class RecordedRun:
    """A run as it was recorded: finished, interrupted, or going on right now.

    Attributes:
        place: Where it was found, for people.
        document: Its run.json.
        rows: Its recorded episodes.
        makers: Who has made them, by the numbers in their column `maker`.
        running: Whether it is going on: then these are the episodes that have ended by now.
        read: Returns what is kept of some episodes; of one that nothing is kept of, it returns nothing.
    """

    place: Path
    document: RunDocument
    rows: Mapping[EpisodeId, EpisodeRow]
    makers: Mapping[int, Maker]
    running: bool
    read: Callable[[Collection[EpisodeId]], Mapping[EpisodeId, KeptEpisode]] = field(repr=False)

    @classmethod
    def in_folder(cls, folder: Path) -> RecordedRun:
        """Opens the output folder of a run. Nothing in there is changed or locked.

        Raises:
            UsageError: If it is none, or it cannot be read.
        """
        results = Results.load(folder)
        return cls(
            place=folder,
            document=read_document(folder),
            rows={row.id: row for row in results.rows},
            makers=results.makers,
            running=results.status == "running",
            read=lambda episodes: read_kept(folder, episodes),
        )

    @property
    def parts(self) -> Sequence[Evaluation]:
        """What was evaluated, by its saved settings: a benchmark, or several.

        Raises:
            UsageError: If they do not say so.
        """
        saved = self.document.settings
        try:
            if saved.get("evaluations"):
                return [Evaluation.model_validate(part) for part in saved["evaluations"]]
            mine = ("benchmark", "task", "benchmark_arg", "protocol")
            given = {name: saved[name] for name in mine if name in saved}
            return [Evaluation.model_validate(given)]
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"])) or "evaluations"
            raise UsageError(f"the run.json of {str(self.place)!r} is damaged: {where}: {problem['msg']}.") from error
        except TypeError as error:
            raise UsageError(f"the run.json of {str(self.place)!r} is damaged: evaluations: {error}.") from error

    @property
    def plan(self) -> Plan:
        """What the run was to do, without asking its benchmarks."""
        return self.document.plan()

    def label(self, episode: EpisodeId) -> str:
        """Returns the name of an episode's task that is unique in the run."""
        labels = {(name, task.name): label for label, (name, task) in self.plan.labels().items()}
        return labels.get((episode.benchmark, episode.task), f"{episode.benchmark}/{episode.task}")

    def choose(self, selection: str) -> list[EpisodeRow]:
        """Returns the episodes with an outcome that a selection names, in the plan's order.

        Args:
            selection: `all`, `failures`, `successes`, or single ones, TASK:INDEX, comma-separated; BENCHMARK/TASK:INDEX
                where several have a task of that name.

        Raises:
            UsageError: If it names episodes that the plan does not have, that have not ended, or that ended in an
                error; if a name is that of several; or if there is none.
        """
        order = self.plan.ids()
        if selection in _OUTCOMES:
            rows = (self.rows[episode] for episode in order if episode in self.rows)
            chosen = [row for row in rows if row.outcome in _OUTCOMES[selection]]
            if not chosen:
                going = " The run is still going; it may have some later." if self.running else ""
                ended = {row.outcome for row in self.rows.values()}
                there = ", ".join(name for name, outcomes in _OUTCOMES.items() if ended & set(outcomes))
                other = f" Choose other episodes: {there}, or TASK:INDEX,..." if there else ""
                raise UsageError(f"the run in {str(self.place)!r} has no {_NAMES[selection]}.{other}{going}")
            return chosen
        named: dict[str, list[EpisodeId]] = {}
        for episode in order:
            named.setdefault(names_of(episode)[0], []).append(episode)
        named |= {names_of(episode)[1]: [episode] for episode in order}
        found: dict[EpisodeId, EpisodeRow] = {}
        for name in comma_list(selection):
            if name not in named:
                raise unknown("episode (TASK:INDEX) of this run:", name, list(named))
            one, *others = named[name]
            if others:
                full = ", ".join(names_of(episode)[1] for episode in named[name])
                raise UsageError(f"{name!r} is the name of several episodes of this run; say which: {full}.")
            found[one] = self._ended(one)
        if not found:
            raise UsageError(f"say which episodes: {', '.join(_OUTCOMES)}, or TASK:INDEX,...")
        return [found[episode] for episode in order if episode in found]

    def kept(self, episodes: Iterable[EpisodeId]) -> tuple[dict[EpisodeId, KeptEpisode], list[EpisodeId]]:
        """Returns what is kept of episodes, and those that nothing is kept of.

        Raises:
            UsageError: If nothing is kept of any of them.
        """
        wanted = list(episodes)
        kept = dict(self.read(wanted))
        missing = [episode for episode in wanted if episode not in kept]
        if wanted and not kept:
            off = self.document.settings.get("actions") is False
            why = (
                f"it was run with {Hint('actions', value=False)}"
                if off
                else "releases before 0.2 did not keep them"
                if "actions" not in self.document.settings
                else "they were too large, or were taken out"
            )
            raise UsageError(
                f"the run in {str(self.place)!r} has no actions of these episodes ({why}), so they cannot be played "
                f"again without the policy. Run the same command {'without that and ' if off else ''}with another "
                f"{Hint('output')} to have them: the same plan gives the same episodes."
            )
        return kept, missing

    def _ended(self, episode: EpisodeId) -> EpisodeRow:
        row = self.rows.get(episode)
        if row is None:
            why = "the run is still going" if self.running else "resume the run to play it"
            raise UsageError(f"{episode} has not ended yet: {why}.")
        if row.outcome == "error":
            raise UsageError(f"{episode} ended in an error, and errors have no actions: {row.error}")
        return row


def names_of(episode: EpisodeId) -> tuple[str, str]:
    """Returns an episode's short name, which one of another benchmark may have too, and its full one."""
    return f"{episode.task}:{episode.index}", f"{episode.benchmark}/{episode.task}:{episode.index}"


_OUTCOMES = {"all": ("success", "failure", "played"), "failures": ("failure",), "successes": ("success",)}
_NAMES = {"all": "episode with an outcome", "failures": "failures", "successes": "successes"}
