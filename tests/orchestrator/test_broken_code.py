"""Users' code that raises before a run has begun: a sentence, the traceback on the screen and in the output folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support import Sparring
from toy_policies import Forward

from sparring.orchestrator.live.evaluator import Evaluator
from sparring.protos.errors import UsageError

OWN = """
from toy_benchmark import Toy
from sparring import Policy, PolicySpec

class Tasks(Toy):
    def tasks(self, selection):
        return [][7]

class NoTasks(Toy):
    def tasks(self, selection):
        return []

class Names(Toy):
    def tasks(self, selection):
        return ["short"]

class Made(Toy):
    def __init__(self):
        raise SystemExit("not here")

class Fetched(Toy):
    def fetch(self, settings):
        raise OSError("no disk")

class Prepared(Toy):
    def prepare(self, settings):
        raise LookupError("no GPU")

class Needs(Policy):
    def act(self, observations, states):
        return []

    @property
    def spec(self):
        return {}["weights"]

class NeedsOf(Needs):
    spec = PolicySpec({}, action_dim=1)

    def spec_for(self, benchmark):
        raise KeyError(benchmark)
"""


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of one's own, where one is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("broken_here", "cannot_be_imported"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "broken_here.py").write_text(OWN)
    (tmp_path / "cannot_be_imported.py").write_text("def weights():\n    return 1 / 0\n\nweights()\n")


def kept(done_stderr: str, whose: str) -> str:
    """Returns the traceback that a sentence on standard error refers to, which is also shown before it."""
    (path,) = re.findall(rf"\(traceback: (\S+/errors/{whose}-[0-9a-f]{{8}}\.txt)\)", done_stderr)
    text = Path(path).read_text().partition("\n\n")[2]
    assert text.rstrip() in done_stderr
    return text


@pytest.mark.parametrize(
    ("flags", "whose", "frame", "said"),
    [
        (("--benchmark", "cannot_be_imported:Any"), "benchmark", "in weights", "ZeroDivisionError"),
        (("--benchmark", "broken"), "benchmark", "", "ModuleNotFoundError: No module named 'no_such_module'"),
        (("--benchmark", "broken_here:Tasks"), "benchmark", "in tasks", "tasks() of the benchmark 'broken_here:Tasks'"),
        (("--benchmark", "broken_here:Made"), "benchmark", "in __init__", "cannot be made: SystemExit: not here"),
        (("--benchmark", "broken_here:Fetched"), "benchmark", "in fetch", "raised OSError: no disk"),
        (("--benchmark", "broken_here:Prepared"), "benchmark", "in prepare", "raised LookupError: no GPU"),
        (("--policy", "broken_here:Needs"), "policy", "in spec", "the spec of the policy 'broken_here:Needs' raised"),
        (
            ("--policy", "broken_here:NeedsOf"),
            "policy",
            "in spec_for",
            "spec_for() raised KeyError: 'toy'",
        ),
        (("--policy", "cannot_be_imported:Any"), "policy", "in weights", "ZeroDivisionError"),
    ],
)
def test_the_traceback_is_shown_and_kept(
    usage: Sparring, flags: tuple[str, ...], whose: str, frame: str, said: str
) -> None:
    base = ("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--episodes", "1")
    done = usage("run", *base, *flags, "--in-process", "--output", "out")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr.splitlines()[-1]
    frames = [line for line in kept(done.stderr, whose).splitlines() if line.startswith("  File")]
    if frame:
        assert frames[0].endswith((frame, "in <module>")), "it begins in the user's code"
        assert frames[-1].endswith(frame)


@pytest.mark.parametrize(
    ("benchmark", "said"),
    [
        (
            "NoTasks",
            "tasks() of the benchmark 'broken_here:NoTasks' found nothing by the name 'short'; it is to return",
        ),
        ("Names", "tasks() of the benchmark 'broken_here:Names' returned 'short', and not tasks; docs/benchmarks.md"),
    ],
)
def test_tasks_that_are_none_are_told_in_a_sentence(usage: Sparring, benchmark: str, said: str, tmp_path: Path) -> None:
    flags = ("--benchmark", f"broken_here:{benchmark}", "--task", "short", "--policy", "toy_policies:Forward")
    done = usage("run", *flags, "--episodes", "1", "--in-process", "--output", "out")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: {said}")
    assert not (tmp_path / "out").exists()


@pytest.mark.processes
def test_so_is_that_of_a_worker_that_cannot_get_ready(sparring: Sparring) -> None:
    base = ("--task", "short", "--policy", "toy_policies:Forward", "--episodes", "1", "--slots", "1")
    done = sparring("run", "--benchmark", "broken_here:Prepared", *base, "--output", "out")
    assert done.returncode == 2, done.stderr
    said = "prepare() of the benchmark 'broken_here:Prepared' raised LookupError: no GPU"
    assert said in done.stderr.splitlines()[-1]
    frames = [line for line in kept(done.stderr, "benchmark").splitlines() if line.startswith("  File")]
    assert len(frames) == 1
    assert frames[0].endswith("in prepare")


def test_the_folder_is_free_for_the_next_run(usage: Sparring) -> None:
    flags = ("run", "--task", "short", "--policy", "expert", "--episodes", "1", "--in-process", "--output", "out")
    assert usage(*flags, "--benchmark", "broken_here:Tasks").returncode == 2
    again = usage(*flags, "--benchmark", "toy")
    assert again.returncode == 0, again.stderr


def test_a_launcher_s_too(usage: Sparring) -> None:
    done = usage("run", "--benchmark", "toy", "--task", "short", "--policy", "expert", "--launcher", "broken", "--output", "out")  # fmt: skip  # noqa: E501
    assert done.returncode == 2
    assert kept(done.stderr, "launcher").rstrip().endswith("No module named 'no_such_module'")


def test_without_a_folder_of_a_name_it_is_in_a_new_one(usage: Sparring, tmp_path: Path) -> None:
    done = usage("run", "--benchmark", "broken_here:Tasks", "--task", "x", "--policy", "expert")
    assert done.returncode == 2
    assert "IndexError" in kept(done.stderr, "benchmark")
    assert len(list((tmp_path / "outputs").iterdir())) == 1


def test_a_foreign_folder_is_left_alone(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    done = usage("run", "--benchmark", "broken_here:Tasks", "--task", "x", "--policy", "expert", "--output", "mine")
    assert done.returncode == 2
    assert "IndexError: list index out of range" in done.stderr
    assert "in tasks" in done.stderr, "the traceback is shown all the same"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("command", [("ls", "tasks"), ("run", "--task", "x", "--policy", "expert", "--dry-run")])
def test_what_has_no_folder_shows_it(usage: Sparring, tmp_path: Path, command: tuple[str, ...]) -> None:
    done = usage(*command, "--benchmark", "cannot_be_imported:Any")
    assert done.returncode == 2
    assert "in weights" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: importing 'cannot_be_imported' failed: ZeroDivisionError")
    assert not (tmp_path / "outputs").exists()


def test_evaluate_keeps_it_in_its_folder(tmp_path: Path) -> None:
    with Evaluator() as evaluator, pytest.raises(UsageError) as refused:
        evaluator.evaluate(Forward(), benchmark="broken_here:Tasks", tasks="x", output="out")
    (file,) = (tmp_path / "out" / "errors").iterdir()
    assert f"(traceback: errors/{file.name})" in str(refused.value)
    assert isinstance(refused.value.__cause__, IndexError)
