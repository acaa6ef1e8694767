"""Whoever watches an episode and changes nothing: films, recordings, progress."""

from __future__ import annotations

import bdb
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Step
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)


class ObserverFailed(SparringError):
    """An observer raised; the episode has no outcome."""


class EpisodeObserver:
    """Watches one episode. Override what is of interest; arrays are read-only, copy what shall be kept.

    Whatever a method raises makes the episode an error with the observer's name, never a score.
    """

    @property
    def name(self) -> str:
        """The name that errors tell."""
        return type(self).__name__

    def looks(self, step: int) -> Names:
        """Returns what this observer wants to be shown after so many steps; 0 is the reset.

        It is made for the observer, even where the policy does not look; what both look at is made once.
        """
        return NOTHING

    def on_reset(self, observation: Observation) -> None:
        """Called when the episode has begun. The observation has at least what `looks(0)` named."""

    def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
        """Called when the policy is about to be asked, after so many steps, and is shown this, with its history."""

    def on_step(self, step: int, action: Array, result: Step) -> None:
        """Called when an action was executed.

        Args:
            step: How many have been, with this one.
            action: As executed.
            result: What came of it. Its observation has at least what `looks(step)` named.
        """

    def on_end(self, record: EpisodeRecord) -> None:
        """Called when the episode has come to its end, with its record; not if it ends in an error."""


class Observers:
    """Observers as one: each is told everything, in their order."""

    def __init__(self, observers: Sequence[EpisodeObserver]) -> None:
        self._observers = observers

    def looks(self, step: int) -> Names:
        """Returns what any of them wants to be shown after so many steps."""
        names = NOTHING
        for observer in self._observers:
            with _named(observer):
                names |= observer.looks(step)
        return names

    def on_reset(self, observation: Observation) -> None:
        """Tells them."""
        shown = _read_only(observation)
        for observer in self._observers:
            with _named(observer):
                observer.on_reset(shown)

    def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
        """Tells them."""
        shown = _read_only(seen)
        for observer in self._observers:
            with _named(observer):
                observer.on_look(step, shown)

    def on_step(self, step: int, action: Array, result: Step) -> None:
        """Tells them."""
        action = _view(action)
        if result.observation:
            result = replace(result, observation=_read_only(result.observation))
        for observer in self._observers:
            with _named(observer):
                observer.on_step(step, action, result)

    def on_end(self, record: EpisodeRecord) -> None:
        """Tells them."""
        for observer in self._observers:
            with _named(observer):
                observer.on_end(record)


@contextmanager
def _named(observer: EpisodeObserver) -> Iterator[None]:
    try:
        yield
    except bdb.BdbQuit:  # who quits the debugger wants all of it to end
        raise
    except Exception as error:  # the boundary: an observer may be anybody's
        if isinstance(error, SparringError):
            said = error.sentence
        else:
            log.exception("the observer %s raised", observer.name)
            said = f"it raised {type(error).__name__}: {error}"
        raise ObserverFailed(f"the observer {observer.name!r} of the episode failed: {said}") from error


def _read_only(tensors: Mapping[str, Array]) -> dict[str, Array]:
    return {name: _view(array) for name, array in tensors.items()}


def _view(array: Array) -> Array:
    """Returns the same elements; whoever tries to change them through it gets an error, and the episode one, too."""
    view = array.view()
    view.flags.writeable = False
    return view
