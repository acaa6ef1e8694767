"""Evaluation while training: the numbers of the command, workers that stay, and nothing left behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest
from certificates import write_secret
from support import Sparring, StartSparring, free_port, orphans, processes_of, read_csv, sampled, wait_for
from toy_policies import Forward, LacksAct, Raises, Wanderer

from sparring import Evaluator
from sparring.orchestrator.live.evaluator import _not_here
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.errors import Interrupted, RunStopped
from sparring.orchestrator.settings import setting_fields
from sparring.protos.errors import UsageError

TOY: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 4, "slots": 2}


@pytest.fixture
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as made:
        yield made
    assert workers() == []


def workers() -> list[int]:
    """Workers, their fork servers and slots, of this process; other tests may have servers of their own here.

    What is no worker's is of no evaluation: this process has a resource tracker of its own if a test before used
    multiprocessing.
    """
    return workers_of(os.getpid(), but=[getattr(resource_tracker._resource_tracker, "_pid", None)])


def workers_of(parent: int, but: Sequence[int | None] = ()) -> list[int]:
    found = []
    for child in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = " ".join(child.cmdline())  # a zombie has none
            if child.pid not in but and ("env_worker" in command or "multiprocessing" in command):
                found.append(child.pid)
    return sorted(found)


def outcomes(results: Results) -> list[tuple[str, int, int, str, float]]:
    return [(row.task, row.index, row.seed, row.outcome, row.reward_sum) for row in results.rows]


def test_the_files_are_those_of_the_command(usage: Sparring, evaluator: Evaluator, tmp_path: Path) -> None:
    flags = ("--benchmark", "toy", "--task", "good", "--episodes", "4", "--slots", "2", "--seed", "7")
    assert usage("run", *flags, "--policy", "toy_policies:Wanderer", "--output", "command").returncode == 0
    results = evaluator.evaluate(Wanderer(), **TOY, seed=7, output=tmp_path / "live")
    assert read_csv(tmp_path / "live") == read_csv(tmp_path / "command")
    files = {p.name for p in (tmp_path / "command").iterdir()}
    assert {p.name for p in (tmp_path / "live").iterdir()} == files
    assert (tmp_path / "live" / "logs" / "worker-toy.log").exists()
    documents = [json.loads((tmp_path / f / "run.json").read_text()) for f in ("live", "command")]
    assert documents[0].keys() == documents[1].keys()
    assert documents[0]["status"] == "finished"
    assert documents[0]["policy"]["name"] == "live:toy_policies.Wanderer"
    assert documents[0]["versions"].keys() == documents[1]["versions"].keys()
    assert results.to_json()["tasks"].keys() == {"short", "long"}


def test_what_was_live_then_cannot_be_brought_back_by_the_command(
    start_sparring: StartSparring, evaluator: Evaluator, tmp_path: Path
) -> None:
    evaluator.evaluate(Raises(), **TOY, retries=0, output=tmp_path / "live")  # errors, which would be tried again
    resumed = start_sparring("resume", "live")
    _, said = resumed.communicate(timeout=60)
    assert resumed.returncode == 2
    assert "only that program can evaluate it again" in said


def test_workers_stay_and_each_call_sees_the_policy_as_it_is(evaluator: Evaluator) -> None:
    policy = Forward(gain=1.0)
    first = evaluator.evaluate(policy, **TOY)
    before = workers()
    assert len(before) >= 4, "a worker, its fork server and two slots"
    policy._gain = 0.02
    second = evaluator.evaluate(policy, **TOY)
    policy._gain = 1.0
    third = evaluator.evaluate(policy, **TOY)
    assert workers() == before, "the same processes did all three"
    assert outcomes(third) == outcomes(first)
    assert (first.overall.successes, second.overall.successes) == (8, 0)
    assert [row[:3] for row in outcomes(second)] == [row[:3] for row in outcomes(first)], "the same episodes"
    assert outcomes(evaluator.evaluate(policy, **TOY, seed=5)) != outcomes(first)
    # Another policy, other tasks, another number of episodes and other ways to look: still the same workers.
    other = evaluator.evaluate(Wanderer(), benchmark="toy", tasks=["short"], episodes=3, slots=2, observe="every-step")
    assert other.overall.n == 3
    assert workers() == before
    assert other.folder is None
    assert other.to_json()["output"] is None


def test_other_settings_of_the_benchmark_get_other_workers(evaluator: Evaluator) -> None:
    evaluator.evaluate(Forward(), **TOY)
    before = set(workers())
    evaluator.evaluate(Forward(), **TOY, benchmark_arg={"step_seconds": 0.001})
    assert before < set(workers())
    evaluator.evaluate(Forward(), **TOY)
    assert before < set(workers()), "the first ones were kept"


def test_a_policy_that_raises_is_an_error_of_those_episodes_and_of_no_others(
    evaluator: Evaluator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    results = evaluator.evaluate(Raises(), **TOY, retries=0)
    ends = [record.levelname for record in caplog.records if " ended in " in record.getMessage()]
    assert len(ends) >= sum(row.outcome == "error" for row in results.rows) == 4
    assert 1 <= ends.count("WARNING") <= 2, "once for those that fail, and once for those beside them"
    assert {row.index % 2: row.outcome for row in results.rows} == {0: "success", 1: "error"}
    assert all("my knees are weak" in row.error for row in results.rows if row.index % 2)
    before = workers()
    assert evaluator.evaluate(Forward(), **TOY).overall.successes == 8
    assert workers() == before


@pytest.mark.parametrize("victim", ["worker", "slot"])
def test_who_is_killed_between_calls_is_replaced(evaluator: Evaluator, victim: str) -> None:
    first = evaluator.evaluate(Wanderer(), **TOY)
    before = workers()
    (worker,) = (p for p in psutil.Process().children() if "env_worker" in " ".join(p.cmdline()))
    target = worker if victim == "worker" else worker.children(recursive=True)[-1]
    target.kill()
    wait_for(lambda: target.pid not in workers())
    assert outcomes(evaluator.evaluate(Wanderer(), **TOY)) == outcomes(first)
    assert workers() != before


def test_closing_ends_an_evaluation_in_another_thread(evaluator: Evaluator) -> None:
    slow = {**TOY, "episodes": 1000}
    caught: list[BaseException] = []

    def train() -> None:
        try:
            evaluator.evaluate(Forward(seconds=0.01), **slow)
        except Interrupted as error:
            caught.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    wait_for(lambda: len(workers()) >= 4)
    evaluator.close()
    thread.join(60)
    assert len(caught) == 1
    assert workers() == []
    assert evaluator.evaluate(Forward(), **TOY).overall.successes == 8, "closing is not the end"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"task": "short"}, "it is called `tasks` here"),
        ({"policy_server": "a:1"}, "served from this process"),
        ({"rename": {"camera": "image"}}, "ask for the names that the benchmark has"),
        ({"epsiodes": 3}, "episodes"),
        ({"video": "all"}, "give one with output="),
        ({"max_batch": 0}, "max_batch=: must be a whole number"),
    ],
)
def test_wrong_settings_are_told_before_anything_starts(
    evaluator: Evaluator, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        evaluator.evaluate(Forward(), **{**TOY, **arguments})
    with pytest.raises(UsageError, match=r"act\(\)"):
        evaluator.evaluate(LacksAct(), **TOY)
    with pytest.raises(UsageError, match=r"is the class Forward, and not an object of it: give Forward\(\)\."):
        evaluator.evaluate(Forward, **TOY)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"is the text 'expert'.* here give an object\."):
        evaluator.evaluate("expert", **TOY)  # type: ignore[arg-type]
    assert workers() == []


TRAINING = """
import sys, time
from sparring import evaluate
from toy_policies import Forward
results = evaluate(Forward(), benchmark="toy", tasks="good", episodes=2, slots=2)
sys.stdout.write(f"{results.overall.successes}\\n"); sys.stdout.flush()
"""
ENDINGS = {
    "exit": ("", None, 0),
    "exception": ("raise ValueError('loss is nan')", None, 1),
    "ctrl-c in training": ("time.sleep(100)", signal.SIGINT, None),
    "ctrl-c in evaluation": (
        "evaluate(Forward(seconds=0.05), benchmark='toy', tasks='good', episodes=999, slots=2)",
        signal.SIGINT,
        None,
    ),
    "kill -9 in training": ("time.sleep(100)", signal.SIGKILL, -signal.SIGKILL),
    "kill -9 in evaluation": (
        "evaluate(Forward(seconds=0.05), benchmark='toy', tasks='good', episodes=999, slots=2)",
        signal.SIGKILL,
        -signal.SIGKILL,
    ),
}


@pytest.mark.parametrize("ending", sampled(ENDINGS, "exit", "ctrl-c in evaluation", "kill -9 in evaluation"))
def test_nothing_outlives_the_program(
    tmp_path: Path, short_folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    then, number, code = ENDINGS[ending]
    monkeypatch.setenv("TMPDIR", str(short_folder))
    program = subprocess.Popen(
        [sys.executable, "-c", TRAINING + then], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline().strip() == "4"
        if number is not None:
            assert len(processes_of(tmp_path)) >= 5
            time.sleep(0.5)  # to get into what comes then
            program.send_signal(number)
        _, errors = program.communicate(timeout=60)
    finally:
        program.kill()
    assert code is None or program.returncode == code, errors
    assert number != signal.SIGINT or "KeyboardInterrupt" in errors
    assert orphans(tmp_path) == []
    if number == signal.SIGKILL:  # who is killed cannot tidy up; the next one does
        assert list(short_folder.glob("sparring-*"))
        subprocess.run([sys.executable, "-c", TRAINING], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert list(short_folder.glob("sparring-*")) == []


def test_a_fork_of_the_program_leaves_its_workers_alone(tmp_path: Path) -> None:
    """As torch's data loaders do: children are forked between calls and end in their own way."""
    program = TRAINING + (
        "import os, multiprocessing\n"
        "for _ in range(5):\n"
        "    child = os.fork()\n"
        "    if child == 0: sys.exit(0)\n"  # runs what is registered with atexit, in the copy
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]\n"
        "from sparring.orchestrator.live import evaluator as live\n"
        "before = live._shared._kept[0]\n"
        "assert evaluate(Forward(), benchmark='toy', tasks='good', episodes=2, slots=2).overall.successes == 4\n"
        "assert live._shared._kept == [before]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "fork" not in done.stderr, "gRPC has something to say"
    assert orphans(tmp_path) == []


