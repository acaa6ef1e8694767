"""Workers get ready while the policy is loaded: what that is for, and that nothing is left where it is in vain."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import Sparring, orphans, read_csv

MINE = '''
import time
from pathlib import Path

from toy_benchmark import Toy
from toy_policies import Forward

MADE = Path(__file__).with_name("made")


class World(Toy):
    """Leaves a file when a simulator is made."""

    def make(self, task, settings):
        simulator = super().make(task, settings)
        MADE.touch()
        return simulator


class Patient(Forward):
    """Is loaded when a simulator is there, and not before."""

    def __init__(self, then=""):
        super().__init__()
        deadline = time.monotonic() + 60
        while not MADE.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("nobody has made a simulator")
            time.sleep(0.01)
        if then == "raise":
            raise RuntimeError("my weights are gone")
        if then == "sleep":
            time.sleep(600)
'''
RUN = ("run", "--benchmark", "mine:World", "--task", "short", "--policy", "mine:Patient", "--output", "out")


@pytest.fixture(autouse=True)
def mine(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)


def test_simulators_are_made_before_the_policy_is_loaded(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*RUN, "--episodes", "2", "--slots", "1")
    assert done.returncode == 0, done.stderr
    assert [row["outcome"] for row in read_csv(tmp_path / "out")] == ["success"] * 2


def test_a_policy_that_cannot_be_loaded_leaves_nothing(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*RUN, "--policy-arg", "then=raise")
    assert done.returncode == 2
    assert "my weights are gone" in done.stderr
    assert "worker" not in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["errors"]  # the traceback that the sentence names


def test_a_folder_that_was_there_has_no_misleading_log(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = usage(*RUN, "--policy-arg", "then=raise")
    assert done.returncode == 2
    assert not (tmp_path / "out" / "journal.sqlite").exists()
    said = "".join(log.read_text() for log in (tmp_path / "out" / "logs").glob("worker-*.log"))
    assert "Traceback" not in said
    assert "error" not in said.lower()


def test_whoever_interrupts_it_while_the_policy_is_loaded_waits_for_nobody(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparring", *RUN, "--policy-arg", "then=sleep"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "made").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert orphans(tmp_path) == []
    assert not (tmp_path / "out").exists()
    assert said.splitlines()[-1] == "Nothing was recorded. The same command begins anew.", "there is nothing to resume"


def test_a_policy_that_does_not_fit_what_was_made_ready_is_refused_as_ever(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*RUN[:-4], "--policy", "toy_policies:WantsTooMuch", "--output", "out")
    assert done.returncode == 2
    assert "the policy and the benchmark do not fit together" in done.stderr
    assert not (tmp_path / "out").exists()
