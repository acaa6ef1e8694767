"""Which episode takes the policy server down: found by playing those in question again, fewer and fewer at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sparring.orchestrator.plan import EpisodeId

Suspicion = Literal["nobody", "suspected", "narrowed", "convicted", "hopeless"]


@dataclass
class Suspects:
    """The episodes that were being played when the policy server crashed or hung, until it is known which one did it.

    After a crash all that were in flight are suspects, and half of them is played, with nothing else beside it. If the
    server goes down again, one of that half did it; if all of the half come to an end, none of them did, and half of
    the rest is next. One that was a suspect, is played alone, and takes the server down is convicted. With K slots that
    takes about log2(K) more crashes, and any other episode is charged with none of them.
    """

    most: int
    """How often suspicion may begin anew without an episode that has come to an end in between."""
    _suspects: list[EpisodeId] = field(default_factory=list)
    _group: frozenset[EpisodeId] = frozenset()
    _futile: int = 0

    @property
    def group(self) -> Collection[EpisodeId] | None:
        """The episodes that may be played now, with nothing else beside them; None: there are no suspects."""
        return self._group if self._suspects else None

    def crashed(self, in_flight: Sequence[EpisodeId]) -> Suspicion:
        """Says what a crash or a hang of the server shows.

        Args:
            in_flight: What was being played at that moment.

        Returns:
            "nobody" if nothing was in flight; "suspected" if there are suspects now, and "hopeless" if that was so too
            often; "narrowed" if there are fewer than before; "convicted" if the one episode in flight is the one.
        """
        if not in_flight:
            return "nobody"
        if not set(in_flight) <= set(self._suspects):
            self._futile += 1
            self._try(in_flight)
            return "hopeless" if self._futile > self.most else "suspected"
        if len(in_flight) > 1:
            self._try(in_flight)
            return "narrowed"
        self._try([])
        return "convicted"

    def ended(self, episode: EpisodeId) -> None:
        """Notes that an episode has come to an end while the server was well: it is no suspect."""
        self._futile = 0
        if episode in self._suspects:
            self._suspects.remove(episode)
            self._group -= {episode}
            if not self._group:
                self._try(self._suspects)

    def _try(self, suspects: Sequence[EpisodeId]) -> None:
        self._suspects = list(suspects)
        self._group = frozenset(self._suspects[: (len(self._suspects) + 1) // 2])
