"""How the policy server is doing, by what is told of it: when leases wait, who is sent away, when a run is given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparring.orchestrator.coordination import policy_state
from sparring.orchestrator.coordination.policy_state import PolicyState
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.scheduler import Lease, SlotId
from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, render

SECONDS = 30.0
CRASH = ServerEnd("crashed", "ended with exit code 1")
HANG = ServerEnd("hung", "did not answer and was killed")
UNANSWERED = pb.Lost(policy_unanswered=True)


def lease(number: int) -> Lease:
    return Lease(number, EpisodeId("toy", "short", number), SlotId("toy", f"worker-{number}", 0))


class Clock:
    """Instead of the event loop's: half a minute of waiting is what is tested."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(policy_state, "_now", clock)
    return clock


class Host:
    """Notes why it was asked to restart the server."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def restart(self, reason: str, *, only_if_stopped: bool = False) -> bool:
        if only_if_stopped:
            return False
        self.reasons.append(reason)
        return True


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def state(clock: Clock, host: Host) -> PolicyState:
    state = PolicyState(SECONDS, RetryRules(unreachable=2, policy_server_restarts=2), FLAGS)
    state.restart = host.restart
    return state


def test_an_unanswered_deadline_restarts_the_server_and_nothing_is_lent_meanwhile(
    state: PolicyState, host: Host
) -> None:
    state.lost(lease(1), UNANSWERED, believed=True)
    assert not state.is_up
    assert host.reasons == ["did not answer within 30 s and was killed"]


def test_a_worker_that_is_not_believed_restarts_nothing(state: PolicyState, host: Host) -> None:
    state.lost(lease(1), UNANSWERED, believed=False)
    assert state.is_up
    assert not host.reasons


def test_a_server_elsewhere_is_not_ours_to_restart(state: PolicyState) -> None:
    state.restart = None
    state.lost(lease(1), UNANSWERED, believed=True)
    assert state.is_up


def test_what_was_in_flight_when_it_ended_says_nothing_new(state: PolicyState, host: Host) -> None:
    state.ended(CRASH, [lease(1)], over=False)
    state.is_up = True  # it is back
    state.lost(lease(1), UNANSWERED, believed=True)
    assert state.is_up
    assert not host.reasons
    state.lost(lease(2), UNANSWERED, believed=True)
    assert len(host.reasons) == 1


def test_the_one_episode_that_takes_it_down_twice_is_convicted(state: PolicyState) -> None:
    first = state.ended(CRASH, [lease(1)], over=False)
    assert (first.convicted, first.hopeless) == (None, None)
    assert state.suspects == {lease(1).episode}
    second = state.ended(CRASH, [lease(1)], over=False)
    assert second.explained
    assert second.convicted == lease(1).episode
    assert state.suspects is None


def test_one_that_has_waited_for_the_next_server_and_ended_that_too_is_not_forgotten(state: PolicyState) -> None:
    """It had no session yet when the first one ended: an innocent one that was on loan beside it was convicted."""
    state.ended(CRASH, [lease(1), lease(2)], over=False)
    state.is_up = True  # it is back, and both slots go on
    state.lost(lease(1), pb.Lost(policy_gone=True), believed=True)
    second = state.ended(CRASH, [lease(2)], over=False)
    assert (second.convicted, second.hopeless) == (None, None)
    assert state.suspects == {lease(1).episode}
    third = state.ended(CRASH, [replace(lease(1), number=3)], over=False)
    assert third.convicted == lease(1).episode


def test_one_that_has_lost_its_session_to_the_first_end_says_nothing_of_the_second(state: PolicyState) -> None:
    state.ended(CRASH, [lease(1), lease(2)], over=False)
    state.lost(lease(1), pb.Lost(policy_gone=True), believed=True)
    state.is_up = True
    assert state.ended(CRASH, [lease(2)], over=False).convicted == lease(2).episode


def test_one_that_comes_to_its_end_is_no_suspect(state: PolicyState) -> None:
    state.ended(CRASH, [lease(1)], over=False)
    state.has_result("worker-1", lease(1).episode, answered=True)
    assert state.suspects is None


def test_a_lease_that_its_slot_lost_a_moment_before_the_end_is_a_suspect_and_an_older_one_is_not(
    state: PolicyState, clock: Clock
) -> None:
    state.session_broke = lambda: False
    state.lost(lease(1), pb.Lost(policy_gone=True), believed=True)
    clock.now += 60
    state.lost(lease(2), pb.Lost(policy_gone=True), believed=True)
    clock.now += 1
    state.ended(CRASH, [], over=False)
    assert state.suspects == {lease(2).episode}


@pytest.mark.parametrize(
    ("end", "over"), [(ServerEnd("killed", "was ended by signal 9"), False), (CRASH, True)], ids=["killed", "over"]
)
def test_somebody_elses_kill_and_the_end_of_the_run_make_no_suspects(
    state: PolicyState, end: ServerEnd, over: bool
) -> None:
    state.ended(end, [lease(1)], over=over)
    assert state.suspects is None
    assert not state.is_up


def test_crashes_without_a_result_in_between_are_hopeless_and_a_result_begins_anew(state: PolicyState) -> None:
    def crashes(first: int) -> list[bool]:
        return [bool(state.ended(CRASH, [lease(first + i)], over=False).hopeless) for i in range(3)]

    assert crashes(10) == [False, False, True]
    state.has_result("worker-1", EpisodeId("toy", "short", 1), answered=True)
    assert crashes(20) == [False, False, True]


def test_a_policy_that_never_answers_is_told_by_its_time_limit(state: PolicyState) -> None:
    for number in (1, 1):  # suspected, then convicted, with nothing ever answered
        state.ended(HANG, [lease(number)], over=False)
    hopeless = state.ended(HANG, [lease(2)], over=False).hopeless
    assert hopeless is not None
    assert "first answer within 30 s" in hopeless.sentence
    assert "--policy-timeout" in render(hopeless.sentence, FLAGS)


def test_one_that_has_answered_is_given_the_benefit_of_the_doubt(state: PolicyState) -> None:
    state.has_steps()
    for number in (1, 1):
        state.ended(HANG, [lease(number)], over=False)
    assert state.ended(HANG, [lease(2)], over=False).hopeless is None


def test_a_full_server_ends_the_run_only_if_nobody_plays_for_all_that_time(state: PolicyState, clock: Clock) -> None:
    assert state.full("it has eight sessions.") is None
    clock.now += SECONDS - 1
    assert state.full("it has eight sessions.") is None
    state.has_steps()  # somebody got a session: the clock begins anew
    clock.now += SECONDS - 1
    assert state.full("it has eight sessions.") is None
    clock.now += SECONDS
    stopped = state.full("it has eight sessions.")
    assert stopped is not None
    assert stopped.sentence.endswith("it has eight sessions.")


def test_workers_that_wait_in_vain_end_the_run_when_all_say_so(state: PolicyState) -> None:
    state.restart = None
    waits = [state.unreachable("a", lease(1), believed=True, busy=["a"]) for _ in range(2)]
    assert waits == ["", "stop"]


def test_one_among_others_that_play_is_sent_away(state: PolicyState) -> None:
    state.restart = None
    waits = [state.unreachable("a", lease(1), believed=True, busy=["a", "b"]) for _ in range(2)]
    assert waits == ["", "send away"]


def test_a_result_of_anybody_shows_that_the_server_can_be_reached(state: PolicyState) -> None:
    state.restart = None
    assert state.unreachable("a", lease(1), believed=True, busy=["a"]) == ""
    state.has_result("a", lease(1).episode, answered=True)
    assert state.unreachable("a", lease(1), believed=True, busy=["a"]) == ""


def test_nobody_is_blamed_while_a_server_of_ours_is_away(state: PolicyState) -> None:
    state.is_up = False
    waits = [state.unreachable("a", lease(1), believed=True, busy=["a"]) for _ in range(5)]
    assert set(waits) == {""}
