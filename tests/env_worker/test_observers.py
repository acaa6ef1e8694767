"""Observers of an episode: what they are told, in which order, and that nothing comes of them."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from toy_benchmark import Toy, ToySettings, ToySimulator

from sparring.env_worker.benchmark import NOTHING, Names, Observation, Simulator, Step
from sparring.env_worker.episode import film_file
from sparring.env_worker.episode.film import Film, FilmLook
from sparring.env_worker.episode.observers import EpisodeObserver, ObserverFailed
from sparring.env_worker.episode.play import Order, run_episode
from sparring.env_worker.episode.progress import Progress
from sparring.env_worker.episode.recording import Recording
from sparring.env_worker.gl import choose_backend
from sparring.env_worker.registry import experts_of, get_benchmark
from sparring.policy_server.local import LocalPolicy, LocalSession
from sparring.policy_server.policies import load_policy
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord
from sparring.protos.tensor import Array

IMAGE = frozenset({"image"})


def toy() -> tuple[ToySimulator, Order]:
    return ToySimulator("short", ToySettings()), Order(task=Toy().tasks("short")[0], index=0, seed=3)


def session_of(simulator: Simulator, policy: str, **arguments: object) -> LocalSession:
    return LocalPolicy(load_policy(policy, arguments, experts=experts_of(["metaworld"])), name=policy).open(
        simulator.offers
    )


class Diary(EpisodeObserver):
    """Writes down all it is told; looks at what it is told to look at, every third step."""

    def __init__(self, look: Names = NOTHING, pages: list[Any] | None = None) -> None:
        self.pages: list[Any] = [] if pages is None else pages
        self._look = look

    def looks(self, step: int) -> Names:
        return self._look if step % 3 == 0 else NOTHING

    def on_reset(self, observation: Observation) -> None:
        self.pages.append(("reset", sorted(observation)))

    def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
        self.pages.append(("look", step, sorted(seen)))

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self.pages.append(("step", step, action.tolist(), sorted(result.observation)))

    def on_end(self, record: EpisodeRecord) -> None:
        self.pages.append(("end", record.outcome, record.steps))


def test_everything_is_told_in_the_order_in_which_it_happens() -> None:
    simulator, order = toy()
    diary = Diary(IMAGE)
    run_episode(simulator, session_of(simulator, "toy_policies:Forward", chunk=2, gain=8.0), order, [diary])
    assert diary.pages == [
        ("reset", ["image", "position"]),
        ("look", 0, ["position"]),
        ("step", 1, [8.0], []),
        ("step", 2, [8.0], ["position"]),
        ("look", 2, ["position"]),
        ("step", 3, [8.0], ["image"]),
        ("end", "success", 3),
    ]


def test_observers_are_told_in_their_order() -> None:
    simulator, order = toy()
    pages: list[Any] = []

    class Named(EpisodeObserver):
        def __init__(self, name: str) -> None:
            self._name = name

        def on_reset(self, observation: Observation) -> None:
            pages.append(self._name)

        def on_end(self, record: EpisodeRecord) -> None:
            pages.append(self._name)

    run_episode(simulator, session_of(simulator, "zero"), order, [Named("first"), Named("second")])
    assert pages == ["first", "second"] * 2


def test_an_observer_that_overrides_nothing_is_told_and_does_nothing() -> None:
    simulator, order = toy()
    assert run_episode(simulator, session_of(simulator, "zero"), order, [EpisodeObserver()]).steps == 20


@pytest.mark.parametrize("when", ["looks", "on_reset", "on_look", "on_step", "on_end"])
def test_an_observer_that_raises_makes_an_error_with_its_name(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clumsy(EpisodeObserver):
        pass

    def drop(self: Clumsy, *_: object) -> None:
        raise ValueError("dropped it")

    monkeypatch.setattr(Clumsy, when, drop)
    simulator, order = toy()
    session = session_of(simulator, "zero")
    with pytest.raises(ObserverFailed, match="the observer 'Clumsy' of the episode failed: it raised ValueError: drop"):
        run_episode(simulator, session, order, [Diary(), Clumsy()])


class Meddler(EpisodeObserver):
    """Tries to change what the policy will see, or what was done."""

    def __init__(self, what: str) -> None:
        self._what = what

    def on_reset(self, observation: Observation) -> None:
        if self._what == "reset":
            observation["position"][:] = 7.0

    def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
        if self._what == "look":
            seen["position"][:] = 7.0

    def on_step(self, step: int, action: Array, result: Step) -> None:
        if self._what == "action":
            action[:] = 7.0
        elif self._what == "step" and result.observation:
            result.observation["position"][:] = 7.0


@pytest.mark.parametrize("what", ["reset", "look", "action", "step"])
def test_an_observer_cannot_meddle(what: str) -> None:
    simulator, order = toy()
    session = session_of(simulator, "toy_policies:Forward", chunk=2)
    with pytest.raises(ObserverFailed, match="read-only"):
        run_episode(simulator, session, order, [Meddler(what)])


def test_what_observers_leave_in_their_dicts_reaches_nobody() -> None:
    class Litters(EpisodeObserver):
        def on_reset(self, observation: Observation) -> None:
            observation.clear()  # type: ignore[attr-defined]

        def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
            seen["position"] = np.zeros(1)  # type: ignore[index]

    simulator, order = toy()
    session = session_of(simulator, "toy_policies:Wanderer")
    assert untimed(run_episode(simulator, session, order, [Litters()])) == untimed(
        run_episode(simulator, session, order)
    )


def untimed(record: EpisodeRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if not name.endswith("_s")}


class States(EpisodeObserver):
    """Keeps every observation and reward to the last bit."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.bits: list[bytes] = []

    def looks(self, step: int) -> Names:
        return self._names

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self.bits.append(action.tobytes() + np.float64(result.reward).tobytes())
        self.bits += [result.observation[name].tobytes() for name in sorted(self._names)]


