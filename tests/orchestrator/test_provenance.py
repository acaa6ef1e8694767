"""What run.json says of where its numbers come from: times, commands, machines, packages, plug-ins, the commit."""

from __future__ import annotations

import json
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import Sparring

from sparring.orchestrator.cli.evaluation import command_line
from sparring.orchestrator.results.statistics import wilson
from sparring.protos import machine as machines

MINE = "import numpy\nfrom toy_policies import Forward as Mine\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A policy beside the user; and how to make believe that another process begins."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def forget() -> None:
        monkeypatch.delitem(sys.modules, "mine", raising=False)

    forget()
    return forget


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=N", "-c", "user.email=n@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(usage: Sparring, *more: str) -> dict[str, Any]:
    plan = ("--benchmark", "toy", "--task", "good", "--policy", "mine:Mine", "--episodes", "2", "--output", "out")
    done = usage("run", *plan, "--in-process", *more)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(Path("out/run.json").read_text())
    return document


def test_a_run_says_where_its_numbers_come_from(mine: Callable[[], None], usage: Sparring, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "mine.py")
    git(tmp_path, "commit", "-qm", "mine")
    document = run(usage, "--policy-arg", "gain=1")
    (execution,) = document["executions"]
    began, ended = (datetime.fromisoformat(execution[name]) for name in ("began", "ended"))
    assert began.utcoffset() == timedelta(0)
    assert timedelta(0) <= ended - began < timedelta(minutes=2)
    assert abs(time.time() - ended.timestamp()) < 60
    assert execution["command"].startswith("sparring run --benchmark toy --task good --policy mine:Mine --episodes 2")
    policy = document["policy"]
    assert policy["packages"]["numpy"]
    assert policy["machine"]["host"] == document["host"]["name"] == socket.gethostname()
    assert policy["machine"]["python"] == document["host"]["python"] == platform.python_version()
    assert policy["machine"]["cpu"] == document["host"]["cpu"] == document["machines"][socket.gethostname()]["cpu"]
    assert (policy["commit"], policy["modified"]) == (git(tmp_path, "rev-parse", "HEAD"), False)
    plugins = {(p["kind"], p["name"]): (p["package"], p["version"]) for p in document["plugins"]}
    assert plugins["benchmark", "toy"] == ("toy-benchmark", "1.0")
    assert {kind for kind, _ in plugins} >= {"benchmark", "launcher"}
    for rate in (document["overall"], document["group_rates"]["good"]):
        assert rate["interval"] == pytest.approx(list(wilson(4, 4)))
    assert document["task_rates"]["short"]["n"] == 2
    (maker,) = document["makers"].values()
    assert list(document["programs"][maker["programs"]["policy"]]["files"]) == ["mine.py", "toy_policies.py"]
    assert list(document["programs"][maker["programs"]["benchmark"]]["files"]) == ["toy_benchmark.py"]

    mine()
    (tmp_path / "mine.py").write_text(MINE + "# more\n")
    document = run(usage, "--policy-arg", "gain=1", "--episodes", "3", "--accept-changes")
    assert [type(e["ended"]) for e in document["executions"]] == [str, str]
    assert document["executions"][0] == execution
    assert document["policy"]["modified"] is True


def test_the_machine_is_known_without_importing_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(sys.modules)
    assert machines.machine()["cpu"]
    assert set(sys.modules) == before
    # As the driver of a machine with GPUs writes it; this one may have none.
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H100\nIRQ: 5\n")
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19\nGCC\n")
    monkeypatch.setattr(machines, "_NVIDIA", tmp_path)
    found = machines.machine()
    assert (found["gpu"], found["driver"]) == ("NVIDIA H100", "535.129.03")
    for number in range(2, 9):
        (tmp_path / "gpus" / f"0000:0{number}:00.0").mkdir()
        (tmp_path / "gpus" / f"0000:0{number}:00.0" / "information").write_text("Model: NVIDIA H100\n")
    (tmp_path / "gpus" / "0000:09:00.0").mkdir()
    (tmp_path / "gpus" / "0000:09:00.0" / "information").write_text("Model: NVIDIA T4\n")
    assert machines.machine()["gpu"] == "8 × NVIDIA H100, NVIDIA T4"


def test_cuda_is_that_of_a_torch_that_somebody_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in, because importing torch takes seconds, and that of this machine may be built without CUDA.
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert "cuda" not in machines.machine()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda="12.8")))  # type: ignore[arg-type]
    assert machines.machine()["cuda"] == "12.8"


def test_no_secret_is_in_the_command_line() -> None:
    typed = ["/usr/bin/sparring", "run", "--policy-arg", "hub_token=abc", "--policy-arg=api_key=abc", "--seed", "3",
             "--policy-token-file", "secrets/token", "--join-token-file=my token",
             "--policy-arg", "PASSWORD=a\nb"]  # fmt: skip
    assert command_line(typed) == (
        "sparring run --policy-arg hub_token=... --policy-arg=api_key=... --seed 3 "
        "--policy-token-file secrets/token '--join-token-file=my token' --policy-arg PASSWORD=..."
    )
