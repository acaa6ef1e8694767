"""`sparring run --in-process`: the same run without a server, a worker or a socket, and with a terminal for pdb."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import MAKER_COLUMNS, TIMING_COLUMNS, Sparring, StartSparring, read_csv, recorded, sampled, wait_for
from toy_benchmark import ToySimulator
from toy_policies import Wanderer

from sparring import evaluate
from sparring.env_worker.benchmark import Step
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.execution.in_process import check, run_in_process
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.errors import Interrupted, RunStopped
from sparring.orchestrator.run.listeners import RunListener, RunStart
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.policy_server.client import PolicyUnreachable
from sparring.policy_server.policies.base import Array, Instruction, Observation
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError

TOY = ("run", "--benchmark", "toy", "--output", "out")
GOOD = (*TOY, "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "6")
HERE = "--in-process"
HERE_AND_THERE = [
    pytest.param((HERE,), id="here"),
    pytest.param(("--slots", "2"), id="workers", marks=pytest.mark.everything),
]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_document(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return document


def test_the_same_plan_has_the_same_rows_films_and_recordings(
    sparring: Sparring, usage: Sparring, tmp_path: Path
) -> None:
    # A policy that fails in odd episodes, simulators that fail and one that cannot be made, tried twice each.
    command = (
        *TOY, "--task", "short,long,raises,unmakeable", "--policy", "toy_policies:Raises", "--episodes", "3",
        "--retries", "1", "--video", "first:1", "--seed", "7",
    )  # fmt: skip
    there = sparring(*command, "--slots", "2", "--record", "recordings")
    here = usage(*command, "--output", "here", "--record", "recordings-here", HERE)
    assert (here.returncode, there.returncode) == (3, 3), here.stderr
    rows = read_csv(tmp_path / "out")
    assert {row["outcome"] for row in rows} == {"success", "error"}
    assert {row["error_kind"] for row in rows} == {"", "policy", "simulator"}
    assert read_csv(tmp_path / "here") == rows
    assert files(tmp_path / "here" / "videos") == files(tmp_path / "out" / "videos")
    assert files(tmp_path / "recordings-here") == files(tmp_path / "recordings")
    assert len(files(tmp_path / "recordings")) == 4
    assert here.stdout.partition(" renders, ")[0] == there.stdout.partition(" renders, ")[0], "the same table"


@pytest.mark.everything
def test_metaworld_is_the_same_with_the_expert_beside_it(sparring: Sparring, tmp_path: Path) -> None:
    command = (
        "run", "--benchmark", "metaworld", "--task", "reach-v3,push-v3", "--policy", "expert",
        "--episodes", "1", "--max-steps", "60", "--benchmark-arg", "resolution=64",
    )  # fmt: skip
    # A process of its own, too: which GL there is must be settled before anybody imports MuJoCo.
    for output, more in (("out", ("--slots", "2")), ("here", (HERE, "--video", "first:1"))):
        done = sparring(*command, "--output", output, *more, timeout=300)
        assert done.returncode == 0, done.stderr
    films = {"video": "", "renders": "0"}
    rows = [{**row, **films} for row in read_csv(tmp_path / "here")]
    assert rows == [{**row, **films} for row in read_csv(tmp_path / "out")]
    assert len(files(tmp_path / "here" / "videos")) == 2
    assert any(row["outcome"] == "success" for row in rows)


def test_what_is_written_is_what_any_run_writes(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*GOOD, HERE, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["overall"]["n"] == 12
    document = run_document(tmp_path / "out")
    assert document["status"] == "finished"
    assert document["settings"]["in_process"] is True
    assert document["policy"]["name"] == "toy_policies:Wanderer"
    assert set(document["versions"]) == {"orchestrator", "in-process"}
    stats = document["server_stats"]
    assert (stats["episodes"], stats["batch_size"]["max"]) == (12, 1)
    assert stats["observations"] == sum(int(row["round_trips"]) for row in read_csv(tmp_path / "out"))
    assert (tmp_path / "out" / "eval_info.json").exists()


ALONE = """
import psutil
from toy_policies import Forward


class Alone(Forward):
    def act(self, observations, states):
        process = psutil.Process()
        assert process.children(recursive=True) == []
        assert process.net_connections(kind="all") == []
        assert len(observations) == 1
        return super().act(observations, states)