@pytest.mark.processes
def test_physics_is_the_same_to_the_bit_whoever_watches() -> None:
    assert choose_backend(), "no GL backend: run tools/system-libraries"
    benchmark = get_benchmark("metaworld")
    simulator = benchmark.make(benchmark.tasks("reach-v3")[0], benchmark.read_settings({"resolution": 64}))
    try:
        order = Order(task=benchmark.tasks("reach-v3")[0], index=0, seed=5, rules=EpisodeRules(max_steps=40))
        session = session_of(simulator, "expert")
        names = frozenset(n for n in simulator.offers.observations if not _is_image(simulator, n))
        bare, bare_record = _bits(simulator, session, order, names, [])
        films = [Film(simulator, fps=10.0), Recording({}), Progress(lambda steps: None)]
        watched, watched_record = _bits(simulator, session, order, names, films)
    finally:
        simulator.close()
    assert len(bare) > 40
    assert bare == watched
    assert watched_record.renders > bare_record.renders
    drawn = {"renders": 0, "renderer": ""}  # who watches has images drawn; nothing else may be another for it
    assert {**untimed(watched_record), **drawn} == {**untimed(bare_record), **drawn}


def _is_image(simulator: Simulator, name: str) -> bool:
    return simulator.offers.observations[name].dtype == "uint8"


def _bits(
    simulator: Simulator, session: LocalSession, order: Order, names: Names, others: Sequence[EpisodeObserver]
) -> tuple[list[bytes], EpisodeRecord]:
    states = States(names)
    return states.bits, run_episode(simulator, session, order, [*others, states])


def test_filming_changes_no_trajectory_and_reuses_frames() -> None:
    simulator, order = toy()
    session = session_of(simulator, "random", chunk=5, observations=["image"])
    unfilmed = run_episode(simulator, session, order)
    film = Film(simulator, fps=20.0)
    filmed = run_episode(simulator, session, order, [film])
    assert (filmed.reward_sum, filmed.steps) == (unfilmed.reward_sum, unfilmed.steps)
    assert unfilmed.renders == len(range(0, unfilmed.steps, 5))
    assert filmed.renders == filmed.steps + 1, "frames that the policy looked at were rendered twice"
    assert film.file is not None
    film.file.seek(0)
    with av.open(io.BytesIO(film.file.read())) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(frames) == filmed.steps + 1
    assert frames[0].shape == (16, 16, 3)


def test_a_slow_film_skips_steps() -> None:
    simulator, order = toy()
    record = run_episode(simulator, session_of(simulator, "zero"), order, [Film(simulator, fps=5.0)])
    assert [step for step, look in enumerate(simulator.looked) if look] == list(range(0, record.steps + 1, 4))
    assert simulator.looked[1] == NOTHING


def test_a_simulator_without_a_camera_cannot_be_filmed() -> None:
    simulator, _ = toy()
    simulator.camera = None
    with pytest.raises(SparringError, match="no camera"):
        Film(simulator, fps=5.0)


def test_a_recording_has_what_the_policy_saw_and_did() -> None:
    simulator, order = toy()
    recording = Recording({"task": "short"})
    record = run_episode(simulator, session_of(simulator, "toy_policies:Forward", chunk=4), order, [recording])
    assert recording.file is not None
    recording.file.seek(0)
    with np.load(recording.file, allow_pickle=False) as kept:
        about = json.loads(bytes(kept["about"]))
        assert about == {"format": 4, "task": "short", "success": record.outcome == "success"}
        assert kept["actions"].shape == (record.steps, 1)
        assert kept["rewards"].sum() == pytest.approx(record.reward_sum)
        assert kept["looks"].tolist() == list(range(0, record.steps, 4))
        assert kept["observations/position"].shape == (len(kept["looks"]), 1)


