"""`check_launcher()` passes launchers that do what they must, and sees what others do not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from toy_launcher import NiceLauncher, _Nice

from sparring import check_launcher
from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.launchers import registry
from sparring.orchestrator.launchers.base import Launcher, LauncherSettings, LaunchFailed, WorkerOrder
from sparring.orchestrator.launchers.keep_alive import keep_worker
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.rules import CheckFailed

WORKER = (sys.executable, "-m", "sparring.env_worker")


def test_ours_does_all_that(tmp_path: Path) -> None:
    assert [verdict.kind for verdict in check_launcher("process", benchmark="toy", task="short")] == ["ok"] * 6


def test_the_command_checks_somebody_elses_with_its_flags() -> None:
    flags = ["check", "launcher", "nice", "--benchmark", "toy", "--niceness", "3"]
    done = CliRunner().invoke(cli, flags, standalone_mode=False)
    assert done.return_value == 0, done.output
    assert "6 rules: 6 ok" in done.output


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
        started: list[_Nice] = []

        class Kept(_Nice):
            async def end(self) -> None:
                return

        async def start(name: str) -> Kept:
            command = [*WORKER, *order.arguments(benchmark, name)]
            log = order.folder / "log"
            with log.open("ab") as sink:
                started.append(Kept(await asyncio.create_subprocess_exec(*command, stderr=sink), log))
            return started[-1]  # type: ignore[return-value]

        await keep_worker(benchmark, start, rules=order.rules, results_of=order.results_of)


class StartsOnce(NiceLauncher):
    """Does not look after its worker, and has nothing to say of it."""

    async def _keep(self, benchmark: str, order: WorkerOrder) -> None:
        with (order.folder / "log").open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *WORKER, *order.arguments(benchmark, "the-only-one"), stderr=sink, start_new_session=True
            )
        try:
            if await process.wait() == 2:
                raise LaunchFailed("it did not work.")
            await asyncio.get_running_loop().create_future()
        finally:
            await _Nice(process, order.folder / "log").end()


class Mute(Launcher[LauncherSettings]):
    """Starts nothing, says nothing."""

    class Settings(LauncherSettings):
        depth: int = 3

    summary = "nothing"
    settings = Settings

    async def run(self, order: WorkerOrder) -> None:
        return


def failures(monkeypatch: pytest.MonkeyPatch, launcher: Launcher[Any], seconds: float) -> str:
    launcher.name = "theirs"
    # As if a package with it were installed.
    found = {**registry.all_launchers(), "theirs": launcher}
    monkeypatch.setattr(registry, "all_launchers", lambda: found)
    with pytest.raises(CheckFailed) as failed:
        check_launcher("theirs", benchmark="toy", task="short", seconds=seconds)
    return str(failed.value)


def test_workers_that_are_left_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    said = failures(monkeypatch, LeavesWorkers(), 60)
    assert "the launcher 'theirs': 2 of 6 rules do not hold" in said
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
