"""Films of what a policy looks at anyway: the same as any film of the episode, without drawing for it."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

import av
import numpy as np
import pytest
from encoded import encoded_frames
from toy_benchmark import ToySettings, ToySimulator
from toy_policies import Forward

from sparring.env_worker.benchmark import Task
from sparring.env_worker.episode.film import Film
from sparring.env_worker.episode.play import Order, run_episode
from sparring.env_worker.episode.seen_film import SeenFilm
from sparring.policy_server.local import LocalPolicy
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.record import EpisodeRecord, Outcome
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array

TOO_SLOW, FAST_ENOUGH = 0.01, 1.0


class Looking(Forward):
    """Looks at images, too."""

    def __init__(self, gain: float, chunk: int = 1, history: int = 1, answers: int = 0) -> None:
        super().__init__(gain, chunk)
        self.spec = PolicySpec(["image", "position"], action_dim=1, chunk_length=chunk, history=history)
        self._answers = answers or chunk

    def act(self, observations: Any, states: Any) -> Any:
        return [chunk[: self._answers] for chunk in super().act(observations, states)]


def played(policy: Forward, films: list[Any], simulator: ToySimulator, **rules: Any) -> EpisodeRecord:
    session = LocalPolicy(policy, name="toy").open(simulator.offers)
    return run_episode(simulator, session, order(**rules), films)


def order(**rules: Any) -> Order:
    return Order(task=Task("short", "Go", "good"), index=0, seed=1000, rules=EpisodeRules(**rules))


def seen_film(
    policy: Forward, wanted: Collection[Outcome], fps: float = 20.0, **rules: Any
) -> tuple[bytes, EpisodeRecord]:
    """Plays an episode with such a film, if it may come; returns its content, empty if there is none."""
    simulator = ToySimulator("short", ToySettings())
    film = SeenFilm(simulator, fps=fps, limit=order(**rules).limit(simulator), wanted=wanted)
    if not film.may_come(policy.spec, order(**rules).rules):
        return b"", played(policy, [], simulator, **rules)
    record = played(policy, [film], simulator, **rules)
    assert film.missing == "", "what is missing is said of the replay's film"
    return content(film), record


def frames(film: bytes) -> Array:
    """Returns what is seen; x264 does not always choose the same bytes for it."""
    with av.open(io.BytesIO(film)) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


def content(film: Film) -> bytes:
    if film.file is None:
        return b""
    film.file.seek(0)
    try:
        return film.file.read()
    finally:
        film.close()


@pytest.mark.parametrize(
    ("policy", "fps", "rules"),
    [
        (Looking(TOO_SLOW), 20.0, {}),
        (Looking(TOO_SLOW), 5.0, {"max_steps": 9}),
        (Looking(TOO_SLOW, chunk=2), 10.0, {}),
        (Looking(TOO_SLOW, chunk=4), 20.0, {"actions_per_look": 1}),
        (Looking(TOO_SLOW, chunk=2, history=2), 20.0, {}),
        (Looking(TOO_SLOW, chunk=4), 20.0, {"observe": "every-step"}),
        (Looking(FAST_ENOUGH), 20.0, {}),
    ],
)
def test_who_looks_at_every_frame_is_filmed_by_the_way(
    policy: Looking, fps: float, rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    added = encoded_frames(monkeypatch)
    found, record = seen_film(policy, ["failure", "success"], fps, **rules)
    live = ToySimulator("short", ToySettings())
    film = Film(live, fps=fps)
    expected = played(policy, [film], live, **rules)
    assert found
    assert np.array_equal(frames(found), frames(content(film))), "it is not the film that a replay makes"
    assert np.array_equal(*added.values())
    unfilmed = played(policy, [], ToySimulator("short", ToySettings()), **rules)
    assert record.renders - unfilmed.renders <= 1, "it draws more than what nobody can have looked at"
    for name in ("outcome", "steps", "reward_sum", "reward_max"):
        assert getattr(record, name) == getattr(expected, name) == getattr(unfilmed, name), name


def test_who_sees_the_camera_under_another_name_is_filmed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = seen_film(Looking(TOO_SLOW), ["failure"])
    monkeypatch.setattr(ToySimulator, "camera", "upright")
    monkeypatch.setattr(ToySimulator, "same_view", {"image": lambda image: image[::-1]}, raising=False)
    monkeypatch.setattr(ToySimulator, "cameras", ("upright",), raising=False)
    monkeypatch.setattr(ToySimulator, "picture", None, raising=False)  # it is seen, and never drawn for a film
    found, _ = seen_film(Looking(TOO_SLOW), ["failure"])
    assert np.array_equal(frames(found), frames(expected)), "each of the toy's pictures is of one shade"


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (Forward(TOO_SLOW), ["failure"]),
        (Looking(TOO_SLOW, chunk=4), ["failure"]),
        (Looking(TOO_SLOW), ["success"]),
        (Looking(FAST_ENOUGH), ["failure"]),
    ],
    ids=["blind", "looks seldom", "failure", "success"],
)
def test_what_is_not_seen_or_not_wanted_is_left_to_a_replay_and_nothing_is_drawn(
    policy: Forward, wanted: list[Outcome]
) -> None:
    found, record = seen_film(policy, wanted)
    assert not found
    assert record.renders == played(policy, [], ToySimulator("short", ToySettings())).renders


def test_a_policy_that_looks_at_other_steps_than_it_said_has_no_such_film() -> None:
    policy = Looking(TOO_SLOW, chunk=2, answers=1)
    assert seen_film(policy, ["failure"], 10.0)[0], "it looks more often than it has to"
    policy = Looking(TOO_SLOW, chunk=4, answers=3)
    assert not seen_film(policy, ["failure"], 5.0)[0], "it looked after three steps, and frames are after four"


def test_whatever_goes_wrong_with_it_the_episode_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no picture of this size")

    monkeypatch.setattr("sparring.env_worker.episode.film_file.Mp4File.add", broken)
    found, record = seen_film(Looking(TOO_SLOW), ["failure"])
    assert (found, record.outcome, record.steps) == (b"", "failure", 20)
