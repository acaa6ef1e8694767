"""A worker that was let in and means harm: it can spoil what it has on loan, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from coordinated import Hand, Run

from sparring.orchestrator.coordination import dispatch, program_check, workers
from sparring.orchestrator.coordination.bounds import (
    MAX_BENCHMARKS,
    MAX_METRICS,
    MAX_NAME,
    MAX_SLOTS,
    MAX_VERSIONS,
    MAX_WARNINGS,
    OutOfBounds,
)
from sparring.orchestrator.coordination.program_check import ChangedProgram, ProgramCheck
from sparring.orchestrator.results.journal import JournalError
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.limits import MAX_FACT
from sparring.protos.record import MAX_SENTENCE

Test = Callable[[Run], Awaitable[None]]


@pytest.fixture
def in_run(tmp_path: Path) -> Callable[..., None]:
    """Runs a test in an event loop, with a coordinator."""

    def run(test: Test, **settings: Any) -> None:
        async def work() -> None:
            await test(Run(tmp_path / "run", **settings))

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def unreachable(worker: Hand, lease: pb.Lease) -> None:
    worker.says(lost=pb.Lost(lease=lease.lease, reason="no policy server answered.", policy_unreachable=True))


def stops(worker: Hand) -> int:
    return sum(message.WhichOneof("message") == "stop" for message in worker.inbox)


def test_a_slot_that_says_a_thousand_times_that_it_is_free_gets_one_lease(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        hostile, honest = Hand(run, "hostile", slots=2), Hand(run, "honest")
        for _ in range(1000):
            hostile.says(ready=pb.Ready(slot=1))
        assert [lease.slot for lease in hostile.leases] == [1]
        assert honest.takes()
        hostile.finishes(hostile.leases[0])
        assert hostile.ready(1) is not None, "when that one has ended it may have another"

    in_run(test, episodes=5)


def test_so_it_is_between_two_runs(tmp_path: Path) -> None:
    async def test() -> None:
        first = Run(tmp_path / "first", episodes=1)
        worker = Hand(first, slots=1)
        worker.finishes(worker.takes())
        for _ in range(1000):
            worker.says(ready=pb.Ready(slot=0))
        second = Run(tmp_path / "second", episodes=9)
        second.coordinator.take_over(first.coordinator, lambda benchmark, slots: pb.Assignment(benchmark=benchmark))
        assert len(worker.leases) == 2

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"ready": pb.Ready(slot=2)}, "it speaks of slot 2, and has 2"),
        ({"heartbeat": pb.Heartbeat(slots=[pb.SlotActivity(slot=9)])}, "it speaks of slot 9"),
        ({"heartbeat": pb.Heartbeat(slots=[pb.SlotActivity()] * 3)}, "more slots than its 2"),
        ({"heartbeat": pb.Heartbeat(slots=[pb.SlotActivity(task="x" * 999)])}, "a name of 999 characters"),
        ({"result": pb.Result(metrics={f"m{k}": 1.0 for k in range(MAX_METRICS + 1)})}, "1025 metrics"),
        ({"result": pb.Result(metrics={"m" * (MAX_NAME + 1): 1.0})}, "a name of 201 characters"),
        ({"result": pb.Result(metrics={"\x1b[2J": 1.0})}, "characters that cannot be shown"),
    ],
)
def test_what_no_worker_may_say_ends_its_stream_and_not_the_run(
    in_run: Callable[..., None], message: dict[str, Any], sentence: str
) -> None:
    async def test(run: Run) -> None:
        hostile = Hand(run, slots=2)
        with pytest.raises(OutOfBounds, match=sentence):
            hostile.says(**message)
        assert not run.coordinator.ended.done()

    in_run(test)


@pytest.mark.parametrize(
    ("register", "sentence"),
    [
        ({"slots": MAX_SLOTS + 1}, "it has 1025 slots; 1024 are the most"),
        ({"worker": "w" * (MAX_NAME + 1)}, "a name of 201 characters"),
        ({"worker": "\x1b[31mred"}, "cannot be shown"),
        ({"host": "h" * 1000}, "a name of 1000 characters"),
        ({"benchmarks": ["b"] * (MAX_BENCHMARKS + 1)}, "more than 256 benchmarks"),
        ({"versions": {f"p{k}": "1" for k in range(MAX_VERSIONS + 1)}}, "more than 1024 packages"),
        ({"versions": {"p": "1" * 1000}}, "a name of 1000 characters"),
        ({"machine": {"gpu": "g" * (MAX_FACT + 1)}}, "a name of 1001 characters"),
        ({"files": {"f" * (MAX_FACT + 1): "0"}}, "a name of 1001 characters"),
    ],
)
def test_who_says_too_much_of_itself_is_not_taken_in(
    in_run: Callable[..., None], register: dict[str, Any], sentence: str
) -> None:
    async def test(run: Run) -> None:
        with pytest.raises(OutOfBounds, match=sentence):
            run.coordinator.join(pb.Register(**register), pb.Assignment(benchmark="toy", slots=1), lambda _: None)
        assert run.watcher.workers == []

    in_run(test)


def test_up_to_its_bounds_a_worker_may_say_everything(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        name = "w" * MAX_NAME
        register = pb.Register(
            worker=name,
            slots=MAX_SLOTS,
            host=name,
            benchmarks=[name] * MAX_BENCHMARKS,
            versions={f"{k}".rjust(MAX_NAME): name for k in range(MAX_VERSIONS)},
            machine={"gpu": "g" * MAX_FACT},
            files={"f" * MAX_FACT: "0"},
        )
        joined = run.coordinator.join(register, pb.Assignment(benchmark="toy", slots=MAX_SLOTS), lambda _: None)
        assert joined == name
        slots = [pb.SlotActivity(slot=slot, task=name) for slot in range(MAX_SLOTS)]
        metrics = {f"{k}".rjust(MAX_NAME): 1.0 for k in range(MAX_METRICS)}
        for message in (
            pb.WorkerMessage(ready=pb.Ready(slot=MAX_SLOTS - 1)),
            pb.WorkerMessage(heartbeat=pb.Heartbeat(slots=slots)),
            pb.WorkerMessage(result=pb.Result(lease=1, metrics=metrics)),
        ):
            run.coordinator.handle(name, message)

    in_run(test)


def test_the_number_of_workers_has_an_end(in_run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_WORKERS", 2)

    async def test(run: Run) -> None:
        first, _ = Hand(run), Hand(run)
        with pytest.raises(OutOfBounds, match="2 workers are connected, and no more"):
            Hand(run)
        first.leaves()
        Hand(run)

    in_run(test)


def test_long_texts_are_cut(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        worker.finishes(worker.takes(), pb.OUTCOME_ERROR, error="x" * 10**6)
        assert len(run.journal.rows()[0].error) == MAX_SENTENCE

    in_run(test, retries=0)


def test_warnings_that_a_worker_makes_up_have_an_end(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        worker.finishes(worker.takes(), warnings=["the same", "the same", "x" * 10**6, *map(str, range(1000))])
        told = [event.message for event in run.journal.events() if event.kind == "warning"]
        assert told[0] == "the same"
        assert told.count("the same") == 1
        assert len(told) == MAX_WARNINGS - 1
        assert max(map(len, told)) <= MAX_SENTENCE

    in_run(test)


def test_films_that_nobody_asked_for_are_not_kept(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        for what in (pb.ATTACHMENT_VIDEO, pb.ATTACHMENT_RECORDING):
            for _ in range(5):
                worker.says(piece=pb.Piece(lease=lease.lease, what=what, content=bytes(2**20)))
        assert sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file()) < 2**20
        worker.finishes(lease, pb.OUTCOME_SUCCESS)
        assert [row.video for row in run.journal.rows()] == [""]

    in_run(test)


def test_films_of_others_episodes_are_not_taken(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        honest, hostile = Hand(run, "honest"), Hand(run, "hostile")
        lease = honest.takes()
        hostile.says(piece=pb.Piece(lease=lease.lease, what=pb.ATTACHMENT_VIDEO, content=b"a forged film"))
        honest.says(piece=pb.Piece(lease=lease.lease, what=pb.ATTACHMENT_VIDEO, content=b"a film"))
        honest.finishes(lease, video_bytes=6)
        assert (run.folder / "videos" / "short_0000_success.mp4").read_bytes() == b"a film"

    in_run(test, video="all", video_live=True)


def test_what_it_says_of_others_leases_does_not_fill_the_log(
    in_run: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_MOST_TOLD", 5)

    async def test(run: Run) -> None:
        honest, hostile = Hand(run, "honest"), Hand(run, "hostile")
        lease = honest.takes()
        for _ in range(4):
            hostile.finishes(lease)
        assert caplog.text.count("for a lease that it does not hold changes nothing\n") == 4
        for _ in range(1000):
            hostile.finishes(lease)
        assert caplog.text.count("hostile") == 5
        assert caplog.text.count("; more messages of that kind are not told") == 1
        honest.finishes(lease)
        assert [row.worker for row in run.journal.rows()] == ["honest"]

    in_run(test)


def test_what_it_says_of_episodes_that_it_does_not_play_is_not_shown(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        hostile = Hand(run)
        hostile.takes()
        before = list(run.watcher.activities)
        hostile.says(heartbeat=pb.Heartbeat(slots=[pb.SlotActivity(slot=0, task="long", index=7, steps=9)]))
        assert run.watcher.activities == before

    in_run(test)


def test_one_that_cannot_reach_the_policy_is_sent_away_while_others_play(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        honest, hostile = Hand(run, "honest"), Hand(run, "hostile", slots=2)
        lease = honest.takes()
        for _ in range(2):
            unreachable(hostile, hostile.takes())
        assert not run.coordinator.ended.done()
        assert (stops(hostile), stops(honest)) == (1, 0)
        assert hostile.ready() is None, "it gets nothing more"
        honest.finishes(lease)
        while (more := honest.ready()) is not None:
            honest.finishes(more)
        await run.coordinator.ended
        assert {row.outcome for row in run.journal.rows()} == {"success"}

    in_run(test, episodes=3)


def test_when_all_who_play_cannot_reach_the_policy_the_run_is_given_up(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        one, other = Hand(run, "one", slots=2), Hand(run, "other")
        leases = one.takes(0), one.takes(1), other.takes()
        for worker, lease in zip((one, one, other), leases, strict=True):
            assert not run.coordinator.ended.done()
            unreachable(worker, lease)
        with pytest.raises(RunStopped, match="no policy server answered"):
            await run.coordinator.ended

    in_run(test, episodes=3)


def test_that_a_policy_of_ours_is_away_is_no_news_and_waited_for(in_run: Callable[..., None]) -> None:
    """It may be a job that waits for its turn, for longer than a slot does."""

    async def test(run: Run) -> None:
        run.coordinator.policy.restart = lambda *_, **__: False
        worker = Hand(run, "one", slots=3)
        leases = [worker.takes(slot) for slot in range(3)]
        run.coordinator.policy_ended(ServerEnd("killed", "lost its node"))
        unreachable(worker, leases[0])
        unreachable(worker, leases[1])
        run.coordinator.policy_ready()
        unreachable(worker, leases[2])  # it had tried before the policy was back
        assert not run.coordinator.ended.done()
        assert stops(worker) == 0
        for slot in (0, 1):
            unreachable(worker, worker.takes(slot))
        with pytest.raises(RunStopped, match="no policy server answered"):
            await run.coordinator.ended

    in_run(test, episodes=3)


def test_the_refusal_of_one_does_not_end_what_others_play(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        honest, hostile = Hand(run, "honest"), Hand(run, "hostile")
        honest.finishes(honest.takes())
        for name in ("hostile", "hostile again"):
            hostile.says(refused=pb.Refused(lease=hostile.takes().lease, reason="it wants a camera."))
            assert not run.coordinator.ended.done()
            assert stops(hostile) == 1
            hostile.leaves()
            hostile = Hand(run, name)
        hostile.leaves()
        while (lease := honest.ready()) is not None:
            honest.finishes(lease)
        await run.coordinator.ended
        assert [row.outcome for row in run.journal.rows()] == ["success"] * 3

    in_run(test, episodes=3)


def test_when_two_refuse_and_nobody_has_played_the_run_ends(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        one, other = Hand(run, "one"), Hand(run, "other")
        leases = one.takes(), other.takes()
        one.says(refused=pb.Refused(lease=leases[0].lease, reason="it wants a camera."))
        assert not run.coordinator.ended.done()
        other.says(refused=pb.Refused(lease=leases[1].lease, reason="it wants a camera."))
        with pytest.raises(UsageError, match="it wants a camera"):
            await run.coordinator.ended

    in_run(test, episodes=3)


def test_workers_from_elsewhere_cannot_end_a_run_that_starts_its_own(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        for name in ("liar", "another"):  # nobody else is there yet, and two of one word are two liars
            liar = Hand(run, name, launched=False)
            liar.says(refused=pb.Refused(lease=liar.takes().lease, reason="it wants a camera."))
            assert stops(liar) == 1
            assert liar.ready() is None, "it gets nothing more"
        assert not run.coordinator.ended.done()
        honest = Hand(run, "honest")
        while (lease := honest.ready()) is not None:
            honest.finishes(lease)
        await run.coordinator.ended
        assert [row.outcome for row in run.journal.rows()] == ["success"] * 3

    in_run(test, episodes=3)


def test_a_worker_that_the_run_has_started_is_believed_at_once(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        stranger, own = Hand(run, "stranger", launched=False), Hand(run, "own")
        stranger.takes()
        own.says(refused=pb.Refused(lease=own.takes().lease, reason="it wants a camera."))
        with pytest.raises(UsageError, match="it wants a camera"):
            await run.coordinator.ended

    in_run(test, episodes=3)


def test_where_all_come_from_elsewhere_the_only_one_is_believed(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        only = Hand(run, launched=False)
        only.says(refused=pb.Refused(lease=only.takes().lease, reason="it wants a camera."))
        with pytest.raises(UsageError, match="it wants a camera"):
            await run.coordinator.ended

    in_run(test, launcher="none")


def test_that_the_policy_is_gone_is_believed_of_those_that_the_run_has_started(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        liar = Hand(run, "liar", slots=2, launched=False)
        for slot in range(2):
            unreachable(liar, liar.takes(slot))
        assert not run.coordinator.ended.done()
        assert stops(liar) == 1
        own = Hand(run, "own", slots=2)
        for slot in range(2):
            unreachable(own, own.takes(slot))
        with pytest.raises(RunStopped, match="no policy server answered"):
            await run.coordinator.ended

    in_run(test, episodes=4)


def test_so_is_that_it_does_not_answer(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        restarts: list[str] = []
        run.coordinator.policy.restart = lambda why, **_: bool(restarts.append(why))
        for launched in (False, True):
            worker = Hand(run, launched=launched)
            worker.says(lost=pb.Lost(lease=worker.takes().lease, reason="it hangs.", policy_unanswered=True))
            assert len(restarts) == launched

    in_run(test, episodes=3)


def test_errors_of_workers_from_elsewhere_are_no_reason_to_give_a_run_up(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        for name in ("liar", "another"):
            liar = Hand(run, name, launched=False)
            for _ in range(2):
                liar.finishes(liar.takes(), pb.OUTCOME_ERROR, error="boom.", error_kind=pb.ERROR_KIND_SIMULATOR)
                assert not run.coordinator.ended.done()
            assert stops(liar) == 1, "nothing else comes of it"
        own = Hand(run, "own")
        for _ in range(2):
            own.finishes(own.takes(), pb.OUTCOME_ERROR, error="boom.", error_kind=pb.ERROR_KIND_SIMULATOR)
        with pytest.raises(RunStopped, match="all 2 attempts so far, of 2 episodes, ended in the same error"):
            await run.coordinator.ended

    in_run(test, episodes=9, max_errors=2, retries=0)


@pytest.mark.parametrize("kind", ["policy_full", "policy_changed"])
def test_what_workers_from_elsewhere_say_of_the_policy_sends_them_away(in_run: Callable[..., None], kind: str) -> None:
    async def test(run: Run) -> None:
        reports: list[str] = []
        run.coordinator.policy_reports.on_report = lambda worker, reason: reports.append(worker)
        for name in ("liar", "another"):
            liar = Hand(run, name, launched=False)
            liar.says(lost=pb.Lost(lease=liar.takes().lease, reason="so it says.", **{kind: True}))
            assert stops(liar) == 1
            assert liar.ready() is None, "it gets nothing more"
            await asyncio.sleep(0.02)  # longer than a slot may wait for a place
        assert not run.coordinator.ended.done()
        assert reports == []
        own = Hand(run, "own")
        own.says(lost=pb.Lost(lease=own.takes().lease, reason="so it is.", **{kind: True}))
        assert reports == (["own"] if kind == "policy_changed" else [])
        assert not run.coordinator.ended.done(), "no slot of the run's own has waited for long"

    in_run(test, episodes=3, policy_timeout=0.01)


def test_steps_that_it_makes_up_do_not_say_that_the_policy_answers(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        liar, own = Hand(run, "liar", slots=2, launched=False), Hand(run, "own")
        lease = liar.takes()
        own.says(lost=pb.Lost(lease=own.takes().lease, reason="it is full.", policy_full=True))
        await asyncio.sleep(0.02)
        made_up = [pb.SlotActivity(slot=0, task="short", index=8, steps=9), pb.SlotActivity(slot=1, task="x", steps=9)]
        liar.says(heartbeat=pb.Heartbeat(slots=made_up))
        assert run.coordinator.policy.full("it is full.") is not None
        liar.says(heartbeat=pb.Heartbeat(slots=[pb.SlotActivity(slot=0, task="short", index=lease.index, steps=1)]))
        assert run.coordinator.policy.full("it is full.") is None, "what it has on loan it may speak of"

    in_run(test, episodes=3, policy_timeout=0.01)


class Changed(ProgramCheck):
    """Says of every benchmark that it is another one: what a check finds is tested elsewhere."""

    failure: SparringError = ChangedProgram("it is another one.")

    def benchmark(
        self, name: str, files: Mapping[str, str], versions: Mapping[str, str], *, counted: bool = False
    ) -> str:
        raise self.failure


@pytest.mark.parametrize(
    ("launched", "launcher", "stopped"), [(False, "process", False), (True, "process", True), (False, "none", True)]
)
def test_the_other_benchmark_of_a_worker_from_elsewhere_does_not_end_a_run_that_starts_its_own(
    in_run: Callable[..., None], launched: bool, launcher: str, stopped: bool
) -> None:
    async def test(run: Run) -> None:
        run.coordinator._programs.__class__ = Changed
        with pytest.raises(ChangedProgram):
            Hand(run, launched=launched)
        assert run.coordinator.ended.done() == stopped
        if stopped:
            assert isinstance(run.coordinator.ended.exception(), ChangedProgram)

    in_run(test, launcher=launcher)


def test_a_journal_that_cannot_be_written_when_somebody_joins_ends_the_run(in_run: Callable[..., None]) -> None:
    class Full(Changed):
        failure = JournalError("the disk is full.")

    async def test(run: Run) -> None:
        run.coordinator._programs.__class__ = Full
        with pytest.raises(JournalError):
            Hand(run, launched=False)
        with pytest.raises(RunStopped, match="the disk is full"):
            await run.coordinator.ended

    in_run(test)


def test_programs_and_machines_that_it_makes_up_have_an_end(
    in_run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_check, "_MOST", 3)
    monkeypatch.setattr(workers, "MAX_MACHINES", 3)

    async def test(run: Run) -> None:
        def join(number: int, *, launched: bool = False) -> None:
            told = pb.Register(worker="w", host=f"h{number}", machine={"cpu": "c"}, files={"toy:f.py": f"{number}"})
            run.coordinator.join(told, pb.Assignment(benchmark="toy", slots=1), lambda _: None, launched=launched)

        for number in range(3):
            join(number)
        with pytest.raises(OutOfBounds, match="workers have come with 3 different programs"):
            join(3)
        join(2)
        join(4, launched=True)
        assert list(run.coordinator.workers.machines) == ["h0", "h1", "h2", "h4"]

    in_run(test, episodes=3)


def test_of_a_thousand_differences_a_sentence_has_some(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        with pytest.raises(ChangedProgram) as changed:
            run.coordinator._programs._changed("the benchmark", [f"file {number}" for number in range(1000)], 7)
        assert changed.value.sentence.count("\n  ") == 21
        assert "  file 19\n  and 980 more\n" in changed.value.sentence

    in_run(test)
