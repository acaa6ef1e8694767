"""`check_launcher()` passes launchers that do what they must, and sees what others do not."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import ROOT
from toy_launcher import NiceLauncher

from sparring import check_launcher
from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.cli.options import given
from sparring.orchestrator.compliance.checked_run import _kill
from sparring.orchestrator.compliance.launcher import settings_of_check
from sparring.orchestrator.launchers import registry
from sparring.orchestrator.launchers.base import Launcher, LauncherSettings, LaunchFailed, WorkerOrder
from sparring.orchestrator.launchers.command import CommandWorker
from sparring.orchestrator.launchers.keep_alive import keep_worker
from sparring.orchestrator.retry import DEFAULT_RULES
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.address import Address
from sparring.protos.rules import CheckFailed

# A launcher that forgets its workers, as one here does, leaves what Python says this of.
pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_ours_does_all_that(tmp_path: Path) -> None:
    assert [verdict.kind for verdict in check_launcher("process", benchmark="toy", task="short")] == ["ok"] * 7


@pytest.mark.everything
def test_the_example_in_the_docs_does_so_too_by_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "launchers.md").read_text()
    (code,) = re.findall(r"```python\n(# my_launchers\.py\n.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {"__name__": "my_launchers"}
    exec(code, scope)  # our own page
    install(monkeypatch, "ssh", scope["SshLauncher"]())
    # There is no other machine here: this ssh runs what it is told on this one.
    (tmp_path / "ssh").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    # The command's flags were made before it was installed, so they are given as settings.
    settings = {"ssh_host": "there", "ssh_python": sys.executable, "listen": "127.0.0.1:0"}
    monkeypatch.setattr("sparring.orchestrator.cli.commands.check.given", lambda values: {**given(values), **settings})
    done = CliRunner().invoke(cli, ["check", "launcher", "ssh", "--benchmark", "toy"], standalone_mode=False)
    assert done.return_value == 0, done.output
    assert "7 rules: 7 ok" in done.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["nice"], "--benchmark"),
        (["nise", "--benchmark", "toy"], "unknown launcher 'nise'"),
        (["nice", "--benchmark", "toy", "--niceness", "13"], "13 is unlucky"),
    ],
)
def test_what_cannot_be_tried_is_told(flags: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["check", "launcher", *flags])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


class LeavesWorkers(NiceLauncher):
    """Forgets them when it is told to stop."""

    async def _keep(self, benchmark: str, order: WorkerOrder) -> None:
        class Forgotten(CommandWorker):
            async def end(self) -> None:
                return

        async def start(name: str) -> CommandWorker:
            command = [sys.executable, *order.program(benchmark, name)]
            return await Forgotten.start(command, log=order.logs / "log", secret=order.join_token)

        await keep_worker(benchmark, start, rules=order.rules, results_of=order.results_of, given_up=order.given_up)


class StartsOnce(NiceLauncher):
    """Does not look after its worker, and has nothing to say of it."""

    async def _keep(self, benchmark: str, order: WorkerOrder) -> None:
        command = [sys.executable, *order.program(benchmark, "the-only-one")]
        worker = await CommandWorker.start(command, log=order.logs / "log", secret=order.join_token)
        try:
            if (await worker.wait()).code == 2:
                raise LaunchFailed("it did not work.")
            await asyncio.get_running_loop().create_future()
        finally:
            await worker.end()


class Mute(Launcher[LauncherSettings]):
    """Starts nothing, says nothing."""

    class Settings(LauncherSettings):
        depth: int = 3

    summary = "nothing"
    settings = Settings

    async def run(self, order: WorkerOrder) -> None:
        return


def install(monkeypatch: pytest.MonkeyPatch, name: str, launcher: Launcher[Any]) -> None:
    """As if a package with it were installed."""
    launcher.name = name
    found = {**registry.all_launchers(), name: launcher}
    monkeypatch.setattr(registry, "all_launchers", lambda: found)


def failures(monkeypatch: pytest.MonkeyPatch, launcher: Launcher[Any], seconds: float) -> str:
    install(monkeypatch, "theirs", launcher)
    with pytest.raises(CheckFailed) as failed:
        check_launcher("theirs", benchmark="toy", task="short", seconds=seconds)
    return str(failed.value)


@pytest.mark.everything
def test_workers_that_are_left_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    said = failures(monkeypatch, LeavesWorkers(), 60)
    gc.collect()  # now, and not in a test that has done nothing
    assert "the launcher 'theirs': 2 of 7 rules do not hold" in said
    assert "nothing of its workers is left.\n         processes are left: " in said
    assert "leaves nothing.\n         processes are left: " in said


def test_a_worker_that_is_not_replaced_is_missed_and_so_are_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    said = failures(monkeypatch, StartsOnce(), 5)
    assert "it takes more than 5 s" in said
    assert "it does not say what its workers said last: it did not work." in said


def test_a_launcher_that_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = failures(monkeypatch, Mute(), 3)
    assert "its setting 'depth' has no description" in said
    assert "run() returned, with nobody to keep alive" in said


def test_a_launcher_that_cannot_work_here_says_why() -> None:
    with pytest.raises(SparringError, match="cannot be loaded"):
        check_launcher("broken", benchmark="toy")


@pytest.mark.parametrize(("dialled", "killed"), [("127.0.0.1:4321", True), ("elsewhere:4321", False)])
def test_the_worker_of_a_run_elsewhere_is_not_killed(dialled: str, killed: bool, tmp_path: Path) -> None:
    order = WorkerOrder(
        run=settings_of_check("process", {"benchmark": "toy"}),
        folder=tmp_path,
        slots={"toy": 1},
        orchestrator=Address.unix(tmp_path / "work.sock"),
        public=Address.parse("127.0.0.1:4321"),
        sockets=tmp_path,
        logs=tmp_path,
        rules=DEFAULT_RULES,
        results_of=lambda worker: 0,
        explain=lambda worker, reason: None,
        join_token="the-secret-of-this-run",
    )
    waits = "import time; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", waits, f"--orchestrator={dialled}", "--name=toy-0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        try:
            assert _kill(order, "toy-0") == killed
        finally:
            worker.kill()
