"""`sparring run --debug` and `--pdb`: one episode in this process, all of it told, nothing of it kept."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from support import Sparring

TOY = ("run", "--benchmark", "toy", "--task", "short,long", "--slots", "4", "--output", "out")


def test_every_step_is_told_and_nothing_is_kept(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*TOY, "--policy", "toy_policies:Forward", "--policy-arg", "chunk=4", "--debug")
    assert done.returncode == 0, done.stderr
    lines = [re.sub(r"[\d.]+ ms", "T", line) for line in done.stdout.splitlines()]
    assert lines[0] == "toy/short#0, seed 1000: played in this process; nothing is kept of it"
    assert lines[1:4] == ["new_session(): T, 'Go a little'", "reset: T; looked at position (1,)", "act(): T, 4 actions"]
    steps = [line for line in lines if line.startswith("step ")]
    assert steps[-1].startswith(f"step {len(steps)}: T, reward 1.")
    assert steps[-1].endswith(", success, terminated")
    assert lines[-1].startswith(f"success after {len(steps)} steps, return ")
    asked = sum(line.startswith("act(): ") for line in lines)
    assert f"; the policy was asked {asked} times; 0 actions outside the action space; seconds: " in lines[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "frame", "said"),
    [
        (("--policy", "toy_policies:Raises", "--index", "1"), "in broken", "RuntimeError: my knees are weak"),
        (("--policy", "toy_policies:Forward", "--task", "raises"), "in _misbehave", "ValueError: the world came apart"),
    ],
    ids=["policy", "simulator"],
)
def test_what_is_raised_is_told_in_full(usage: Sparring, what: tuple[str, ...], frame: str, said: str) -> None:
    done = usage(*TOY, *what, "--debug")
    assert done.returncode == 3, done.stderr
    assert done.stdout.count("Traceback (most recent call last)") == 1
    assert frame in done.stdout
    assert f"\n{said}\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("error: the ")


def test_a_benchmark_is_found_by_its_class_and_a_part_by_its_name(usage: Sparring, tmp_path: Path) -> None:
    flags = ("--policy", "toy_policies:Forward", "--debug")
    done = usage("run", "--benchmark", "toy_benchmark:Toy", "--task", "short", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("toy_benchmark.Toy/short#0, seed 1000: ")
    (tmp_path / "run.yaml").write_text("evaluations: [{benchmark: toy, task: short, name: big}]\n")
    done = usage("run", "--config", "run.yaml", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("big/short#0, seed 1000: ")


def test_pdb_stops_where_it_was_raised(usage: Sparring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p 'at step', observations[0].step\nq\n"))
    done = usage(*TOY, "--policy", "toy_policies:NeverWorks", "--pdb")
    assert done.returncode == 3, done.stderr
    assert '-> raise ValueError("this cannot work")' in done.stdout
    assert "('at step', 0)" in done.stdout


def test_a_policy_that_cannot_be_made_is_told_of_in_full(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "debugged_policy.py").write_text("class Mine:\n    def __init__(self):\n        {}['weights']\n")
    done = usage(*TOY, "--policy", "debugged_policy:Mine", "--debug")
    assert done.returncode == 2
    assert "in __init__" in done.stdout
    assert done.stderr.endswith("KeyError: 'weights'\n")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_debugged_is_refused(usage: Sparring) -> None:
    done = usage("run", "--benchmark", "toy", "--task", "short", "--policy-server", "gpu:50051", "--debug")
    assert (done.returncode, "with --policy" in done.stderr) == (2, True)
    done = usage(*TOY, "--policy", "toy_policies:WantsTooMuch", "--debug")
    assert (done.returncode, "not offered" in done.stderr) == (2, True)