def test_temporary_folders_of_others_are_left_alone(evaluator: Evaluator) -> None:
    evaluator.evaluate(Forward(), **TOY)
    (held,) = (workers.folder for workers in evaluator._kept)
    with Evaluator() as another:
        another.evaluate(Forward(), **TOY)
        assert held.is_dir()
    assert held.parent == Path(tempfile.gettempdir())
    assert evaluator.evaluate(Forward(), **TOY).overall.successes == 8
    assert os.path.exists(held / "s" / "work.sock")


@pytest.mark.everything
def test_metaworld_warm_and_equal_to_the_command(sparring: Sparring, evaluator: Evaluator, tmp_path: Path) -> None:
    from sparring.policy_server.policies.metaworld_expert import MetaworldExpert

    flags = ("--benchmark", "metaworld", "--task", "reach-v3", "--episodes", "4", "--slots", "2")
    assert sparring("run", *flags, "--policy", "expert", "--output", "command").returncode == 0
    seconds = []
    before: list[int] = []
    for call in ("first", "second"):
        began = time.perf_counter()
        evaluator.evaluate(
            MetaworldExpert(), benchmark="metaworld", tasks="reach-v3", episodes=4, slots=2, output=tmp_path / call
        )
        seconds.append(time.perf_counter() - began)
        assert read_csv(tmp_path / call) == read_csv(tmp_path / "command")
        assert before in ([], workers())
        before = workers()
    assert seconds[1] < seconds[0], f"the second call was to find everything ready: {seconds}"