def test_the_file_is_what_numpy_would_have_written() -> None:
    rng = np.random.default_rng(0)
    seen = {"image": rng.integers(0, 255, (5, 3, 8, 8, 3), np.uint8), "step": np.arange(5), "b": np.ones((5, 2), bool)}
    recording = Recording({})
    for step in range(5):
        recording.on_look(step, {name: array[step] for name, array in seen.items()})
        recording.on_step(step + 1, np.ones(2), Step({}, 0.5, False, False, False))
    recording.on_end(EpisodeRecord(outcome="failure"))
    assert recording.file is not None
    recording.file.seek(0)
    expected = io.BytesIO()
    np.savez_compressed(
        expected,
        about=np.frombuffer(json.dumps({"format": 4, "success": False}).encode(), np.uint8),
        actions=np.ones((5, 2)),
        rewards=np.full(5, 0.5),
        looks=np.arange(5),
        **{f"observations/{name}": array for name, array in seen.items()},
    )
    with np.load(recording.file) as ours, np.load(io.BytesIO(expected.getvalue())) as numpys:
        assert ours.files == numpys.files
        for name in ours.files:
            assert (ours[name].dtype, ours[name].tobytes()) == (numpys[name].dtype, numpys[name].tobytes())
            assert ours[name].shape == numpys[name].shape
    recording.close()


@pytest.mark.parametrize("observer", [Film, Recording])
def test_what_is_too_large_is_given_up_and_the_episode_is_not(observer: type[Film] | type[Recording]) -> None:
    simulator, order = toy()
    watching = Film(simulator, fps=20.0, most=100) if observer is Film else Recording({}, most=100)
    record = run_episode(simulator, session_of(simulator, "toy_policies:Forward"), order, [watching])
    assert record.outcome == "success"
    assert watching.file is None
    assert "more than 100 bytes" in watching.missing


def test_a_recording_without_room_on_the_disk_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    simulator, order = toy()
    recording, film = Recording({}), Film(simulator, fps=20.0)
    record = run_episode(simulator, session_of(simulator, "toy_policies:Forward"), order, [recording, film])
    assert record.outcome == "success"
    for watching in (recording, film):
        assert watching.file is None
        assert watching.missing == "it could not be written to '/nowhere' on the worker: No such file or directory."


@pytest.mark.parametrize("gif", [False, True])
def test_a_film_whose_disk_fills_up_is_given_up_and_the_episode_is_not(
    gif: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full").open("w+b", buffering=0)  # noqa: SIM115 - the film closes it
    monkeypatch.setattr(film_file, "temporary_file", lambda: full)
    simulator, order = toy()
    film = Film(simulator, fps=20.0, look=FilmLook(gif=gif))
    record = run_episode(simulator, session_of(simulator, "toy_policies:Forward"), order, [film])
    film.close()
    assert record.outcome == "success"
    assert film.file is None
    assert film.missing == "it could not be written on the worker: No space left on device."


@pytest.mark.parametrize(
    ("absent", "look", "package"),
    [
        ("av", FilmLook(), "av"),
        ("PIL.Image", FilmLook(gif=True), "pillow"),
        ("PIL.ImageDraw", FilmLook(title="short #0"), "pillow"),
    ],
)
def test_a_worker_that_lacks_what_writes_films_says_so_and_the_episode_counts(
    absent: str, look: FilmLook, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image of somebody's own."""
    monkeypatch.setitem(sys.modules, absent, None)
    simulator, order = toy()
    film = Film(simulator, fps=20.0, look=look)
    record = run_episode(simulator, session_of(simulator, "toy_policies:Forward"), order, [film])
    assert record.outcome == "success"
    assert film.file is None
    assert film.missing.startswith(f"films need {package}, which the Python of the worker has not (")
    assert film.missing.endswith(f"install it there: pip install {package}")


def test_progress_is_told_now_and_then_and_counted_always(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(np.arange(0.0, 100.0, 0.2))
    monkeypatch.setattr("sparring.env_worker.episode.progress.time.monotonic", lambda: float(next(now)))
    told: list[int] = []
    progress = Progress(told.append)
    for step in range(1, 11):
        progress.on_step(step, np.zeros(1), Step({}, 0.0, False, False, False))
    assert progress.steps == 10
    assert told == [3, 6, 9]