"""


def test_there_is_no_other_process_and_no_socket(sparring: Sparring, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(ALONE)
    done = sparring(*TOY, "--task", "short", "--policy", "alone:Alone", "--episodes", "2", "--retries", "0", HERE)
    assert done.returncode == 0, done.stderr + done.stdout


# ---- resume, with it and without it


class StopAfter(RunListener):
    """Presses Ctrl-C when so many episodes have been recorded."""

    def __init__(self, episodes: int, number: signal.Signals = signal.SIGINT) -> None:
        self._left = episodes
        self._number = number

    def on_result(self, row: EpisodeRow) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), self._number)


def play(folder: Path, *listeners: RunListener, **settings: Any) -> Any:
    values = {"benchmark": "toy", "task": "good", "policy": "toy_policies:Wanderer", "episodes": 6, "output": folder}
    resolved = read_settings({**values, **settings, "in_process": True})
    return run_in_process(resolved, make_plan(resolved), folder, listeners)


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM], signal.SIGINT))
def test_an_interrupted_run_is_whole_and_goes_on_with_workers(
    number: signal.Signals, sparring: Sparring, usage: Sparring, tmp_path: Path
) -> None:
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted, match=f"interrupted by {number.name}"):
        play(tmp_path / "out", StopAfter(5, number))
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert run_document(tmp_path / "out")["status"] == "unfinished"
    assert len(read_csv(tmp_path / "out")) == 5
    done = sparring("resume", "out", "--no-in-process", "--slots", "2")
    assert done.returncode == 0, done.stderr
    assert usage(*GOOD, HERE, "--output", "whole").returncode == 0
    assert read_csv(tmp_path / "out") == read_csv(tmp_path / "whole")
    document = run_document(tmp_path / "out")
    assert set(document["versions"]) == {"orchestrator", "in-process", "toy-0"}
    assert document["server_stats"]["episodes"] == 12, "what was done before the interruption counts, too"


def test_a_signal_that_comes_early_is_not_forgotten(tmp_path: Path) -> None:
    class Early(RunListener):
        def on_start(self, start: RunStart) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="SIGTERM"):
        play(tmp_path / "out", Early())
    assert not (tmp_path / "out").exists(), "it never came to a run"


def test_a_run_with_workers_goes_on_in_one_process(sparring: Sparring, usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "flags").mkdir()
    command = (
        *TOY, "--task", "flaky,short", "--policy", "toy_policies:Forward", "--episodes", "2", "--retries", "0",
        "--benchmark-arg", f"flag_folder={tmp_path / 'flags'}", "--slots", "2", "--stall-timeout", "20",
    )  # fmt: skip
    assert sparring(*command).returncode == 3
    done = usage("resume", "out", HERE)
    assert done.returncode == 0, done.stderr
    assert [row["outcome"] for row in read_csv(tmp_path / "out")] == ["success"] * 4
    before = (tmp_path / "out" / "episodes.csv").read_text()
    assert usage("resume", "out").returncode == 0
    assert (tmp_path / "out" / "episodes.csv").read_text() == before, "nothing is left to do"


def test_ctrl_c_says_how_to_go_on(start_sparring: StartSparring, tmp_path: Path) -> None:
    process = start_sparring(
        *TOY, "--task", "long", "--policy", "toy_policies:Forward", "--policy-arg", "seconds=0.05",
        "--policy-arg", "gain=0.9", "--episodes", "50", HERE,
    )  # fmt: skip
    wait_for(lambda: recorded(tmp_path / "out") >= 1)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "stopped: interrupted by SIGINT." in errors
    assert "Go on with: sparring resume out" in errors
    assert "Traceback" not in errors
    assert said == ""


def test_a_disk_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    class Spoils(RunListener):
        def on_start(self, start: RunStart) -> None:
            assert start.folder is not None
            (start.folder / "videos").write_text("in the way")

    with pytest.raises(RunStopped, match="cannot be written"):
        play(tmp_path / "out", Spoils(), video="all")
    assert run_document(tmp_path / "out")["status"] == "unfinished"


def test_a_simulator_that_loses_a_policy_of_its_own_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def step(*_: object, **__: object) -> Step:
        raise PolicyUnreachable("my other policy went away.")

    monkeypatch.setattr(ToySimulator, "step", step)
    with pytest.raises(RunStopped, match="my other policy went away"):
        play(tmp_path / "out")
    assert run_document(tmp_path / "out")["status"] == "unfinished"


def test_listeners_hear_what_they_hear_of_any_run(tmp_path: Path) -> None:
    heard: list[str] = []

    class Ears(RunListener):
        """Hears everything that there is to hear."""

    for name in [name for name in vars(RunListener) if name.startswith("on_")]:
        setattr(Ears, name, lambda self, *what, name=name: heard.append(name))

    play(tmp_path / "out", Ears(), task="short", episodes=2)
    episode = ["on_activity", "on_activity", "on_result"]
    assert heard == ["on_start", "on_worker", *episode, *episode, "on_stats", "on_end"]


# ---- what cannot be


VALUES: dict[str, Any] = {"benchmark": "toy", "task": "short", "policy": "zero", "in_process": True}


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"slots": 2}, "--slots is of no use with --in-process: episodes are played one after the other."),
        ({"launcher": "none"}, "--launcher is of no use with --in-process: there are no workers."),
        ({"launcher": "docker"}, "--launcher is of no use with --in-process: there are no workers."),
        ({"listen": "127.0.0.1:0"}, "--listen is of no use with --in-process: there are no workers."),
        ({"metrics": ":9090"}, "--metrics is of no use with --in-process: no policy server is there to tell them."),
        ({"max_batch": 8}, "--max-batch is of no use with --in-process: observations are answered one by one."),
        ({"max_queue_delay": 0.5}, "--max-queue-delay is of no use with --in-process: no observation waits for"),
        ({"stall_timeout": 5}, "--stall-timeout is of no use with --in-process: nobody is there to kill a simulator"),
        ({"worker_timeout": 5}, "--worker-timeout is of no use with --in-process: there are no workers."),
        (
            {"policy_timeout": 5},
            "--policy-timeout is of no use with --in-process: nobody waits for the policy but you.",
        ),
        (
            {"policy": None, "policy_server": "localhost:50051"},
            "--policy-server is of no use with --in-process: the policy is asked where it is made.",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_settings({**VALUES, **setting})
    assert sentence in refused.value.told(FLAGS)


@pytest.mark.parametrize("setting", [{"slots": 1}, {"slots": "1"}, {"slots": "auto"}, {"launcher": "process"}])
def test_settings_that_are_true_anyway_are_not(setting: dict[str, Any]) -> None:
    assert read_settings({**VALUES, **setting}).plan.in_process


def test_no_is_no_however_it_is_written() -> None:
    assert not read_settings({**VALUES, "in_process": "false", "slots": 2}).plan.in_process


def test_a_benchmark_of_another_python_says_so() -> None:
    if not get_benchmark("libero").missing():
        pytest.skip("LIBERO is installed in this very Python")
    with pytest.raises(UsageError, match="cannot be played in this process: this Python lacks") as refused:
        check(read_settings({**VALUES, "benchmark": "libero", "task": "libero_spatial/0"}))
    assert refused.value.told(FLAGS).endswith("Leave out --in-process.")


def test_a_policy_that_does_not_fit_is_refused_in_the_same_words(
    sparring: Sparring, usage: Sparring, tmp_path: Path
) -> None:
    command = (*TOY, "--task", "short", "--policy", "toy_policies:WantsTooMuch")
    here, there = usage(*command, HERE), sparring(*command)
    assert (here.returncode, there.returncode) == (2, 2), here.stderr
    table = here.stderr.partition("error: ")[2]
    assert "not offered" in table
    assert table == there.stderr.partition("error: ")[2]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("policy", ["toy_policies:LacksAct", "no_such_module:Policy", "toy_policies:NoSuchClass"])
def test_a_policy_that_cannot_be_made_is_wrong_usage_and_leaves_nothing(
    policy: str, usage: Sparring, tmp_path: Path
) -> None:
    done = usage(*TOY, "--task", "short", "--policy", policy, HERE)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_it_is_no_part_of_what_a_run_is() -> None:
    from sparring.orchestrator.run.make_plan import identity

    values = {"benchmark": "toy", "task": "short", "policy": "zero"}
    one, other = read_settings(values), read_settings({**values, "in_process": True})
    assert identity(one, make_plan(one)) == identity(other, make_plan(other))


# ---- evaluate()


def test_evaluate_in_process_is_evaluate(tmp_path: Path) -> None:
    there = evaluate(Wanderer(), benchmark="toy", tasks="good", episodes=3, slots=2)
    here = evaluate(Wanderer(), benchmark="toy", tasks="good", episodes=3, in_process=True)
    timeless = [
        [{k: v for k, v in vars(row).items() if k not in TIMING_COLUMNS | MAKER_COLUMNS} for row in results.rows]
        for results in (here, there)
    ]
    assert timeless[0] == timeless[1]
    assert here.folder is None
    kept = evaluate(Wanderer(), benchmark="toy", tasks="good", episodes=3, in_process=True, output=tmp_path / "kept")
    assert kept.folder == tmp_path / "kept"
    assert len(read_csv(tmp_path / "kept")) == 6


def test_evaluate_in_process_refuses_in_the_words_of_python_and_leaves_the_folder_free(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="slots= is of no use with in_process="):
        evaluate(Wanderer(), benchmark="toy", tasks="good", in_process=True, slots=2)

    class Picky(Wanderer):
        def warm_up(self) -> None:
            raise RuntimeError("not today")

    tmp_path.joinpath("out").mkdir()
    with pytest.raises(UsageError, match="not today"):
        evaluate(Picky(), benchmark="toy", tasks="good", in_process=True, output=tmp_path / "out")
    done = evaluate(Wanderer(), benchmark="toy", tasks="short", episodes=1, in_process=True, output=tmp_path / "out")
    assert done.overall.n == 1


def test_evaluate_in_process_lets_ctrl_c_be_the_callers() -> None:
    class Pressed(Wanderer):
        def new_session(self, task: Instruction, seed: int) -> dict[str, Any]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(Pressed(), benchmark="toy", tasks="good", in_process=True)


def test_evaluate_in_process_draws_nothing_from_the_callers_generators() -> None:
    class Draws(Wanderer):
        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            np.random.uniform()
            return super().act(observations, states)

    np.random.seed(1)
    expected = np.random.uniform()
    np.random.seed(1)
    evaluate(Draws(), benchmark="toy", tasks="short", episodes=2, in_process=True)
    assert np.random.uniform() == expected


# ---- pdb


class Terminal:
    """The command in a terminal of its own, and somebody who types."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._screen, inner = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sparring", *arguments],
            cwd=folder, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        os.close(inner)
        self.said = ""

    def wait_for(self, text: str, seconds: float = 30.0) -> str:
        """Reads up to a text; returns what was said before it."""
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < deadline, f"{text!r} was not said: {self.said}"
            self._read(0.1)
        before, _, self.said = self.said.partition(text)
        return before

    def type(self, line: str) -> None:
        os.write(self._screen, f"{line}\n".encode())

    def end(self, seconds: float = 30.0) -> int:
        """Reads all there is to the end."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None or self._read(0.0):
            assert time.monotonic() < deadline, self.said
            self._read(0.1)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        os.close(self._screen)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._screen], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # nobody has it open any more
            return False
        self.said += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def debugged(tmp_path: Path) -> Any:
    (tmp_path / "bugs.py").write_text(
        "from toy_policies import Forward\n\n"
        "class Buggy(Forward):\n"
        "    def act(self, observations, states):\n"
        "        if observations[0].step == 3:\n"
        "            breakpoint()\n"
        "        return super().act(observations, states)\n"
    )
    command = (*TOY, "--task", "short", "--policy", "bugs:Buggy", "--episodes", "2", HERE)
    terminal = Terminal(tmp_path, *command)
    yield terminal
    terminal.close()


def test_a_breakpoint_in_a_policy_stops_there_and_goes_on(debugged: Terminal, tmp_path: Path) -> None:
    for index in range(2):
        debugged.wait_for("(Pdb) ")
        debugged.type("p observations[0].step, observations[0].task.episode")
        assert f"(3, {index})" in debugged.wait_for("(Pdb) ")
        debugged.type("c")
    assert debugged.end() == 0, debugged.said
    assert "overall" in debugged.said
    assert "\x1b[?25l" not in debugged.said, "a live display hides the cursor"
    assert [row["outcome"] for row in read_csv(tmp_path / "out")] == ["success"] * 2


def test_leaving_the_debugger_ends_the_run_and_says_how_to_go_on(debugged: Terminal, tmp_path: Path) -> None:
    debugged.wait_for("(Pdb) ")
    debugged.type("c")
    debugged.wait_for("(Pdb) ")
    debugged.type("q")
    assert debugged.end() == 130, debugged.said
    assert "stopped:" in debugged.said
    assert "sparring resume out" in debugged.said
    assert "Traceback" not in debugged.said
    assert len(read_csv(tmp_path / "out")) == 1


@pytest.mark.parametrize("how", HERE_AND_THERE)
def test_a_policy_that_always_fails_is_stopped(sparring: Sparring, tmp_path: Path, how: tuple[str, ...]) -> None:
    ended = sparring(*TOY, "--task", "short,long", "--episodes", "50", "--policy", "toy_policies:NeverWorks", *how)
    assert ended.returncode == 1, ended
    assert "ended in the same error" in ended.stderr
    assert "ValueError: this cannot work" in ended.stderr
    assert "--max-errors 0" in ended.stderr
    with sqlite3.connect(tmp_path / "out" / "journal.sqlite") as journal:
        (attempts,) = journal.execute("SELECT count(*) FROM events WHERE kind = 'error'").fetchone()
    assert attempts == 20, "not the 400 that the plan and its retries allow"
    (kept,) = (tmp_path / "out" / "errors").iterdir()
    assert f"traceback: out/errors/{kept.name}" in ended.stderr
    assert ended.stderr.count("in act\n") == 1, "and once on the screen"
    assert kept.read_text().endswith("ValueError: this cannot work\n")
    shown = sparring("show", "out", "--errors")
    assert f"out/errors/{kept.name}" in shown.stdout


@pytest.mark.parametrize("how", HERE_AND_THERE)
def test_tracebacks_of_code_that_never_came_to_play_are_kept(
    sparring: Sparring, tmp_path: Path, how: tuple[str, ...]
) -> None:
    """Where the policy cannot be made, nothing else is left of the run, and another may begin in its place."""
    mine = tmp_path / "mine.py"
    mine.write_text("class Mine:\n    def __init__(self):\n        self.weights = {}['weights']\n")
    command = (*TOY, "--task", "short", "--episodes", "1", "--policy", "mine:Mine", *how)
    ended = sparring(*command)
    assert ended.returncode == 2, ended
    (kept,) = (tmp_path / "out" / "errors").iterdir()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["errors"]
    assert f"KeyError: 'weights' (traceback: out/errors/{kept.name})" in ended.stderr
    assert "self.weights = {}['weights']" in ended.stderr
    assert "self.weights = {}['weights']" in kept.read_text()
    mine.write_text("from toy_policies import Forward\n\nclass Mine(Forward):\n    pass\n")
    assert sparring(*command).returncode == 0


def test_who_interrupts_a_run_sees_what_there_is_of_it(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "interrupted_policy.py").write_text(
        "from toy_policies import Forward\n\n"
        "class Mine(Forward):\n"
        "    def new_session(self, task, seed):\n"
        "        if task.episode == 3:\n"
        "            raise KeyboardInterrupt  # as Ctrl-C does\n"
        "        if task.episode == 1:\n"
        "            raise ValueError('odd')\n"
    )
    ended = usage(*TOY, "--task", "short,long", "--episodes", "5", "--policy", "interrupted_policy:Mine", HERE)
    assert ended.returncode == 130, ended.stderr
    lines = ended.stderr.splitlines()
    lines = lines[next(n for n, line in enumerate(lines) if line.startswith("task ")) :]
    assert [line.split()[:4] for line in lines if line.startswith(("short", "long", "overall"))] == [
        ["short", "2", "1", "100.0"],
        ["overall", "2", "1", "100.0"],
    ], "no line for a task that was not begun"
    assert "7 episodes not run yet" in lines, "those of such tasks are among them"
    assert any("raised ValueError: odd (policy" in line and "short #1, 4 attempts" in line for line in lines)
    assert lines[-2:] == [
        "stopped: interrupted by SIGINT.",
        "Recorded: 3 of 10 episodes. Go on with: sparring resume out",
    ]
    assert ended.stdout == ""


def test_errors_that_are_tried_again_are_told_when_a_run_is_interrupted(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "interrupted_soon.py").write_text(
        "from toy_policies import Forward\n\n"
        "class Mine(Forward):\n"
        "    tries = 0\n\n"
        "    def new_session(self, task, seed):\n"
        "        self.tries += 1\n"
        "        raise KeyboardInterrupt if self.tries == 3 else ValueError('odd')\n"
    )
    ended = usage(*TOY, "--task", "short", "--episodes", "5", "--policy", "interrupted_soon:Mine", HERE)
    assert ended.returncode == 130, ended.stderr
    told = ended.stderr.partition("errors so far:")[2].splitlines()
    assert "raised ValueError: odd" in told[1]
    assert told[1].endswith(" - short #0, 2 attempts")
    assert told[-1].startswith("Recorded: 0 of 5 episodes.")
