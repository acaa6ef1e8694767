"""Result folders are trusted with nothing: playing one again runs no code that it names, unless the user allows it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import Sparring

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.settings import ReplaySettings
from sparring.orchestrator.replay.trust import NotTrusted, check_trusted
from sparring.orchestrator.settings import Evaluation
from sparring.protos.errors import UsageError

HERE = "--in-process"
EVIL = "from pathlib import Path\nPath('PWNED').touch()\nfrom toy_benchmark import Toy\nclass B(Toy):\n    pass\n"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three episodes."""
    from toy_policies import Wanderer

    from sparring import Evaluator

    folder = tmp_path_factory.mktemp("pristine") / "run"
    with Evaluator() as evaluator:
        evaluator.evaluate(Wanderer(), benchmark="toy", tasks="short", episodes=3, in_process=True, output=folder)
    return folder


@pytest.fixture
def strangers(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it in the current folder, with a module in it; no other test has a module of the folder's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    shutil.copytree(pristine, tmp_path / "their_run")
    (tmp_path / "their_run" / "evil.py").write_text(EVIL)
    return tmp_path / "their_run"


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((folder / "run.json").read_text())
    edit(document)
    (folder / "run.json").write_text(json.dumps(document))


def name_code(document: dict[str, Any]) -> None:
    document["settings"]["benchmark"] = "their_run.evil:B"


COMMANDS = {
    "verify": ["verify", "their_run", HERE],
    "film": ["film", "their_run", HERE, "--episodes", "all"],
    "export": ["export", "their_run", "out", "--format", "npz", HERE],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_imports_a_benchmark_that_a_folder_names(usage: Sparring, strangers: Path, command: str) -> None:
    change(strangers, name_code)
    change(strangers, lambda document: document["tasks"]["short"].update(benchmark="their_run.evil.B"))
    with closing(sqlite3.connect(strangers / "journal.sqlite", isolation_level=None)) as journal:
        for table in ("episodes", "actions"):
            journal.execute(f"UPDATE {table} SET benchmark = 'their_run.evil.B'")
        journal.execute("UPDATE episodes SET checksum = 0")
    done = usage(*COMMANDS[command])
    assert done.returncode == 2, done.stderr
    assert "the benchmark 'their_run.evil:B' is a class of the module 'their_run.evil'" in done.stderr
    assert "--trust-benchmark their_run.evil:B" in done.stderr
    assert not Path("PWNED").exists()
    assert "their_run.evil" not in sys.modules
    assert usage(*COMMANDS[command], "--trust-benchmark", "other:B").returncode == 2
    usage(*COMMANDS[command], "--trust-benchmark", "their_run.evil:B")
    assert Path("PWNED").exists(), "it was allowed, so that this test would see it imported"
    sys.modules.pop("their_run.evil", None)


def test_a_plan_of_a_part_that_the_settings_do_not_know_is_damage(usage: Sparring, strangers: Path) -> None:
    change(strangers, name_code)
    done = usage("verify", "their_run", HERE)
    assert done.returncode == 2
    assert "its plan has tasks of 'toy', which its settings do not know" in done.stderr
    assert not Path("PWNED").exists()


@pytest.mark.processes
def test_workers_do_not_look_in_the_folder_that_one_stands_in(
    usage: Sparring, strangers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(strangers)
    (strangers / "numpy.py").write_text("from pathlib import Path\nPath('PWNED').touch()\n")
    done = usage("verify", ".", "--slots", "1")
    assert done.returncode == 0, done.stderr
    assert not Path("PWNED").exists()


def gym(task: str, **arguments: Any) -> tuple[list[Evaluation], dict[str, list[Task]]]:
    part = Evaluation(benchmark="gym", task="CartPole-v1", benchmark_arg=arguments)
    return [part], {"gym": [Task(task, task, task)]}


@pytest.mark.parametrize(
    ("task", "module"),
    [("dl.evil:CartPole-v1", "dl.evil"), ("a b:X-v0", "a b"), ("evil/X-v0", "evil"), ("e-v:n/X-v0", "e-v")],
)
def test_gymnasium_tasks_that_import_modules_are_refused(task: str, module: str) -> None:
    with pytest.raises(NotTrusted, match=f"imports the module '{module}'"):
        check_trusted(*gym(task))
    check_trusted(*gym(task), [module])
    check_trusted(*gym("CartPole-v1"))
    with pytest.raises(NotTrusted, match="imports the module 'evil'"):
        check_trusted([Evaluation(benchmark="gym", task="evil:X-v0")], {"gym": []})


def test_arguments_of_gymnasium_are_not_handed_on_unasked() -> None:
    with pytest.raises(NotTrusted, match=r"hands kwargs=\{'env_id': 'evil:X'\} to code"):
        check_trusted(*gym("GymV21Environment-v0", kwargs={"env_id": "evil:X"}))
    check_trusted(*gym("CartPole-v1", render=True))
    check_trusted(*gym("CartPole-v1", kwargs={"a": 1}), ["gym"])


def test_an_installed_benchmark_is_played_by_its_name(usage: Sparring, strangers: Path) -> None:
    assert usage("verify", "their_run", HERE).returncode == 0


def test_where_assets_are_is_not_for_the_folder_to_say(
    strangers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparring.env_worker.benchmark import Assets
    from sparring.env_worker.registry import get_benchmark

    monkeypatch.setattr(type(get_benchmark("toy")), "assets", Assets("TOY_ASSETS"))
    saved = RecordedRun.in_folder(strangers).document.settings
    theirs = {**saved, "assets": str(strangers), "benchmark_arg": {"assets": str(strangers)}}
    made = ReplaySettings().of(theirs, tmp_path / "again", ["toy"])
    assert (made.worker.assets, made.plan.parts[0].benchmark_arg) == (None, {})
    assert ReplaySettings({"assets": tmp_path}).of(theirs, tmp_path / "again", ["toy"]).worker.assets == tmp_path


@pytest.mark.parametrize("wrong", [5, None, ["toy"], {"a": 1}])
def test_a_benchmark_that_is_no_name_is_damage(strangers: Path, wrong: Any) -> None:
    change(strangers, lambda document: document["settings"].update(benchmark=wrong))
    with pytest.raises(UsageError, match="damaged: benchmark"):
        _ = RecordedRun.in_folder(strangers).parts
