"""Films of what a policy has looked at anyway: if that is every frame of a film, no replay has to draw them again."""

from __future__ import annotations

import bdb
import logging
from collections.abc import Collection

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator
from sparring.env_worker.episode.film import Film
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.record import EpisodeRecord, Outcome
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)


class SeenFilm(Film):
    """Films an episode without drawing for it, as long as the policy looks at all that is shown; else there is none.

    One frame is drawn for it: that of the last step which an episode can have, after which no policy looks.
    Whatever goes wrong here, the episode counts, and its replay is filmed instead.

    Args:
        simulator: Whose camera.
        fps: As of any film.
        limit: After how many steps the episode ends at the latest.
        wanted: Outcomes of which there is to be a film.
    """

    def __init__(self, simulator: Simulator, *, fps: float, limit: int, wanted: Collection[Outcome]) -> None:
        super().__init__(simulator, fps=fps)
        camera = self._camera = simulator.camera or ""
        self._views = [lambda seen: seen[camera]]  # what `_add` makes; never a picture that is drawn for it
        self._same_view = {self._camera: _as_it_is, **simulator.same_view}
        self._seen = self._camera
        """The name by which the policy looks at what is filmed."""
        self._limit = limit
        self._wanted = wanted

    def may_come(self, needs: PolicySpec, rules: EpisodeRules) -> bool:
        """Returns whether a policy that needs this may look at every frame, by the rules that are played by."""
        if seen := [name for name in self._same_view if name in needs.named]:
            self._seen = seen[0]
            chunk = min(filter(None, (needs.chunk_length, rules.actions_per_look)))
            return rules.observe == "every-step" or chunk <= needs.history or self.stride % chunk == 0
        return False

    def looks(self, step: int) -> Names:
        so_far: Outcome = "played" if self._success is None else "success" if self._success else "failure"
        shown = step == self._limit and self._is_shown(step)
        return frozenset({self._seen}) if shown and not self.missing and so_far in self._wanted else NOTHING

    def on_end(self, record: EpisodeRecord) -> None:
        try:
            if record.outcome in self._wanted:
                super().on_end(record)
            else:
                self.close()
        except Exception as error:  # noqa: BLE001  # a film by the way may cost no outcome
            self._give_up(error)
        self.missing = ""  # the replay's film will say what is missing, if it is

    def _add(self, observation: Observation, step: int, reward: float | None) -> None:
        if self.missing:
            return
        try:
            if self._seen not in observation:
                self.missing = "the policy did not look at each of its frames."
                self.close()
                return
            frame = self._same_view[self._seen](observation[self._seen])
            super()._add({self._camera: frame}, step, reward)
        except bdb.BdbQuit:  # somebody has left the debugger
            raise
        except Exception as error:  # noqa: BLE001  # likewise
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        log.debug("there is no film of what the policy saw: %s: %s", type(error).__name__, error)
        self.missing = "it could not be made."
        self.close()


def _as_it_is(image: Array) -> Array:
    return image
