"""The player: what it answers a lease with, and what it keeps from one lease to the next."""

from __future__ import annotations

import bdb
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from toy_benchmark import Toy, ToySettings, ToySimulator
from toy_policies import Forward, Raises, WantsTooMuch

from sparring.env_worker.benchmark import Names, Simulator, Step, Task
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.env_worker.episode.session import Session
from sparring.env_worker.rendering import mark
from sparring.env_worker.rendering.mark import DRAWING, IDLE
from sparring.env_worker.worker.player import Player
from sparring.policy_server.client import PolicyInterrupted, PolicyUnreachable
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies.base import Policy
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.action_list import unpack
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.pieces import AttachmentMissing
from sparring.protos.record import EpisodeRecord
from sparring.protos.spec import Offer
from sparring.protos.tensor import Array

ASSIGNMENT = pb.Assignment(benchmark="toy", video_fps=20.0)


class Counted(Toy):
    """Counts the simulators that are made."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.refused = ""

    def make(self, task: Task, settings: ToySettings) -> Simulator:
        self.made.append(task.name)
        if task.name == self.refused:
            raise UsageError("there is no such world here.")
        return super().make(task, settings)


class Sessions:
    """Of a policy in this process; counts how often they are opened and ended."""

    def __init__(self, policy: Policy, before: Callable[[], None] = lambda: None) -> None:
        self._policy = LocalPolicy(policy, name="toy")
        self._before = before
        self._session: Session | None = None
        self.opened = self.ended = 0

    def session_for(self, offer: Offer) -> Session:
        self._before()
        if self._session is None:
            self._session = self._policy.open(offer)
            self.opened += 1
        return self._session

    def end(self) -> None:
        self._session = None
        self.ended += 1


def player_of(policy: Policy, **sessions: Any) -> tuple[Player, Counted, Sessions]:
    benchmark, opened = Counted(), Sessions(policy, **sessions)
    return Player(benchmark, ToySettings(), opened), benchmark, opened


def lease(task: str = "short", index: int = 0, **more: Any) -> pb.Lease:
    return pb.Lease(lease=7, task=task, index=index, seed=1000 + index, **more)


def test_a_result_has_the_record_and_what_the_lease_asked_for() -> None:
    pieces: list[pb.Piece] = []
    player = Player(Counted(), ToySettings(), Sessions(Forward()), pieces.append)
    result = player.play(lease(film=True, record=True), ASSIGNMENT).result
    assert (result.lease, result.outcome, result.error) == (7, pb.OUTCOME_SUCCESS, "")
    assert result.steps > 0
    assert result.seconds >= result.physics_s > 0
    film, recording = pieces
    assert (film.lease, film.what, len(film.content)) == (7, pb.ATTACHMENT_VIDEO, result.video_bytes)
    assert b"ftyp" in film.content[:16]
    assert (recording.lease, recording.what) == (7, pb.ATTACHMENT_RECORDING)
    assert recording.content.startswith(b"PK")
    assert (len(recording.content), result.missing) == (result.recording_bytes, "")
    plain = player.play(lease(), ASSIGNMENT).result
    assert (plain.video_bytes, plain.recording_bytes, plain.actions, len(pieces)) == (0, 0, b"", 2)
    assert len(unpack(player.play(lease(keep_actions=True), ASSIGNMENT).result.actions)) == plain.steps


def test_versions_are_looked_up_once_and_not_for_each_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(
        "sparring.env_worker.worker.player.versions_of", lambda benchmark: looked.append(benchmark.name) or {}
    )
    player, _, _ = player_of(Forward())
    for index in range(3):
        player.play(lease(index=index, record=True), ASSIGNMENT)
    assert looked == ["toy"]


def test_an_error_has_no_film() -> None:
    pieces: list[pb.Piece] = []
    player = Player(Counted(), ToySettings(), Sessions(Forward()), pieces.append)
    result = player.play(lease("raises", film=True, record=True, keep_actions=True), ASSIGNMENT).result
    assert result.actions == b""
    assert (result.outcome, result.video_bytes, result.recording_bytes, result.missing) == (pb.OUTCOME_ERROR, 0, 0, "")
    assert pieces == []


def test_an_episode_counts_though_nobody_takes_its_recording() -> None:
    def refuse(piece: pb.Piece) -> None:
        raise AttachmentMissing("nobody took it.")

    player = Player(Counted(), ToySettings(), Sessions(Forward()), refuse)
    result = player.play(lease(record=True), ASSIGNMENT).result
    assert (result.outcome, result.recording_bytes) == (pb.OUTCOME_SUCCESS, 0)
    assert result.missing == "its recording is missing: nobody took it."


def test_simulator_and_session_stay_from_lease_to_lease_of_a_task() -> None:
    player, benchmark, sessions = player_of(Forward())
    for task in ("short", "short", "long", "short"):
        player.play(lease(task), ASSIGNMENT)
    assert benchmark.made == ["short", "long", "short"]
    assert (sessions.opened, sessions.ended) == (1, 0)


def test_after_an_error_both_are_new() -> None:
    player, benchmark, sessions = player_of(Raises())
    failed = player.play(lease(index=1), ASSIGNMENT).result
    assert (failed.outcome, failed.error_kind) == (pb.OUTCOME_ERROR, pb.ERROR_KIND_POLICY)
    assert "my knees are weak" in failed.error
    assert player.play(lease(index=2), ASSIGNMENT).result.outcome == pb.OUTCOME_SUCCESS
    assert benchmark.made == ["short", "short"]
    assert (sessions.opened, sessions.ended) == (2, 1)


@pytest.mark.parametrize("task", ["raises", "unmakeable"])
def test_whatever_a_simulator_raises_is_its_error(task: str) -> None:
    player, _, _ = player_of(Forward())
    failed = player.play(lease(task), ASSIGNMENT).result
    assert (failed.outcome, failed.error_kind) == (pb.OUTCOME_ERROR, pb.ERROR_KIND_SIMULATOR)
    assert failed.error.startswith("the simulator raised ")


def test_an_observer_that_raises_is_an_error_and_never_a_score() -> None:
    class Clumsy(EpisodeObserver):
        def on_step(self, step: int, action: Array, result: Step) -> None:
            raise ValueError("dropped it")

    player, _, _ = player_of(Forward())
    failed = player.play(lease(), ASSIGNMENT, [Clumsy()]).result
    assert (failed.outcome, failed.error_kind) == (pb.OUTCOME_ERROR, pb.ERROR_KIND_INTERNAL)
    assert "'Clumsy'" in failed.error
    assert failed.steps == 0


def test_whose_code_raised_is_in_the_traceback_that_comes_with_the_error() -> None:
    class Clumsy(EpisodeObserver):
        def on_step(self, step: int, action: Array, result: Step) -> None:
            raise ValueError("dropped it")

    player, _, _ = player_of(Forward())
    found = player.play(lease("raises"), ASSIGNMENT).result.traceback
    assert "in _misbehave" in found
    assert "player.py" not in found, "it begins in the benchmark's code"
    assert found.endswith("ValueError: the world came apart\n")
    assert "no such world" in player.play(lease("unmakeable"), ASSIGNMENT).result.traceback
    assert "in on_step" in player.play(lease(), ASSIGNMENT, [Clumsy()]).result.traceback
    player, _, _ = player_of(Raises())
    failed = player.play(lease(index=1), ASSIGNMENT).result
    assert (failed.error_kind, failed.traceback) == (pb.ERROR_KIND_POLICY, ""), "it is kept where the policy is"
    player, _, _ = player_of(WantsTooMuch())
    assert player.play(lease(), ASSIGNMENT).refused.traceback == "", "there is a table instead"


def test_what_does_not_fit_or_cannot_be_refuses_the_run() -> None:
    player, _, _ = player_of(WantsTooMuch())
    assert "not offered" in player.play(lease(), ASSIGNMENT).refused.reason
    player, benchmark, _ = player_of(Forward())
    benchmark.refused = "long"
    assert player.play(lease("long"), ASSIGNMENT).refused.reason == "there is no such world here."


def test_what_no_attempt_can_cure_refuses_the_run() -> None:
    class Blind(Counted):
        def make(self, task: Task, settings: ToySettings) -> Simulator:
            simulator = super().make(task, settings)
            simulator.camera = None
            return simulator

    player = Player(Blind(), ToySettings(), Sessions(Forward()))
    assert "no camera" in player.play(lease(film=True), ASSIGNMENT).refused.reason
    assert player.play(lease(), ASSIGNMENT).result.outcome == pb.OUTCOME_SUCCESS, "nobody films it"

    class Lacking(Counted):
        def make(self, task: Task, settings: ToySettings) -> Simulator:
            import no_such_simulator  # noqa: F401

            return super().make(task, settings)

    refused = Player(Lacking(), ToySettings(), Sessions(Forward())).play(lease(), ASSIGNMENT).refused
    assert "ModuleNotFoundError: No module named 'no_such_simulator'" in refused.reason
    assert "in make" in refused.traceback

    class Unjudged(ToySimulator):
        def step(self, action: Array, *, look: frozenset[str]) -> Step:
            raise UsageError("nobody says what success is.")

    class Unsaid(Counted):
        def make(self, task: Task, settings: ToySettings) -> Simulator:
            return Unjudged(task.name, settings)

    refused = Player(Unsaid(), ToySettings(), Sessions(Forward())).play(lease(), ASSIGNMENT).refused
    assert refused.reason == "nobody says what success is."


def test_a_policy_that_cannot_be_reached_loses_the_lease() -> None:
    def gone() -> None:
        raise PolicyUnreachable("nobody is there.")

    player, _, _ = player_of(Forward(), before=gone)
    lost = player.play(lease(), ASSIGNMENT).lost
    assert (lost.lease, lost.reason, lost.policy_unreachable) == (7, "nobody is there.", True)


class Ends(EpisodeObserver):
    """Stands in for a server that is killed, or a batch with another row in it: a local session has neither."""

    def __init__(self, sessions: Sessions, error: SparringError) -> None:
        self._sessions = sessions
        self._error = error

    def on_reset(self, observation: object) -> None:
        def act(tensors: object, *, step: int) -> None:
            raise self._error

        self._sessions._session.act = act  # type: ignore[union-attr,assignment,method-assign]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PolicyUnreachable("it went away."), {"policy_gone": True}),
        (PolicyInterrupted("another one failed."), {"interrupted": True}),
    ],
)
def test_a_policy_that_goes_away_or_fails_on_another_episode_loses_the_lease_and_the_session(
    error: SparringError, said: dict[str, bool]
) -> None:
    player, _, sessions = player_of(Forward())
    lost = player.play(lease(), ASSIGNMENT, [Ends(sessions, error)]).lost
    assert lost == pb.Lost(lease=7, reason=error.sentence, **said)
    assert sessions.ended == 1


def test_who_quits_the_debugger_quits_it_all() -> None:
    class Quits(EpisodeObserver):
        def on_look(self, step: int, seen: object) -> None:
            raise bdb.BdbQuit

    player, _, _ = player_of(Forward())
    with pytest.raises(bdb.BdbQuit):
        player.play(lease(), ASSIGNMENT, [Quits()])


def test_the_rules_of_the_assignment_hold() -> None:
    player, _, _ = player_of(Forward(gain=3.0))
    rules = EpisodeRules(out_of_range="error").to_message()
    failed = player.play(lease(), pb.Assignment(benchmark="toy", rules=rules)).result
    assert failed.error_kind == pb.ERROR_KIND_ACTION
    assert player.play(lease(), ASSIGNMENT).result.outcome == pb.OUTCOME_SUCCESS


class Unclosable(Counted):
    """Whose simulators raise when they are closed, as broken ones may."""

    def make(self, task: Task, settings: ToySettings) -> Simulator:
        class Stuck(ToySimulator):
            def close(self) -> None:
                raise RuntimeError("the window is stuck")

        self.made.append(task.name)
        return Stuck(task.name, settings)


def test_a_simulator_that_cannot_be_closed_either_is_still_the_error_that_it_was() -> None:
    benchmark = Unclosable()
    player = Player(benchmark, ToySettings(), Sessions(Forward()))
    for _ in range(2):
        failed = player.play(lease("raises"), ASSIGNMENT).result
        assert failed.error == "the simulator raised ValueError: the world came apart"
    assert benchmark.made == ["raises", "raises"], "another one, although the first could not be closed"


def test_a_simulator_that_cannot_be_closed_is_an_error_of_the_next_task_once() -> None:
    player = Player(Unclosable(), ToySettings(), Sessions(Forward()))
    assert player.play(lease("short"), ASSIGNMENT).result.outcome == pb.OUTCOME_SUCCESS
    failed = player.play(lease("long"), ASSIGNMENT).result
    assert failed.error == "the simulator raised RuntimeError: the window is stuck"
    assert player.play(lease("long"), ASSIGNMENT).result.outcome == pb.OUTCOME_SUCCESS
    player.close()  # raises nothing: every episode has its result


class Silent(ToySimulator):
    """Does not say what success is: only its steps show that, or it is known before."""

    success_advice = "Ask it nicely."

    def step(self, action: Array, *, look: Names) -> Step:
        return replace(super().step(action, look=look), success=None)


class KnownToBeSilent(Silent):
    tells_success = False


class SilentToy(Counted):
    def __init__(self, *, tells: bool | None) -> None:
        super().__init__()
        self.tells = tells

    def make(self, task: Task, settings: ToySettings) -> Simulator:
        return (Silent if self.tells is None else KnownToBeSilent)(task.name, settings)


@pytest.mark.parametrize(("tells", "episodes"), [(False, 0), (None, 1)])
def test_who_does_not_say_what_success_is_refuses_runs_about_success_only(tells: bool | None, episodes: int) -> None:
    counted: list[str] = []

    class Counting(EpisodeObserver):
        def on_end(self, record: EpisodeRecord) -> None:
            counted.append(record.outcome)

    player = Player(SilentToy(tells=tells), ToySettings(), Sessions(Forward()))
    refused = player.play(lease(), ASSIGNMENT, [Counting()]).refused
    assert counted == ["played"] * episodes
    assert "'short' does not say what success is. {{metric=\"return\"}}" in refused.reason
    assert refused.reason.endswith("Ask it nicely.")
    about_return = pb.Assignment(benchmark="toy", rules=EpisodeRules(metric="return").to_message())
    result = player.play(lease(), about_return).result
    assert (result.outcome, result.error) == (pb.OUTCOME_PLAYED, "")
    assert EpisodeRecord.from_message(result).outcome == "played"


class Drawn(Counted):
    """Counts the simulators whose images were prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared = 0

    def make(self, task: Task, settings: ToySettings) -> Simulator:
        simulator = super().make(task, settings)
        simulator.prepare_images = self._prepare  # type: ignore[method-assign]
        return simulator

    def _prepare(self) -> None:
        self.prepared += 1


