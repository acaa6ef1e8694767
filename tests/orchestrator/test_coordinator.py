"""Leases out, results in: the coordinator with a journal on disk, and workers that are told what to do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from coordinated import LOSSES, Hand, Run

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.makers import BENCHMARK
from sparring.orchestrator.results.programs import NOTE
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError, UsageError

FIRST, SECOND = (EpisodeId("toy", "short", k) for k in range(2))

Test = Callable[[Run], Awaitable[None]]


@pytest.fixture
def in_run(tmp_path: Path) -> Callable[..., None]:
    """Runs a test in an event loop, with a coordinator."""

    def run(test: Test, **settings: Any) -> None:
        async def work() -> None:
            made = Run(tmp_path / "run", **settings)
            try:
                await test(made)
            finally:
                made.journal.close()  # the next one has the same folder

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def events(run: Run) -> list[tuple[str, str]]:
    with sqlite3.connect(run.folder / "journal.sqlite") as journal:
        return journal.execute("SELECT kind, message FROM events").fetchall()


def test_a_run_from_its_first_lease_to_its_end(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        assert run.watcher.workers == [("w", 1)]
        assert run.coordinator.workers.versions == {"w": {"numpy": "1"}}
        first = worker.takes()
        assert (first.task, first.index, first.seed, first.slot) == ("short", 0, 100, 0)
        assert (run.coordinator.unfinished, run.coordinator.pending("toy")) == (2, 1)
        worker.finishes(first, reward_sum=2.5, steps=7)
        second = worker.takes()
        assert (second.index, second.seed) == (1, 101)
        assert not run.coordinator.ended.done()
        worker.finishes(second, pb.OUTCOME_FAILURE)
        await run.coordinator.ended
        rows = run.journal.rows()
        assert [(r.id, r.outcome, r.reward_sum, r.steps, r.attempts) for r in rows] == [
            (FIRST, "success", 2.5, 7, 1),
            (SECOND, "failure", 0.0, 0, 1),
        ]
        assert run.watcher.rows == rows
        assert run.coordinator.workers.results_of == {"w": 2}
        assert worker.ready() is None

    in_run(test)


def test_a_result_is_in_the_journal_before_anybody_hears_of_it(
    in_run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(run: Run) -> None:
        seen: list[int] = []
        monkeypatch.setattr(run.watcher, "on_result", lambda row: seen.append(len(run.journal.rows())))
        worker = Hand(run)
        for expected in (1, 2):
            worker.finishes(worker.takes())
            assert seen[-1] == expected

    in_run(test)


def test_a_late_duplicate_changes_nothing(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        worker.finishes(lease, reward_sum=1.0)
        worker.finishes(lease, pb.OUTCOME_FAILURE, reward_sum=9.0)
        worker.finishes(pb.Lease(lease=4711))
        assert [(r.outcome, r.reward_sum) for r in run.journal.rows()] == [("success", 1.0)]
        assert run.coordinator.unfinished == 1

    in_run(test)


def test_an_error_is_tried_again_then_recorded(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        for attempt in range(3):
            worker.finishes(
                worker.takes(), pb.OUTCOME_ERROR, error=f"broke {attempt}", error_kind=pb.ERROR_KIND_SIMULATOR
            )
        (row,) = run.journal.rows()
        assert (row.id, row.outcome, row.error, row.error_kind, row.attempts) == (
            FIRST, "error", "broke 2", "simulator", 3
        )  # fmt: skip
        assert run.watcher.retries == [(FIRST, "broke 0"), (FIRST, "broke 1")]
        assert events(run) == [("error", f"broke {attempt}") for attempt in range(3)]
        assert run.coordinator.workers.results_of == {"w": 3}, "a worker that answers is of use, whatever it answers"

    in_run(test, retries=2, max_parallel_tasks=1)


def test_an_outcome_that_nobody_knows_is_an_error(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        worker.finishes(worker.takes(), pb.OUTCOME_UNSPECIFIED)
        assert [r.outcome for r in run.journal.rows()] == ["error"]

    in_run(test, retries=0)


def test_errors_of_an_earlier_session_run_again_and_everything_else_does_not(
    in_run: Callable[..., None], tmp_path: Path
) -> None:
    async def before(run: Run) -> None:
        worker = Hand(run)
        worker.finishes(worker.takes(), pb.OUTCOME_ERROR, error="broke")
        worker.finishes(worker.takes())
        await run.coordinator.ended

    async def after(run: Run) -> None:
        assert run.coordinator.unfinished == 1
        worker = Hand(run)
        worker.finishes(worker.takes())
        await run.coordinator.ended
        assert [r.outcome for r in run.journal.rows()] == ["success", "success"]

    async def again(run: Run) -> None:
        assert run.coordinator.ended.done(), "nothing is left to do"

    in_run(before, retries=0)
    in_run(after, retries=0)
    in_run(again, retries=0)


def test_the_leases_of_a_worker_that_leaves_go_to_others_at_once_and_count_as_no_attempt(
    in_run: Callable[..., None],
) -> None:
    async def test(run: Run) -> None:
        gone, waiting = Hand(run, "gone", slots=2), Hand(run, "waiting")
        lost = [gone.takes(0), gone.takes(1)]
        assert waiting.ready() is None
        gone.leaves("its stream broke.")
        assert [lease.task for lease in waiting.leases] == ["short"], "it had asked before"
        assert run.watcher.workers[-1] == ("gone", 0)
        assert run.watcher.retries == [(FIRST, "its stream broke."), (SECOND, "its stream broke.")]
        for lease in lost:
            waiting.finishes(lease, reward_sum=9.0)
        assert run.journal.rows() == [], "whoever has left is not listened to"
        waiting.finishes(waiting.leases[0])
        waiting.finishes(waiting.takes())
        assert [(r.outcome, r.attempts) for r in run.journal.rows()] == [("success", 1)] * 2

    in_run(test)


def test_an_episode_that_is_lost_again_and_again_is_an_error_that_says_why(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        for loss in range(LOSSES):
            assert run.journal.rows() == []
            lease = worker.takes()
            worker.says(lost=pb.Lost(lease=lease.lease, reason=f"the slot was killed ({loss})."))
        (row,) = run.journal.rows()
        assert (row.id, row.error_kind) == (FIRST, "lost")
        assert row.error == (f"lost {LOSSES} times, the last time because: the slot was killed ({LOSSES - 1}).")
        assert events(run)[0] == ("lost", "the slot was killed (0).")

    in_run(test)


def test_what_another_episode_of_its_batch_has_done_is_not_held_against_an_episode(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run, slots=2)
        fails, bystander = worker.takes(0), worker.takes(1)
        for _ in range(2 * LOSSES):
            worker.says(lost=pb.Lost(lease=bystander.lease, reason="another one failed.", interrupted=True))
            worker.finishes(fails, pb.OUTCOME_ERROR, error="boom", error_kind=pb.ERROR_KIND_POLICY)
            fails, bystander = worker.takes(0), worker.takes(1)
        assert run.journal.rows() == []
        assert events(run)[0] == ("lost", "another one failed.")
        worker.finishes(fails)
        worker.finishes(bystander)
        attempts = {row.index: row.attempts for row in run.journal.rows()}
        assert attempts == {fails.index: 2 * LOSSES + 1, bystander.index: 1}

    in_run(test, retries=100, max_errors=0)


def test_that_another_one_failed_is_no_explanation_where_none_has(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        for _ in range(1 + LOSSES):
            assert run.journal.rows() == []
            worker.says(lost=pb.Lost(lease=worker.takes().lease, reason="another one failed.", interrupted=True))
        (row,) = run.journal.rows()
        assert (row.id, row.error_kind) == (FIRST, "lost")

    in_run(test)


def test_a_worker_that_cannot_get_ready_ends_the_run_and_its_traceback_is_kept(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        Hand(run).says(refused=pb.Refused(reason="it raised.", traceback='  File "mine.py", line 1, in prepare'))
        (file,) = (run.folder / "errors").iterdir()
        assert file.name.startswith("benchmark-")
        assert 'File "mine.py"' in file.read_text()
        with pytest.raises(UsageError, match=rf"it raised\. \(traceback: errors/{file.name}\)"):
            await run.coordinator.ended

    in_run(test, output="kept")


def test_where_others_have_played_a_worker_that_cannot_get_ready_is_replaced(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        first = Hand(run, "first")
        first.finishes(first.takes())
        first.leaves()
        second = Hand(run, "second")
        for number in range(3):  # of which the first one counts
            second.says(refused=pb.Refused(reason="the disk is full.", traceback=f"Error{number}"))
        assert [message.WhichOneof("message") for message in second.inbox] == ["stop"]
        assert "the disk is full. (traceback: errors/benchmark-" in second.inbox[0].stop.reason
        assert second.ready() is None
        assert len(list((run.folder / "errors").iterdir())) == 1
        second.leaves()
        third = Hand(run, "third")
        third.finishes(third.takes())
        await run.coordinator.ended

    in_run(test, output="kept")


def test_what_a_launcher_finds_out_about_a_death_is_told_with_the_episode(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        for loss in range(LOSSES):
            worker = Hand(run, f"w{loss}")
            worker.takes()
            worker.leaves("the stream broke.")
            run.coordinator.explain(worker.name, "out of memory")
        (row,) = run.journal.rows()
        assert row.error.endswith("because: the stream broke. An earlier time: out of memory.")
        assert ("lost", "out of memory") in events(run)
        run.coordinator.explain("w0", "once more")
        assert ("lost", "once more") not in events(run), "it was explained already"

    in_run(test, episodes=1)


def test_a_policy_that_cannot_be_reached_ends_the_run_when_two_slots_say_so(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run, slots=2)

        def in_vain() -> None:
            lease = worker.takes()
            worker.says(lost=pb.Lost(lease=lease.lease, reason="no policy server answered.", policy_unreachable=True))

        in_vain()
        worker.finishes(worker.takes())
        in_vain()
        assert not run.coordinator.ended.done(), "in between one was reached"
        in_vain()
        with pytest.raises(RunStopped, match="no policy server answered"):
            await run.coordinator.ended

    in_run(test, episodes=3)


def test_a_policy_that_does_not_fit_ends_the_run_as_the_users_mistake(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        worker.says(refused=pb.Refused(lease=lease.lease, reason="it wants a camera."))
        with pytest.raises(UsageError, match="it wants a camera"):
            await run.coordinator.ended
        worker.finishes(worker.leases[0])
        assert run.journal.rows() == [], "the run had ended"

    in_run(test)


def test_a_worker_whose_name_is_taken_gets_another(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        assert [Hand(run, "twin").name for _ in range(3)] == ["twin", "twin.2", "twin.3"]

    in_run(test)


def test_a_lease_cannot_be_guessed(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run, slots=200)
        numbers = [worker.takes(slot).lease for slot in range(200)]
        assert len(set(numbers)) == 200
        assert all(0 < number < 2**63 for number in numbers)
        assert sum(number.bit_length() > 56 for number in numbers) > 190, "they are not small"
        assert numbers != sorted(numbers)

    in_run(test, episodes=200)


@pytest.mark.parametrize("kind", ["result", "lost", "refused"])
def test_about_a_lease_of_another_worker_nobody_has_a_say(
    in_run: Callable[..., None], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async def test(run: Run) -> None:
        honest, hostile = Hand(run, "honest"), Hand(run, "hostile")
        lease = honest.takes()
        forged = {
            "result": pb.Result(lease=lease.lease, outcome=pb.OUTCOME_SUCCESS, reward_sum=9.0),
            "lost": pb.Lost(lease=lease.lease, reason="gone.", policy_unreachable=True),
            "refused": pb.Refused(lease=lease.lease, reason="it does not fit."),
        }
        for _ in range(3):
            hostile.says(**{kind: forged[kind]})
        assert not run.coordinator.ended.done()
        assert (run.journal.rows(), run.watcher.retries) == ([], [])
        assert "of worker hostile for a lease that it does not hold changes nothing" in caplog.text
        honest.finishes(lease, pb.OUTCOME_FAILURE)
        honest.finishes(honest.takes(), pb.OUTCOME_FAILURE)
        await run.coordinator.ended
        assert [row.outcome for row in run.journal.rows()] == ["failure", "failure"]

    in_run(test)


def test_a_benchmark_without_a_worker_is_noticed(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        assert run.coordinator.unattended() == {"toy", "gym"}
        worker = Hand(run, "a")
        assert run.coordinator.unattended() == {"gym"}
        other = Hand(run, "b", benchmark="gym")
        assert other.takes().task == "CartPole-v1"
        assert worker.takes().task == "short"
        worker.leaves()
        assert run.coordinator.unattended() == {"toy"}, "its lease is back in the queue"

    both = [{"benchmark": "toy", "task": "short"}, {"benchmark": "gym", "task": "CartPole-v1"}]
    in_run(test, benchmark=None, task=None, evaluations=both, episodes=1)


def test_activity_is_passed_on_to_whoever_watches(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        begun = run.watcher.activities[-1]
        assert (begun.worker, begun.slot, begun.task, begun.index, begun.steps) == ("w", 0, "short", 0, 0)
        activity = pb.SlotActivity(slot=0, task="short", index=0, steps=12)
        worker.says(heartbeat=pb.Heartbeat(slots=[activity]))
        assert run.watcher.activities[-1].steps == 12
        worker.finishes(lease)
        assert run.watcher.activities[-1].task == "", "its steps are those of a recorded episode now, and count once"

    in_run(test)


def test_a_journal_that_cannot_be_written_stops_the_run(
    in_run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(run: Run) -> None:
        def full(*_: object) -> bool:
            raise SparringError("the disk is full.")

        monkeypatch.setattr(run.journal, "record", full)
        worker = Hand(run)
        worker.finishes(worker.takes())
        with pytest.raises(RunStopped, match="the disk is full"):
            await run.coordinator.ended
        assert run.watcher.rows == [], "nobody hears of what is not recorded"

    in_run(test)


@pytest.mark.parametrize(
    ("video", "asked", "kept"),
    [
        ("none", [False, False], ["", ""]),
        ("all", [True, True], ["videos/short_0000_success.mp4", "videos/short_0001_failure.mp4"]),
        ("first:1", [True, False], ["videos/short_0000_success.mp4", ""]),
        ("failures", [True, True], ["", "videos/short_0001_failure.mp4"]),
    ],
)
def test_films_are_asked_for_and_kept_as_the_settings_say(
    in_run: Callable[..., None], video: str, asked: list[bool], kept: list[str]
) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        for outcome, film in zip((pb.OUTCOME_SUCCESS, pb.OUTCOME_FAILURE), asked, strict=True):
            lease = worker.takes()
            assert lease.film is film
            worker.finishes(lease, outcome, video=b"a film" if film else b"")
        assert [row.video for row in run.journal.rows()] == kept
        found = sorted(str(path.relative_to(run.folder)) for path in run.folder.glob("videos/*"))
        assert found == sorted(filter(None, kept))

    in_run(test, video=video, video_live=True)


def test_recordings_are_asked_for_and_kept_where_they_belong(in_run: Callable[..., None], tmp_path: Path) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        assert lease.record
        worker.finishes(lease, recording=b"an archive")
        assert (tmp_path / "demos" / "toy" / "short" / "0000.npz").read_bytes() == b"an archive"

    in_run(test, record=tmp_path / "demos")


def test_a_film_that_cannot_be_written_stops_the_run(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        (run.folder / "videos").write_text("not a folder")
        worker = Hand(run)
        worker.finishes(worker.takes(), video=b"a film")
        with pytest.raises(RunStopped, match="cannot be written"):
            await run.coordinator.ended

    in_run(test, video="all", video_live=True)


def test_the_next_run_takes_over_workers_and_slots_that_have_asked(tmp_path: Path) -> None:
    async def test() -> None:
        first = Run(tmp_path / "first", episodes=1)
        worker = Hand(first, slots=2)
        lease = worker.takes(0)
        assert worker.ready(1) is None
        worker.finishes(lease)
        worker.says(ready=pb.Ready(slot=0))
        await first.coordinator.ended
        second = Run(tmp_path / "second", task="good", episodes=1)
        told: list[tuple[str, int]] = []

        def assignment(benchmark: str, slots: int) -> pb.Assignment:
            told.append((benchmark, slots))
            return pb.Assignment(benchmark=benchmark, video_fps=3)

        second.coordinator.take_over(first.coordinator, assignment)
        assert told == [("toy", 2)]
        kinds = [message.WhichOneof("message") for message in worker.inbox]
        assert kinds == ["lease", "assignment", "lease", "lease"], "what it is for comes before what to do"
        tasks = {lease.slot: lease.task for lease in worker.leases[1:]}
        assert tasks == {0: "short", 1: "long"}, "a slot is offered the task of its simulator first"
        worker.run = second
        for lease in worker.leases[1:]:
            worker.finishes(lease)
        await second.coordinator.ended
        assert len(first.journal.rows()) == 1
        assert len(second.journal.rows()) == 2
        for maker in second.journal.makers().values():
            assert second.journal.meta(f"{NOTE}{maker.programs[BENCHMARK]}"), (
                "what they play is told once, by who plays it"
            )

    asyncio.run(asyncio.wait_for(test(), 60))


def test_nothing_of_an_abandoned_run_changes_anything(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        run.coordinator.abandon()
        worker.finishes(lease)
        worker.leaves()
        assert run.journal.rows() == []
        assert events(run) == []

    in_run(test)


# ------------------------------------------------------------------------------------ a policy server that goes down

CRASH = ServerEnd("crashed", "ended with exit code 9")


def test_while_the_policy_server_is_down_nothing_is_lent(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        assert not run.coordinator.policy_ended(ServerEnd("killed", "was ended by SIGKILL"))
        assert worker.ready() is None
        run.coordinator.policy_ready()
        assert len(worker.leases) == 1

    in_run(test)


def test_who_takes_the_server_down_is_found_and_recorded_and_nobody_else_charged(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        run.coordinator.policy.restart = lambda *_, **__: False
        worker = Hand(run, slots=2)
        first, second = worker.takes(0), worker.takes(1)
        # One slot has told before the server's keeper, the other tells after it.
        worker.says(lost=pb.Lost(lease=first.lease, reason="it went away.", policy_gone=True))
        assert not run.coordinator.policy_ended(CRASH)
        worker.says(lost=pb.Lost(lease=second.lease, reason="it went away.", policy_gone=True))
        assert worker.ready(0) is None
        assert worker.ready(1) is None
        run.coordinator.policy_ready()
        alone = worker.leases[-1]
        assert (len(worker.leases), alone.index) == (3, 0), "the other slot waits"
        assert run.coordinator.policy_ended(CRASH)
        (row,) = run.journal.rows()
        assert (row.id, row.outcome, row.error_kind, row.attempts) == (FIRST, "error", "policy", 1)
        assert "ended with exit code 9 each time this episode was played, the last time by itself" in row.error
        worker.says(lost=pb.Lost(lease=alone.lease, reason="it went away.", policy_gone=True))
        assert len(run.journal.rows()) == 1
        run.coordinator.policy_ready()
        worker.finishes(worker.leases[-1])
        await run.coordinator.ended
        assert [(r.outcome, r.attempts) for r in run.journal.rows()] == [("error", 1), ("success", 1)]

    in_run(test)


def test_a_server_that_does_not_answer_is_killed_once_and_old_news_kill_no_new_one(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        reasons: list[str] = []
        run.coordinator.policy.restart = lambda reason, **_: not reasons.append(reason)
        worker = Hand(run, slots=2)
        first, second = worker.takes(0), worker.takes(1)
        worker.says(lost=pb.Lost(lease=first.lease, reason="no answer.", policy_unanswered=True))
        assert reasons == ["did not answer within 60 s and was killed"]
        assert worker.ready(0) is None, "there is nobody to ask"
        run.coordinator.policy_ended(ServerEnd("hung", reasons[0]))
        run.coordinator.policy_ready()
        worker.says(lost=pb.Lost(lease=second.lease, reason="no answer.", policy_unanswered=True))
        assert len(reasons) == 1

    in_run(test)


def test_nothing_is_lent_while_it_is_in_doubt_whether_the_server_is_there(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        run.coordinator.policy.restart = lambda *_, **__: False
        run.coordinator.policy.session_broke = lambda: True
        worker = Hand(run)
        lease = worker.takes()
        worker.says(lost=pb.Lost(lease=lease.lease, reason="it went away.", policy_gone=True))
        assert worker.ready() is None
        run.coordinator.policy_ready()
        assert len(worker.leases) == 2

    in_run(test)


def test_a_server_that_goes_down_whatever_is_played_ends_the_run(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        worker.takes()
        run.coordinator.policy_ended(CRASH)
        with pytest.raises(RunStopped, match="ended with exit code 9, again and again, whatever is played"):
            await run.coordinator.ended

    in_run(test, rules=RetryRules(policy_server_restarts=0))


def test_a_worker_that_says_that_the_policy_is_another_one_is_asked_about_and_gets_nothing_meanwhile(
    in_run: Callable[..., None],
) -> None:
    async def test(run: Run) -> None:
        reports: list[tuple[str, str]] = []
        run.coordinator.policy_reports.on_report = lambda worker, reason: reports.append((worker, reason))
        liar, other = Hand(run, "liar"), Hand(run, "other")
        lease = liar.takes()
        liar.says(lost=pb.Lost(lease=lease.lease, reason="it is another one.", policy_changed=True))
        assert reports == [("liar", "it is another one.")]
        assert liar.ready() is None
        again = other.takes()
        assert (again.task, again.index) == (lease.task, lease.index), "the episode is not the worse for it"
        run.coordinator.workers.send_away("liar", "it is not so")
        assert liar.inbox[-1].WhichOneof("message") == "stop"
        assert run.journal.events() == []

    in_run(test)


def test_workers_that_stay_say_what_they_ran_in_the_next_run_too(tmp_path: Path) -> None:
    async def work() -> None:
        first, second = Run(tmp_path / "one", episodes=1), Run(tmp_path / "two", episodes=1)
        worker = Hand(first)
        worker.finishes(worker.takes())
        worker.says(ready=pb.Ready(slot=0))
        first.coordinator.workers.machines["host"] = {"gpu": "one"}
        second.coordinator.take_over(first.coordinator, lambda benchmark, slots: pb.Assignment(benchmark=benchmark))
        assert second.coordinator.workers.machines["host"] == {"gpu": "one"}
        worker.run = second
        worker.finishes(worker.leases[-1])
        for run in (first, second):
            (maker,) = run.journal.makers().values()
            assert run.journal.meta(f"program:{maker.programs['benchmark']}") is not None

    asyncio.run(asyncio.wait_for(work(), 60))
