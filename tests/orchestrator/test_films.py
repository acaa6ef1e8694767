"""Films by replay: an evaluation renders nothing for them, and they are of what was recorded, or there are none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinated import Hand, Run
from toy_benchmark import Toy

from sparring.orchestrator.run.films import Films
from sparring.orchestrator.run.listeners import FilmCount
from sparring.orchestrator.run.make_plan import make_plan
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.action_list import pack, unpack
from sparring.protos.errors import UsageError

SUCCESS, FAILURE, ERROR = pb.OUTCOME_SUCCESS, pb.OUTCOME_FAILURE, pb.OUTCOME_ERROR
RunTest = Callable[[Run], Awaitable[None]]


@pytest.fixture
def in_run(tmp_path: Path) -> Callable[..., None]:
    """Runs a test with a coordinator; several times on the same folder, if it is called several times."""

    def run(test: RunTest, **settings: Any) -> None:
        async def go() -> None:
            made = Run(tmp_path / "run", **{"video": "all", **settings})
            try:
                await test(made)
            finally:
                made.journal.close()

        asyncio.run(asyncio.wait_for(go(), 60))

    return run


def actions(number: int, steps: int = 3) -> bytes:
    return pack(np.full((steps, 1), number / 7, np.float32))


def played(worker: Hand, number: int, outcome: pb.Outcome = SUCCESS, **more: Any) -> None:
    """Plays the next episode of the plan; its actions and rewards have a number in them."""
    lease = worker.takes()
    assert not lease.replay, "a film was made before an outcome"
    assert not lease.film, "the evaluation renders for a film"
    assert lease.film_later
    worker.finishes(lease, outcome, actions=actions(number), steps=3, reward_sum=number / 3, reward_max=number, **more)


def filmed(worker: Hand, lease: pb.Lease, number: int, outcome: pb.Outcome = SUCCESS, **more: Any) -> None:
    result = {"steps": 3, "reward_sum": number / 3, "reward_max": number, **more}
    worker.finishes(lease, outcome, video=b"film %d" % number, **result)


def videos(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run.folder / "videos").glob("*"))}


def test_episodes_are_played_again_with_their_actions_when_all_outcomes_are_known(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        played(worker, 1)
        played(worker, 2, FAILURE)
        assert not run.coordinator.ended.done(), "films are yet to be made"
        for number, outcome in ((1, SUCCESS), (2, FAILURE)):
            replay = worker.takes()
            assert replay.film
            assert np.array_equal(unpack(replay.replay), unpack(actions(number)))
            assert (replay.seed, replay.index) == (100 + number - 1, number - 1)
            filmed(worker, replay, number, outcome)
        await run.coordinator.ended
        assert videos(run) == {"short_0000_success.mp4": b"film 1", "short_0001_failure.mp4": b"film 2"}
        assert [row.video for row in run.journal.rows()] == [f"videos/{name}" for name in videos(run)]
        assert [(row.reward_max, row.attempts) for row in run.journal.rows()] == [(1, 1), (2, 1)]
        assert run.watcher.films[-1] == FilmCount(wanted=2, made=2, missing=0)

    in_run(test)


@pytest.mark.parametrize(
    ("video", "wanted"),
    [("failures", [1]), ("successes", [0]), ("first:1", [0]), ("short:1", [1]), ("all", [0, 1])],
)
def test_what_is_wanted_is_filmed_and_nothing_else(in_run: Callable[..., None], video: str, wanted: list[int]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        outcomes = (SUCCESS, FAILURE)
        for number in (0, 1):
            lease = worker.takes()
            worker.finishes(lease, outcomes[number], actions=actions(number), steps=3, reward_max=number)
        for index in wanted:
            replay = worker.takes()
            assert replay.index == index
            filmed(worker, replay, index, outcomes[index], reward_sum=0.0)
        await run.coordinator.ended
        assert [row.index for row in run.journal.rows() if row.video] == wanted

    in_run(test, video=video)


def test_a_film_that_comes_with_its_episode_is_not_made_again(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        for outcome, film in ((FAILURE, b"seen"), (SUCCESS, b"nobody wants it")):
            lease = worker.takes()
            assert (lease.film_seen, lease.film, lease.replay) == ([FAILURE], False, b"")
            worker.finishes(lease, outcome, actions=actions(1), steps=3, video=film)
        await run.coordinator.ended
        assert videos(run) == {"short_0000_failure.mp4": b"seen"}
        assert [row.video for row in run.journal.rows()] == ["videos/short_0000_failure.mp4", ""]
        assert run.watcher.films[-1] == FilmCount(wanted=1, made=1, missing=0)

    in_run(test, video="failures")


@pytest.mark.parametrize("more", [{"video": "none"}, {"actions": False}, {"video_live": True}])
def test_nobody_films_by_the_way_what_is_filmed_live_or_not_at_all(
    in_run: Callable[..., None], more: dict[str, Any]
) -> None:
    async def test(run: Run) -> None:
        assert not Hand(run).takes().film_seen

    in_run(test, **more)


def test_an_outcome_that_comes_back_goes_before_films(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        first, second = Hand(run, "first"), Hand(run, "second")
        played(first, 1)
        waiting = second.takes()  # the other episode
        replay = first.takes()
        assert replay.replay, "a slot that has nothing to play for makes films"
        second.leaves()
        filmed(first, replay, 1)
        again = first.takes()
        assert (again.index, again.replay) == (waiting.index, b""), "a film went before an outcome"

    in_run(test)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"outcome": FAILURE}, "outcome success then, failure now"),
        ({"steps": 2}, "steps 3 then, 2 now"),
        ({"reward_sum": 0.34}, r"reward_sum 0.333\d+ then, 0.34 now"),
        ({"reward_max": 2.0}, "reward_max 1.0 then, 2.0 now"),
        ({"outcome": ERROR, "error": "the simulator goes on."}, "the simulator goes on"),
        ({"video": b""}, "the worker sent none"),
        ({"missing": "its video is missing: no room."}, "no room"),
    ],
)
def test_a_replay_that_is_another_episode_is_told_counted_kept_in_the_journal_and_not_shown(
    in_run: Callable[..., None], more: dict[str, Any], told: str
) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        played(worker, 1)
        result = {"outcome": SUCCESS, "steps": 3, "reward_sum": 1 / 3, "reward_max": 1.0, "video": b"a film", **more}
        worker.finishes(worker.takes(), **result)
        await run.coordinator.ended
        assert videos(run) == {}
        (row,) = run.journal.rows()
        assert (row.outcome, row.video, row.reward_sum) == ("success", "", 1 / 3), "what was recorded stays"
        (event,) = [event for event in run.journal.events() if event.kind == "film"]
        assert run.watcher.warnings == [event.message]
        assert re.match(f"toy/short#0: there is no film of it: .*{told}", event.message)
        advised = " A simulator that does not repeat its episodes is filmed with --video-live."
        assert event.message.endswith(advised) == ("then," in told)
        assert run.watcher.films[-1] == FilmCount(wanted=1, made=0, missing=1)

    in_run(test, episodes=1)

    async def resumed(run: Run) -> None:
        assert run.coordinator.ended.done(), "what could not be filmed is not tried for ever"

    in_run(resumed, episodes=1)


def test_films_that_an_execution_did_not_come_to_are_made_by_the_next(in_run: Callable[..., None]) -> None:
    async def interrupted(run: Run) -> None:
        worker = Hand(run)
        played(worker, 1)
        played(worker, 2)
        filmed(worker, worker.takes(), 1)
        run.coordinator.abandon()

    async def resumed(run: Run) -> None:
        assert run.coordinator.pending("toy") == run.coordinator.unfinished == 1
        worker = Hand(run)
        replay = worker.takes()
        assert replay.index == 1
        filmed(worker, replay, 2)
        await run.coordinator.ended

    in_run(interrupted)
    in_run(resumed)


def test_a_replay_is_tried_again_if_its_worker_goes_away_and_not_for_ever(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run, "0")
        played(worker, 1)
        for number in range(3):
            assert not run.coordinator.ended.done()
            assert worker.takes().replay
            worker.leaves("killed.")
            worker = Hand(run, str(number + 1))
        await run.coordinator.ended
        assert run.watcher.warnings == [
            "toy/short#0: there is no film of it: nobody could play it again, the last time because: killed."
        ]
        (row,) = run.journal.rows()
        assert row.outcome == "success"

    in_run(test, episodes=1)


def test_who_does_not_hold_a_replay_has_nothing_to_say_of_it(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker, other = Hand(run, "honest"), Hand(run, "other")
        played(worker, 1)
        replay = worker.takes()
        filmed(other, replay, 1)
        other.says(lost=pb.Lost(lease=replay.lease, reason="no."))
        assert videos(run) == {}
        filmed(worker, replay, 1)
        await run.coordinator.ended
        assert videos(run) == {"short_0000_success.mp4": b"film 1"}

    in_run(test, episodes=1)


def test_without_actions_episodes_are_filmed_while_they_are_played(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        assert (lease.film, lease.film_later, lease.keep_actions) == (True, False, False)
        worker.finishes(lease, video=b"a film")
        await run.coordinator.ended
        assert videos(run) == {"short_0000_success.mp4": b"a film"}

    in_run(test, episodes=1, actions=False)


def test_a_simulator_that_does_not_repeat_its_episodes_is_filmed_while_it_is_played(
    in_run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "replays", False)

    async def test(run: Run) -> None:
        worker = Hand(run)
        for number, outcome in ((1, SUCCESS), (2, FAILURE)):
            lease = worker.takes()
            assert (lease.film, lease.film_later, lease.film_seen, lease.replay) == (True, False, [], b"")
            worker.finishes(lease, outcome, actions=actions(number), video=b"film %d" % number)
        await run.coordinator.ended
        assert videos(run) == {"short_0001_failure.mp4": b"film 2"}

    in_run(test, video="failures")


def test_a_film_of_an_episode_that_is_not_in_the_plan_is_refused(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        raise AssertionError("it was made")

    with pytest.raises(UsageError, match="'short:7', and no episode of this plan is that"):
        in_run(test, video="short:0,short:7")


def test_an_episode_is_named_as_tables_show_it(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        plan = make_plan(run.settings)
        films = Films(plan, run.settings, run.journal)
        assert [str(episode) for episode in plan.ids() if films.later(episode)] == ["big/short#0"]

    parts = [{"benchmark": "toy", "task": "short"}, {"benchmark": "toy", "task": "short", "name": "big"}]
    in_run(test, benchmark=None, task=None, evaluations=parts, episodes=2, video="big/short:0")


def test_a_film_is_of_the_row_as_it_is_read_again(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        played(worker, 1)
        filmed(worker, worker.takes(), 1)
        await run.coordinator.ended

    in_run(test, episodes=1)

    async def again(run: Run) -> None:  # the row's checksum is that of the row with its film
        assert [row.video for row in run.journal.rows()] == ["videos/short_0000_success.mp4"]

    in_run(again, episodes=1)


def test_the_traceback_of_a_replay_that_failed_is_kept(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        played(worker, 1)
        worker.finishes(worker.takes(), ERROR, traceback="Traceback\nValueError: boom\n")
        (event,) = run.journal.events()
        assert "its replay ended in an error. (traceback: errors/simulator-" in event.message
        assert "boom" in next((run.folder / "errors").iterdir()).read_text()

    in_run(test, episodes=1, output="kept")


def test_the_slot_of_a_replay_that_was_lost_is_idle(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        played(worker, 1)
        replay = worker.takes()
        assert run.watcher.activities[-1].task == "short"
        worker.says(lost=pb.Lost(lease=replay.lease, reason="it died."))
        assert run.watcher.activities[-1].task == ""

    in_run(test, episodes=1)
