"""Changes of a single bit where something is drawn only if somebody looks, and in films."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from one_bit.bits import flip, flipped

from sparring.env_worker.benchmark import Step


def drawn_on_look(change: Callable[[Any, Any], None]) -> None:
    """Changes an environment that draws only where somebody looks, after it was tried out that it may."""
    from sparring.env_worker.benchmarks import gym

    draw_on_look = gym.draw_on_look

    def changed(env: Any, drawing: Any) -> Any:
        found = draw_on_look(env, drawing)
        change(env, found)
        return found

    gym.draw_on_look = changed


def gym_images(env: Any, drawing: Any) -> None:
    draw = drawing._draw
    drawing._draw = lambda *arguments, **named: flipped(draw(*arguments, **named))


def gym_states(env: Any, drawing: Any) -> None:
    """Not drawing leaves something behind."""
    is_needed = drawing._is_needed

    def changed(key: Any) -> Any:
        if not (needed := is_needed(key)):
            flip(env.unwrapped.physics.where)
        return needed

    drawing._is_needed = changed


def _observed(kind: Any, name: str) -> None:
    """What a simulator of ours shows under a name has another bit."""
    observe = kind._observe

    def changed(self: Any, seen: Any, look: Any) -> Any:
        shown = observe(self, seen, look)
        return {n: flipped(value) if n == name else value for n, value in shown.items()}

    kind._observe = changed


def pusht(name: str) -> None:
    from sparring.env_worker.benchmarks.pusht import PushtSimulator

    _observed(PushtSimulator, name)


def pusht_not_looking() -> None:
    """A step without a look at the image ends in another state."""
    from sparring.env_worker.benchmarks.pusht import IMAGE, PushtSimulator

    physics_state, step = PushtSimulator.physics_state, PushtSimulator.step

    def stepped(self: Any, action: Any, *, look: Any) -> Step:
        self.looked = IMAGE in look
        return step(self, action, look=look)

    def told(self: Any) -> Any:
        return physics_state(self) if self.looked else flipped(physics_state(self))

    PushtSimulator.step, PushtSimulator.physics_state = stepped, told  # type: ignore[method-assign]


def aloha(name: str) -> None:
    from sparring.env_worker.benchmarks.aloha import AlohaSimulator

    _observed(AlohaSimulator, name)


def film_of_a_replay() -> None:
    """A film that is made of a replay has other pixels."""
    from sparring.env_worker.episode import film, replay

    add, play, replaying = film.Film._add, replay.replay_episode, [False]

    def changed(self: Any, observation: Any, *more: Any) -> None:
        shown = {name: flipped(seen) for name, seen in observation.items()} if replaying[0] else observation
        add(self, shown, *more)

    def played(*arguments: Any, **more: Any) -> Any:
        replaying[0] = True
        try:
            return play(*arguments, **more)
        finally:
            replaying[0] = False

    film.Film._add, replay.replay_episode = changed, played  # type: ignore[method-assign]


def film_by_the_way() -> None:
    """A film that is made of what the policy sees has other pixels."""
    from sparring.env_worker.episode.seen_film import SeenFilm

    add = SeenFilm._add

    def changed(self: Any, observation: Any, *more: Any) -> None:
        add(self, {name: flipped(seen) for name, seen in observation.items()}, *more)

    SeenFilm._add = changed  # type: ignore[method-assign]
