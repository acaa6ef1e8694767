"""Runs that may stop early: round by round, whoever is done first, and honestly told."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from coordinated import Hand, Run
from rows import ROW
from support import Sparring, read_csv

from sparring import Evaluator, Results
from sparring.env_worker.benchmark import Task
from sparring.orchestrator.comparison.comparison import compare
from sparring.orchestrator.comparison.stopping import PreciseEnough
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.results.reading import read_course
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.early_stopping import EarlyStopping, early_stopping
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.run.scheduler import Scheduler, SlotId
from sparring.orchestrator.settings import read_settings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError

PLAN = Plan({"toy": [Task("a", "", "a"), Task("b", "", "b"), Task("c", "", "c")]}, 40, 5)
BASE = {"benchmark": "toy", "task": "good", "policy": "zero", "episodes": 4}


def rows(plan: Plan = PLAN, seed: int = 1) -> list[EpisodeRow]:
    chance = random.Random(seed)
    return [
        replace(
            ROW,
            task=episode.task,
            index=episode.index,
            seed=plan.seed_of(episode),
            outcome=chance.choices(["success", "failure", "error"], [6, 3, 1])[0],
        )
        for episode in plan.ids()
    ]


def stopped_after(recorded: list[EpisodeRow]) -> tuple[int | None, int]:
    """After how many rounds it stops, and after how many results that is known."""
    stopping = EarlyStopping(PLAN, [PreciseEnough(0.15, 0.05)], 0.05)
    for heard, row in enumerate(recorded, 1):
        if stopping.heard(row):
            return stopping.rounds, heard
    return None, len(recorded)


def test_the_stop_does_not_depend_on_who_is_done_first() -> None:
    in_order = sorted(rows(), key=lambda row: (row.index, row.task))
    stop, heard = stopped_after(in_order)
    assert stop is not None
    assert heard == 3 * stop, "of every task the same"
    for seed in range(20):
        shuffled = list(in_order)
        random.Random(seed).shuffle(shuffled)
        assert stopped_after(shuffled)[0] == stop
    assert stopped_after(rows())[0] == stop, "task by task, too"


def test_what_earlier_executions_left_counts_but_for_errors() -> None:
    recorded = rows()
    whole = EarlyStopping(PLAN, [PreciseEnough(0.15, 0.05)], 0.05, [row for row in recorded if row.outcome != "error"])
    assert whole.rounds is None, "errors are tried again, so that no round after the first of them is whole"
    for row in recorded:
        if row.outcome == "error":
            whole.heard(row)
    assert whole.rounds == stopped_after(recorded)[0]


def test_without_a_rule_nothing_stops_and_nothing_is_counted() -> None:
    stopping = EarlyStopping(PLAN)
    assert not any(stopping.heard(row) for row in rows())
    assert stopping.state() is None
    assert not stopping.may_stop
    assert stopping.plan is PLAN


def test_slots_play_round_by_round() -> None:
    scheduler = Scheduler(PLAN, by_rounds=True)
    slots = [SlotId("toy", "w", number) for number in range(2)]
    leases = [scheduler.lease(slot) for slot in slots]
    played = []
    for turn in range(60):
        lease = leases[turn % 2]
        assert lease is not None
        scheduler.finish(lease.number, ROW)
        played.append(lease.episode)
        leases[turn % 2] = scheduler.lease(slots[turn % 2])
    for number in range(20):
        assert {episode.index for episode in played[3 * number : 3 * number + 3]} == {number}
    moves = sum(one.task != other.task for one, other in zip(played[::2], played[2::2], strict=False))
    assert moves < 30, "a slot stays with its task where that is as good as another"


def test_later_rounds_are_taken_out_wherever_they_are() -> None:
    scheduler = Scheduler(PLAN, by_rounds=True)
    first, second, *_ = [scheduler.lease(SlotId("toy", "w", number)) for number in range(5)]
    assert first is not None
    assert second is not None
    ended, dropped = scheduler.cut(1, drain=False)
    assert len(dropped) == 3 * 40 - 5
    assert [(lease.episode.index, lease.episode.task) for lease in ended] == [(1, "a"), (1, "b")]
    assert scheduler.unfinished == 3
    assert scheduler.pending("toy") == 0
    scheduler.lose(first.number)
    assert scheduler.pending("toy") == 1, "of the rounds that stay an episode is still tried again"


def test_leases_of_later_rounds_may_come_to_their_end() -> None:
    scheduler = Scheduler(PLAN, by_rounds=True)
    leases = [scheduler.lease(SlotId("toy", "w", number)) for number in range(5)]
    ended, _ = scheduler.cut(1, drain=True)
    assert ended == []
    assert scheduler.unfinished == 5
    assert leases[4] is not None
    scheduler.lose(leases[4].number)
    assert scheduler.pending("toy") == 0, "they are not tried again"


class StoppingRun(Run):
    """A run that stops when its rate is known within 20 points on either side."""

    def __init__(self, folder: Path, *, drain: bool = False) -> None:
        super().__init__(folder, task="good", episodes=9)
        stopping = early_stopping(read_settings({**BASE, "episodes": 9, "until": "half-width=0.2"}), PLAN_OF_GOOD)
        self.stopping = stopping
        self.coordinator = Coordinator(
            PLAN_OF_GOOD,
            self.settings,
            self.journal,
            folder,
            self.watcher,
            RetryRules(),
            stopping=stopping,
            drain=drain,
        )


PLAN_OF_GOOD = make_plan(read_settings({**BASE, "episodes": 9}))


def play_until_it_stops(run: StoppingRun, hand: Hand) -> list[pb.Lease]:
    """Three slots, of which the first is always behind; returns what they have on loan at the end."""
    held = [hand.takes(slot) for slot in range(3)]
    for _ in range(40):
        for slot in (2, 1, 0):
            hand.finishes(held[slot])
            if run.stopping.rounds is not None:
                return held
            held[slot] = hand.takes(slot)
    raise AssertionError("it did not stop")


@pytest.mark.parametrize("drain", [False, True])
def test_a_run_ends_with_its_last_whole_round(tmp_path: Path, drain: bool) -> None:
    async def play() -> None:
        run = StoppingRun(tmp_path, drain=drain)
        hand = Hand(run, slots=3)
        held = play_until_it_stops(run, hand)
        rounds = run.stopping.rounds
        assert rounds is not None
        late = [lease for lease in held if lease.index >= rounds]
        assert late, "somebody was ahead"
        assert run.coordinator.ended.done() is not drain
        for lease in late:
            hand.finishes(lease, pb.OUTCOME_ERROR)
        assert run.coordinator.ended.done()
        assert hand.ready(0) is None, "and nobody begins anything"
        kept = run.stopping.kept(run.journal.rows())
        assert sorted((row.task, row.index) for row in kept) == sorted(
            (task, index) for task in ("short", "long") for index in range(rounds)
        )
        run.journal.close()

    asyncio.run(play())


PLAY = ("--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Forward", "--episodes", "40")
STOP = ("--until", "half-width=0.2")


def test_a_run_that_stopped_early_says_so_everywhere(usage: Sparring, tmp_path: Path) -> None:
    done = usage("run", *PLAY, "--policy-arg", "gain=0.8", *STOP, "--in-process", "--output", "out")
    assert done.returncode == 0, done.stderr
    results = Results.load(tmp_path / "out")
    stop = results.early_stop
    assert stop is not None
    assert stop.stopped
    assert stop.reason == "half-width"
    assert 4 < stop.rounds < 40
    assert results.plan.episodes == stop.rounds
    assert results.missing == 0
    assert {row.index for row in results.rows} == set(range(stop.rounds))
    sentence = f"stopped early, after {stop.rounds} of 40 rounds: the success rate is known within 20 points"
    flat = " ".join(done.stdout.split())
    assert sentence in flat
    assert stop.interval is not None
    assert (stop.interval[1] - stop.interval[0]) / 2 <= 0.2
    shown = " ".join(usage("show", "out").stdout.split())
    assert f"stopped early: {stop.rounds} of 40 rounds" in shown
    assert sentence in shown
    assert read_document(tmp_path / "out").episodes == 40, "what was planned"
    assert len(read_csv(tmp_path / "out")) == 2 * stop.rounds
    assert json.loads(usage("show", "out", "--json").stdout)["early_stop"]["rounds"] == stop.rounds
    assert usage("report", "out", "--format", "md", "--output", "-").stdout.count("stopped early") >= 1
    assert usage("verify", "out", "--in-process").returncode == 0

    again = usage("resume", "out")
    assert again.returncode == 0
    assert "reading" not in again.stderr
    assert sentence in " ".join(again.stdout.split())
    same = usage("run", *PLAY, "--policy-arg", "gain=0.8", *STOP, "--in-process", "--output", "out")
    assert sentence in " ".join(same.stdout.split())


def test_a_run_that_is_asked_for_more_goes_on_where_it_stopped(usage: Sparring, tmp_path: Path) -> None:
    play = ("run", *PLAY, "--policy-arg", "gain=0.8", "--in-process", "--output", "out")
    assert usage(*play, *STOP).returncode == 0
    before = Results.load(tmp_path / "out").rows
    assert usage(*play).returncode == 0
    after = Results.load(tmp_path / "out")
    assert len(after.rows) == 80
    assert after.early_stop is None
    whole = {row.id: row.seconds for row in after.rows}
    assert all(whole[row.id] == row.seconds for row in before), "they were not played again"
    # The rule would have stopped it long before: what was played beyond that is left out, and not lost.
    assert usage(*play, *STOP).returncode == 0
    assert len(Results.load(tmp_path / "out").rows) == len(before)
    assert usage(*play).returncode == 0
    assert {row.id: row.seconds for row in Results.load(tmp_path / "out").rows} == whole


def test_parallel_slots_stop_at_the_same_round_with_the_same_rows(warm: Evaluator) -> None:
    from toy_policies import Forward

    given = {"benchmark": "toy", "tasks": "good", "episodes": 40, "until": "half-width=0.2"}
    alone = warm.evaluate(Forward(gain=0.8), in_process=True, **given)
    beside = warm.evaluate(Forward(gain=0.8), slots=3, **given)
    assert alone.early_stop == beside.early_stop
    assert alone.early_stop is not None
    assert alone.early_stop.stopped

    def told(results: Results) -> list[tuple[object, ...]]:
        return [(row.id, row.seed, row.outcome, row.steps, row.reward_sum) for row in results.rows]

    assert told(alone) == told(beside)
    # The workers are as good as before: nobody is in the middle of something.
    again = warm.evaluate(Forward(gain=0.8), slots=3, benchmark="toy", tasks="good", episodes=3)
    assert len(again.rows) == 6


def test_parts_of_a_run_in_this_process_are_played_in_turns(usage: Sparring, tmp_path: Path) -> None:
    """One after the other, all episodes of the first would be played before a round is whole."""
    (tmp_path / "run.yaml").write_text(
        "policy: toy_policies:Forward\npolicy_arg: {gain: 0.8}\nepisodes: 40\nuntil: half-width=0.2\nin_process: true\n"
        "evaluations:\n  - {name: one, benchmark: toy, task: good}\n  - {name: two, benchmark: toy, task: short}\n"
    )
    done = usage("run", "--config", "run.yaml", "--output", "out")
    assert done.returncode == 0, done.stderr
    stop = Results.load(tmp_path / "out").early_stop
    assert stop is not None
    assert stop.stopped
    order = read_course(tmp_path / "out").order
    assert {episode.index for episode in order} == set(range(stop.rounds)), "nothing beyond its last round"
    assert [episode.benchmark for episode in order] == ["one", "one", "two"] * stop.rounds


@pytest.fixture
def before(usage: Sparring) -> None:
    done = usage("run", *PLAY, "--policy-arg", "gain=0.6", "--in-process", "--output", "before")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("before")
def test_a_difference_from_another_run_stops_it(usage: Sparring, tmp_path: Path) -> None:
    play = ("run", *PLAY, "--in-process", "--against", "before")
    done = usage(*play, "--policy-arg", "gain=1", "--output", "better")
    assert done.returncode == 0, done.stderr
    found = Results.load(tmp_path / "better").early_stop
    assert found is not None
    assert (found.reason, found.lost) == ("difference", 0)
    assert found.p_value is not None
    assert found.p_value <= 0.05
    assert f"stopped early, after {found.rounds} of 40 rounds: better than before" in " ".join(done.stdout.split())
    comparison = compare(Results.load(tmp_path / "before"), Results.load(tmp_path / "better"))
    assert comparison.rounds is not None
    assert comparison.rounds.p_value == pytest.approx(found.p_value)
    assert comparison.rounds.n == found.rounds
    said = " ".join(usage("compare", "before", "better").stdout.split())
    assert "stopped early: p and intervals of the table hold only if" in said
    assert comparison.is_decided, "by what has stopped it"

    done = usage(*play, "--policy-arg", "gain=0.6", "--futility", "--output", "same")
    assert done.returncode == 0, done.stderr
    same = Results.load(tmp_path / "same").early_stop
    assert same is not None
    assert same.stopped
    assert (same.reason, same.won, same.lost) == ("futility", 0, 0)
    assert "unlikely to show a difference from before" in " ".join(done.stdout.split())


@pytest.mark.usefixtures("before")
def test_verify_finds_out_whether_a_run_stopped_where_its_rule_says(usage: Sparring, tmp_path: Path) -> None:
    def verified(*more: str) -> tuple[int, dict[str, Any]]:
        done = usage("verify", "better", "--in-process", "--sample", "1", "--json", *more)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    play = ("run", *PLAY, "--in-process", "--against", "before", "--futility")
    assert usage(*play, "--policy-arg", "gain=1", "--output", "better").returncode == 0
    code, found = verified()
    assert (code, found["problems"], found["unchecked"]) == (0, [], "")

    whole = (tmp_path / "better" / "run.json").read_text()
    document = json.loads(whole)
    document["early_stop"]["won"] += 1
    (tmp_path / "better" / "run.json").write_text(json.dumps(document))
    code, found = verified()
    assert (code, found["problems"]) == (1, ["run.json has other numbers of its early stop than its rows come to."])
    document["early_stop"]["reason"] = "futility"
    (tmp_path / "better" / "run.json").write_text(json.dumps(document))
    code, found = verified()
    assert code == 1
    assert "(futility), and by its rule it stopped after" in found["problems"][0]

    (tmp_path / "better" / "run.json").write_text(whole)
    (tmp_path / "before").rename(tmp_path / "moved")
    code, found = verified()
    assert (code, found["problems"], found["verified"]) == (3, [], False)
    assert "/before' any more. Name its folder with --against." in found["unchecked"]
    assert verified("--against", "moved")[0] == 0
    assert "is another one" in verified("--against", "better")[1]["unchecked"]
    done = usage("verify", "moved", "--in-process", "--against", "better")
    assert (done.returncode, "was not held against another one" in done.stderr) == (2, True)


@pytest.mark.usefixtures("before")
def test_a_run_that_is_never_sure_says_so(usage: Sparring, tmp_path: Path) -> None:
    done = usage("run", *PLAY, "--policy-arg", "gain=0.6", "--in-process", "--against", "before", "--output", "same")
    assert done.returncode == 0, done.stderr
    assert "not stopped early: no difference from before is seen" in " ".join(done.stdout.split())
    found = Results.load(tmp_path / "same").early_stop
    assert found is not None
    assert not found.stopped
    assert found.rounds == 40
    assert "could stop early: p and intervals" in " ".join(usage("compare", "before", "same").stdout.split())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--until", "half-width=0.5"), "half-width=H with H above 0 and below 0.5"),
        (("--until", "half-width=0"), "half-width=H with H above 0"),
        (("--until", "half-width=nan"), "half-width=H with H above 0"),
        (("--until", "precise"), "half-width=H"),
        (("--futility",), "--futility goes with --against"),
        (("--alpha", "0.01"), "--alpha goes with --until or --against"),
        (("--until", "half-width=0.1", "--alpha", "0.7"), "--alpha"),
        (("--until", "half-width=0.1", "--metric", "return"), "--until is about success rates"),
        (("--until", "half-width=0.2", "--protocols", "ours,narrow"), "such as --protocol ours"),
        (("--against", "before", "--protocols", "narrow,ours"), "--against is about one success rate"),
        (("--against", "nowhere"), "there is no"),
        (("--against", "empty"), "is not the output folder of a run"),
        (("--against", "before", "--output", "before"), "the folder of this very run"),
        (("--against", "before", "--seed", "3"), "its seed is 1000, and this one's is 3"),
        (("--against", "before", "--max-steps", "7"), "max_steps: 0 (the benchmark's own limit) and 7"),
        (("--against", "before", "--task", "raises"), "it has not the tasks raises"),
        (("--against", "before", "--benchmark-arg", "reach=0.2"), "toy, reach: 0.1 and 0.2"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_starts(
    given: tuple[str, ...], sentence: str, usage: Sparring, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    if "before" in given:
        assert usage("run", *PLAY, "--episodes", "1", "--in-process", "--output", "before").returncode == 0
    there = sorted(path.name for path in tmp_path.iterdir())
    done = usage("run", *PLAY, "--in-process", "--output", "out", *given)
    assert done.returncode == 2, done.stdout
    assert sentence in " ".join(done.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == there
    assert usage("run", *PLAY, "--in-process", "--output", "out", *given, "--dry-run").returncode == 2


def test_a_run_that_is_not_finished_is_nothing_to_be_held_against(tmp_path: Path) -> None:
    settings = read_settings({**BASE, "against": tmp_path, "output": tmp_path / "new"})
    with pytest.raises(UsageError, match="is not the output folder of a run"):
        early_stopping(settings, make_plan(settings))


def test_a_stop_that_its_rows_do_not_bear_out_is_a_problem(usage: Sparring, tmp_path: Path) -> None:
    play = ("run", *PLAY, "--policy-arg", "gain=0.8", "--in-process", "--output", "out", *STOP)
    assert usage(*play).returncode == 0
    file = tmp_path / "out" / "run.json"
    document = json.loads(file.read_text())
    document["early_stop"]["rounds"] -= 3
    file.write_text(json.dumps(document))
    done = usage("verify", "out", "--in-process")
    assert done.returncode != 0
    assert "by its rule" in done.stdout + done.stderr


def test_a_saved_run_knows_where_the_other_is(usage: Sparring, tmp_path: Path) -> None:
    settings = read_settings({**BASE, "against": Path("before")})
    assert settings.flat()["against"] == str(Path("before").absolute())
    assert read_settings({**BASE, "until": {"half-width": 0.1}}).stop.half_width == 0.1
    assert EpisodeId("toy", "a", 1) in PLAN.ids()