@pytest.mark.everything
def test_a_worker_that_was_started_by_hand(
    start_sparring: StartSparring, evaluator: Evaluator, sparring: Sparring, tmp_path: Path
) -> None:
    """Nobody launches anything here: who listens is said, and workers from anywhere dial in."""
    flags = ("--benchmark", "toy", "--task", "good", "--episodes", "4", "--slots", "2")
    assert sparring("run", *flags, "--policy", "toy_policies:Wanderer", "--output", "command").returncode == 0
    here = f"127.0.0.1:{free_port()}"
    by_hand: dict[str, Any] = {
        **TOY,
        "launcher": "none",
        "listen": here,
        "join_token_file": write_secret(tmp_path / "token", "a-secret-of-our-own"),
    }
    joining = ("--orchestrator", here, "--join-token-file", str(tmp_path / "token"))
    worker = start_sparring("worker", *joining, "--benchmark", "toy", "--slots", "2")
    for call in ("first", "second"):
        evaluator.evaluate(Wanderer(), **by_hand, output=tmp_path / call)
        assert read_csv(tmp_path / call) == read_csv(tmp_path / "command")
        assert worker.poll() is None, "it stays for the next call"
    assert workers_of(worker.pid) != [], "a fork server and slots of its own"
    assert not (tmp_path / "second" / "logs").exists(), "its log is its own"
    evaluator.close()
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0, said
    assert "Traceback" not in said
    # Another one may come while a call is waiting, and one that goes away does not take the evaluation with it.
    worker = start_sparring("worker", *joining, "--benchmark", "toy", "--slots", "2")
    assert evaluator.evaluate(Forward(), **by_hand).overall.successes == 8
    os.killpg(worker.pid, signal.SIGKILL)
    worker.communicate(timeout=60)
    late: list[subprocess.Popen[str]] = []
    flags = (*joining, "--benchmark", "toy", "--slots", "2")
    threading.Timer(1.0, lambda: late.append(start_sparring("worker", *flags))).start()
    assert evaluator.evaluate(Forward(), **by_hand).overall.successes == 8
    evaluator.close()
    assert late[0].wait(60) == 0


def test_a_worker_that_stays_serves_one_program_after_the_other(start_sparring: StartSparring, tmp_path: Path) -> None:
    here = f"127.0.0.1:{free_port()}"
    token = write_secret(tmp_path / "token", "a-secret-of-our-own")
    flags = ("--orchestrator", here, "--join-token-file", str(token), "--benchmark", "toy", "--slots", "2")
    worker = start_sparring("worker", *flags, "--stay")
    by_hand: dict[str, Any] = {**TOY, "launcher": "none", "listen": here, "join_token_file": token}
    for _ in range(2):
        with Evaluator() as program:
            assert program.evaluate(Forward(), **by_hand).overall.successes == 8
        assert worker.poll() is None
    worker.terminate()
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0, said


def test_nobody_comes_to_work(evaluator: Evaluator) -> None:
    here = f"127.0.0.1:{free_port()}"
    with pytest.raises(RunStopped, match=rf"no worker of toy has been here for 1 s. Start one with .*{here}"):
        evaluator.evaluate(Forward(), **TOY, launcher="none", listen=here, worker_timeout=1.0)


def test_what_evaluate_does_not_take_are_settings() -> None:
    assert set(setting_fields()) >= set(_not_here()) >= {"policy_server", "serve_on", "serve_slurm"}