def test_what_was_prepared_is_what_the_first_lease_plays_in() -> None:
    benchmark = Drawn()
    player = Player(benchmark, ToySettings(), Sessions(Forward()))
    player.prepare("short", images=True)
    assert (benchmark.made, benchmark.prepared) == (["short"], 1)
    prepared = player.play(lease(record=True, keep_actions=True), ASSIGNMENT).result
    assert benchmark.made == ["short"]
    other, _, _ = player_of(Forward())
    plain = other.play(lease(record=True, keep_actions=True), ASSIGNMENT).result
    for field in ("outcome", "reward_sum", "reward_max", "steps", "renders", "round_trips", "actions"):
        assert getattr(prepared, field) == getattr(plain, field)
    player.prepare("long", images=False)
    assert (benchmark.made, benchmark.prepared) == (["short", "long"], 1)


def test_what_dies_while_images_are_prepared_dies_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SimpleNamespace(value=IDLE)
    monkeypatch.setattr(mark, "_mark", shared)
    seen = []
    benchmark = Drawn()
    monkeypatch.setattr(benchmark, "_prepare", lambda: seen.append(shared.value))
    player = Player(benchmark, ToySettings(), Sessions(Forward()))
    player.prepare("short", images=True)
    assert seen == [DRAWING], "whatever the simulator itself does about it"
    assert shared.value == IDLE


def test_what_cannot_be_prepared_is_told_by_the_lease_and_by_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    player, benchmark, _ = player_of(Forward())
    benchmark.refused = "short"
    player.prepare("short", images=True)
    player.prepare("unmakeable", images=True)
    player.prepare("no-such-task", images=True)
    assert not caplog.records
    message = player.play(lease(), ASSIGNMENT)
    assert message.refused.reason == "there is no such world here."
    assert benchmark.made == ["short", "unmakeable", "short"]
