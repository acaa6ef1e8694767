"""Who gets which episode."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.scheduler import Lease, Scheduler, SlotId
from sparring.protos.record import EpisodeRecord

SUCCESS = EpisodeRecord(outcome="success")
ERROR = EpisodeRecord.failed("simulator", "boom")
A, B, C = (SlotId("toy", "w", n) for n in range(3))


def plan(episodes: int, *names: str) -> Plan:
    return Plan({"toy": [Task(name, name, "g") for name in names]}, episodes, seed=100)


def take(scheduler: Scheduler, slot: SlotId) -> Lease:
    lease = scheduler.lease(slot)
    assert lease is not None
    return lease


def test_a_slot_stays_with_its_task() -> None:
    scheduler = Scheduler(plan(3, "x", "y"))
    first, second = take(scheduler, A), take(scheduler, B)
    assert {first.episode.task, second.episode.task} == {"x", "y"}
    scheduler.finish(first.number, SUCCESS)
    assert take(scheduler, A).episode == EpisodeId("toy", first.episode.task, 1)


def test_a_slot_between_two_episodes_keeps_its_task_to_itself() -> None:
    scheduler = Scheduler(plan(3, "x", "y"))
    first, second = take(scheduler, A), take(scheduler, B)
    scheduler.finish(first.number, SUCCESS)
    scheduler.finish(second.number, SUCCESS)
    assert take(scheduler, B).episode.task == second.episode.task


def test_a_slot_whose_task_is_done_opens_the_one_with_most_to_do_then_helps() -> None:
    scheduler = Scheduler(plan(2, "x", "y", "z"), done=[EpisodeId("toy", "x", 1), EpisodeId("toy", "y", 0)])
    lease = take(scheduler, A)
    assert lease.episode.task == "z"
    assert take(scheduler, B).episode.task in ("x", "y")
    assert take(scheduler, C).episode.task in ("x", "y")
    assert take(scheduler, SlotId("toy", "v", 0)).episode == EpisodeId("toy", "z", 1), "nothing unopened is left: help"
    assert scheduler.lease(SlotId("toy", "v", 1)) is None


def test_no_slot_idles_while_episodes_are_left() -> None:
    rng = random.Random(1)
    scheduler = Scheduler(plan(7, *"abcdef"))
    slots = [SlotId("toy", "w", n) for n in range(5)]
    running: dict[SlotId, Lease] = {slot: take(scheduler, slot) for slot in slots}
    recorded: Counter[EpisodeId] = Counter()
    while running:
        slot = rng.choice(list(running))
        lease = running.pop(slot)
        assert scheduler.finish(lease.number, SUCCESS) == "record"
        recorded[lease.episode] += 1
        nxt = scheduler.lease(slot)
        assert nxt is not None or scheduler.pending("toy") == 0
        if nxt:
            running[slot] = nxt
    assert len(recorded) == 42
    assert set(recorded.values()) == {1}
    assert scheduler.unfinished == 0


def test_max_parallel_tasks_bounds_the_open_tasks() -> None:
    scheduler = Scheduler(plan(2, "x", "y"), max_parallel_tasks=1)
    first, second = take(scheduler, A), take(scheduler, B)
    assert first.episode.task == second.episode.task
    assert scheduler.lease(C) is None, "the other task may not be opened"
    scheduler.finish(first.number, SUCCESS)
    assert scheduler.lease(A) is None
    scheduler.finish(second.number, SUCCESS)
    (other,) = {"x", "y"} - {first.episode.task}
    assert [take(scheduler, slot).episode.task for slot in (A, B)] == [other, other]


def test_errors_are_tried_again_so_often_and_no_more() -> None:
    scheduler = Scheduler(plan(1, "x"), rules=RetryRules(retries=2))
    verdicts = []
    for _ in range(3):
        lease = take(scheduler, A)
        verdicts.append(scheduler.finish(lease.number, ERROR))
    assert verdicts == ["retry", "retry", "record"]
    assert scheduler.failed_attempts(lease.episode) == 2, "beside the last, which is the episode's end"
    assert scheduler.unfinished == 0


def test_a_loss_is_not_an_attempt() -> None:
    scheduler = Scheduler(plan(1, "x"), rules=RetryRules(retries=0))
    lost = take(scheduler, A)
    assert scheduler.lose(lost.number) == "retry"
    again = take(scheduler, B)
    assert again.episode == lost.episode
    assert scheduler.finish(again.number, SUCCESS) == "record"
    assert scheduler.failed_attempts(again.episode) == 0


def test_a_lease_goes_on_until_its_end_is_written_down() -> None:
    scheduler = Scheduler(plan(1, "x"), rules=RetryRules(retries=0, losses=1))
    lease = take(scheduler, A)
    assert scheduler.judge(lease.number, SUCCESS) == "record"
    assert scheduler.judge_loss(lease.number) == "record"
    assert (scheduler.holder(lease.number), scheduler.unfinished) == (lease, 1), "judging has ended it"
    scheduler.finish(lease.number, SUCCESS)
    assert (scheduler.holder(lease.number), scheduler.unfinished) == (None, 0)
    assert scheduler.judge(lease.number, SUCCESS) == "stale"


def test_attempts_of_earlier_executions_are_counted_but_not_held_against_an_episode() -> None:
    episode = EpisodeId("toy", "x", 0)
    scheduler = Scheduler(plan(1, "x"), rules=RetryRules(retries=1), failed_before={episode: 4})
    assert scheduler.finish(take(scheduler, A).number, ERROR) == "retry"
    assert scheduler.failed_attempts(episode) == 5


def test_a_late_result_is_stale() -> None:
    scheduler = Scheduler(plan(1, "x"))
    lost = take(scheduler, A)
    scheduler.lose(lost.number)
    again = take(scheduler, B)
    assert scheduler.finish(lost.number, SUCCESS) == "stale"
    assert scheduler.lose(lost.number) == "stale"
    assert scheduler.finish(again.number, SUCCESS) == "record"
    assert scheduler.finish(again.number, SUCCESS) == "stale"


def test_an_error_of_a_kind_may_be_tried_again_less_often_than_others() -> None:
    scheduler = Scheduler(plan(2, "x"), rules=RetryRules(retries=2, retries_of={"policy": 0}))
    assert scheduler.finish(take(scheduler, A).number, EpisodeRecord.failed("policy", "boom")) == "record"
    assert scheduler.finish(take(scheduler, A).number, ERROR) == "retry"


def test_what_always_kills_its_worker_is_given_up() -> None:
    scheduler = Scheduler(plan(1, "x"), rules=RetryRules(losses=4))
    verdicts = [scheduler.lose(take(scheduler, A).number) for _ in range(4)]
    assert verdicts == ["retry", "retry", "retry", "record"]
    assert scheduler.unfinished == 0


def test_the_leases_of_a_worker_can_be_found_and_forgotten() -> None:
    scheduler = Scheduler(plan(2, "x", "y"))
    lease = take(scheduler, A)
    take(scheduler, SlotId("toy", "other", 0))
    assert scheduler.leases_of("w") == [lease]
    scheduler.lose(lease.number)
    scheduler.forget_worker("w")
    assert take(scheduler, SlotId("toy", "new", 0)).episode == lease.episode, (
        "a task that lost its slot counts as unopened"
    )


def test_done_episodes_are_not_run() -> None:
    done = [EpisodeId("toy", "x", n) for n in range(3)]
    assert Scheduler(plan(3, "x"), done=done).lease(A) is None


@pytest.mark.parametrize("index", [0, 7])
def test_seeds_follow_from_the_identity_alone(index: int) -> None:
    assert plan(9, "x", "y").seed_of(EpisodeId("toy", "y", index)) == 100 + index


def test_a_slot_gets_episodes_of_its_own_benchmark_only() -> None:
    both = Plan({"toy": [Task("x", "x", "g")], "other": [Task("x", "x", "g"), Task("y", "y", "g")]}, 2, seed=0)
    scheduler = Scheduler(both)
    assert (scheduler.pending("toy"), scheduler.pending("other")) == (2, 4)
    other = SlotId("other", "v", 0)
    leases = [take(scheduler, slot) for slot in (A, other, A, other, other, other)]
    assert [lease.episode.benchmark for lease in leases] == ["toy", "other", "toy", "other", "other", "other"]
    assert len({lease.episode for lease in leases}) == 6, "two tasks of one name were taken for one"
    assert scheduler.lease(A) is None


def test_an_episode_that_was_not_begun_goes_back_and_counts_as_nothing() -> None:
    scheduler = Scheduler(plan(1, "x"), rules=RetryRules(losses=1))
    for _ in range(5):
        lease = take(scheduler, A)
        scheduler.give_back(lease.number)
        assert scheduler.lent_to(A) is None
    lease = take(scheduler, B)
    assert scheduler.judge_loss(lease.number) == "record", "which is another matter"
    assert scheduler.finish(lease.number, SUCCESS) == "record"
    assert scheduler.unfinished == 0
