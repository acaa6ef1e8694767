"""The page of `sparring compare --html`: by success or by returns, with films of the episodes that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.orchestrator.cli.compared_films import films_for
from sparring.orchestrator.comparison.comparison import Comparison
from sparring.orchestrator.comparison.returns import ReturnComparison
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.report.compared_returns import plays_of, returns_content, shown_pairs
from sparring.orchestrator.report.comparison import FilmsOfRun, comparison_content, comparison_page
from sparring.orchestrator.report.page import Embedding
from sparring.orchestrator.results.files import replace_file
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError


@dataclass(frozen=True)
class ComparedPage:
    """A page that is to be written.

    Attributes:
        path: The file.
        films: Of how many episodes there are to be films, if they have none.
        embed: Whether films are put into the page.
        now: Settings of the workers that play episodes again to film them.
    """

    path: Path
    films: int
    embed: bool
    now: Mapping[str, Any]

    def write(self, found: Sequence[Comparison], names: Sequence[str]) -> None:
        """Writes a page about success.

        Args:
            found: Each other run with the first.
            names: What the runs are called, the first one's first.

        Raises:
            SparringError: If it cannot be written.
        """
        runs = [found[0].first, *(comparison.second for comparison in found)]
        flips = [[episode for episode, _ in comparison.flipped] for comparison in found]
        films = self._films(runs, [_each_once(flips), *flips])
        self._write(comparison_content(found, names, films))

    def write_returns(self, found: Sequence[ReturnComparison], runs: Sequence[Results], names: Sequence[str]) -> None:
        """Writes a page about returns.

        Args:
            found: Each other run with the first.
            runs: The first, and the others.
            names: What they are called, likewise.

        Raises:
            SparringError: If it cannot be written.
        """
        shown = [shown_pairs(comparison) for comparison in found]
        of_first = [[row.id for row in plays_of(pairs, runs[0])] for pairs in shown]
        of_others = [[row.id for row in plays_of(pairs, run)] for pairs, run in zip(shown, runs[1:], strict=True)]
        films = self._films(runs, [_each_once(of_first), *of_others])
        self._write(returns_content(found, runs, names, films))

    def _films(self, runs: Sequence[Results], episodes: Sequence[Sequence[EpisodeId]]) -> list[FilmsOfRun]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{str(self.path.parent)!r} cannot be made: {error.strerror}.") from error
        pairs = zip(runs, episodes, strict=True)
        return [films_for(self.path, run, those, self.films, self.now) for run, those in pairs]

    def _write(self, content: dict[str, Any]) -> None:
        if self.embed:
            embedding = Embedding(self.path.parent)
            for one in content["comparisons"]:
                for side in (side for episode in one["flipped"] for side in episode["sides"]):
                    side["film"] = embedding.of(side["film"])
        replace_file(self.path, comparison_page(content))


def _each_once(episodes: Sequence[Sequence[EpisodeId]]) -> list[EpisodeId]:
    return list(dict.fromkeys(episode for those in episodes for episode in those))
