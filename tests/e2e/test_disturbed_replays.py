"""Episodes played again while workers are killed, elsewhere than they were played, and with no room left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from chaos.disk import SmallDisk
from support import Sparring, StartSparring, processes_of, sampled, wait_for

from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.protos.errors import UsageError

pytestmark = pytest.mark.processes

PLAN = ("run", "--benchmark", "toy", "--task", "short,long", "--policy", "toy_policies:Wanderer", "--episodes", "2")
SLOW = (*PLAN, "--benchmark-arg", "step_seconds=0.03", "--in-process")


def victim(folder: Path, kind: str) -> psutil.Process | None:
    """A worker that plays for a command in a folder, or one of its slots."""
    try:
        workers = [each for each in processes_of(folder) if "sparring.env_worker" in each.cmdline()]
        if kind == "worker":
            return workers[0] if workers and len(workers[0].children(recursive=True)) > 2 else None
        slots = [child for worker in workers for child in worker.children(recursive=True) if not child.children()]
    except psutil.NoSuchProcess:  # it has ended while it was looked at
        return None
    return slots[-1] if len(slots) > 2 else None  # beside the resource tracker


@pytest.mark.parametrize(
    ("command", "kind"),
    sampled([("verify", "worker"), ("verify", "slot"), ("film", "worker"), ("film", "slot")], ("verify", "worker")),
)
def test_a_worker_that_is_killed_changes_nothing(
    command: str, kind: str, usage: Sparring, start_sparring: StartSparring, tmp_path: Path
) -> None:
    assert usage(*SLOW, "--output", "run").returncode == 0
    flags = ("--all",) if command == "verify" else ("--episodes", "all")
    process = start_sparring(command, "run", "--slots", "2", "--json", *flags)
    found: list[psutil.Process] = []

    def there() -> bool:
        found[:] = filter(None, [victim(tmp_path, kind)])
        return bool(found)

    wait_for(there)
    found[0].send_signal(signal.SIGKILL)
    said, logged = process.communicate(timeout=120)
    assert process.returncode == 0, logged
    told = json.loads(said)
    if command == "verify":
        assert told["problems"] == []
        assert [each["verdict"] for each in told["episodes"]] == ["same"] * 4
    else:
        assert (len(told["films"]), told["missing"]) == (4, {})
        assert sorted(path.suffix for path in (tmp_path / "run" / "films").iterdir()) == [".mp4"] * 4


def test_actions_are_those_of_the_attempt_that_counts(
    sparring: Sparring, start_sparring: StartSparring, tmp_path: Path
) -> None:
    """Episodes fail and are tried again, a slot and then the orchestrator are killed, and the run is resumed."""
    (tmp_path / "flags").mkdir()
    process = start_sparring(
        "run", "--benchmark", "toy", "--task", "flaky,long", "--policy", "toy_policies:Wanderer", "--episodes", "4",
        "--slots", "2", "--retries", "2", "--benchmark-arg", "step_seconds=0.02",
        "--benchmark-arg", f"flag_folder={tmp_path / 'flags'}", "--output", "run",
    )  # fmt: skip

    def recorded() -> int:
        try:
            return len(RecordedRun.in_folder(tmp_path / "run").rows)
        except UsageError:  # it is not there yet
            return 0

    wait_for(lambda: recorded() >= 1)
    wait_for(lambda: victim(tmp_path, "slot") is not None)
    slot = victim(tmp_path, "slot")
    assert slot is not None
    slot.send_signal(signal.SIGKILL)
    wait_for(lambda: recorded() >= 3)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert 3 <= recorded() < 8, "the test kills nothing"
    wait_for(lambda: processes_of(tmp_path) == [])
    done = sparring("verify", "run", "--all", "--in-process", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["problems"]) == (3, []), "killed is not changed by somebody"
    assert {each["verdict"] for each in found["episodes"]} == {"same"}
    resumed = sparring("resume", "run")
    assert resumed.returncode == 0, resumed.stderr
    done = sparring("verify", "run", "--all", "--in-process", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each["verdict"] for each in json.loads(done.stdout)["episodes"]] == ["same"] * 8
    rows = RecordedRun.in_folder(tmp_path / "run").rows.values()
    assert max(row.attempts for row in rows) > 1, "nothing was tried again"


ELSEWHERE = """
import socket, sys
socket.gethostname = lambda: "another-machine"
from sparring.orchestrator.cli.main import main
sys.exit(main())
"""


def test_a_folder_that_was_carried_to_another_machine(usage: Sparring, tmp_path: Path) -> None:
    """In another place, under another host's name, with nothing around it that the run had."""
    assert usage(*PLAN, "--in-process", "--output", "run").returncode == 0
    other = tmp_path / "home" / "somebody" / "downloads"
    other.mkdir(parents=True)
    shutil.move(tmp_path / "run", other / "theirs")

    def there(*arguments: str) -> tuple[int, Any, str]:
        # In a process of its own: hosts' names are asked for in several places.
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, *arguments],
            cwd=other,
            env={**os.environ, "HOME": str(other), "TMPDIR": str(other)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, json.loads(done.stdout or "null"), done.stderr

    code, told, said = there("verify", "theirs", "--all", "--in-process", "--json")
    assert (code, told["problems"]) == (0, []), said
    assert {each["verdict"] for each in told["episodes"]} <= {"same", "close"}
    assert "another-machine" in json.dumps(told) + said
    code, told, said = there("film", "theirs", "--episodes", "all", "--in-process", "--json")
    assert (code, len(told["films"])) == (0, 4), said
    assert "another-machine" in said


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    small = SmallDisk(tmp_path / "disk")
    yield small
    small.close()


@pytest.mark.requires("mount")
def test_a_disk_that_is_really_full_while_films_are_made(usage: Sparring, tmp_path: Path, disk: SmallDisk) -> None:
    assert usage(*PLAN, "--in-process", "--output", "run", "--benchmark-arg", "noise=128").returncode == 0
    films = tmp_path / "disk" / "films"
    disk.fill()
    done = usage("film", "run", "--episodes", "all", "--in-process", "--output", "disk/films")
    assert done.returncode in (1, 2)
    assert re.search("No space left on device|disk is full", done.stderr)
    assert "Traceback" not in done.stderr
    disk.free()
    done = usage("film", "run", "--episodes", "all", "--in-process", "--output", "disk/films", "--json")
    assert (done.returncode, len(json.loads(done.stdout)["films"])) == (0, 4)
    assert sorted(path.suffix for path in films.iterdir()) == [".mp4"] * 4, "something was left"
    before = {path.name: path.read_bytes() for path in films.iterdir()}
    room = shutil.disk_usage(films).free
    (tmp_path / "disk" / "ballast").write_bytes(bytes(room - max(map(len, before.values())) // 2))  # half a film
    done = usage("film", "run", "--episodes", "all", "--in-process", "--output", "disk/films")
    assert done.returncode in (1, 3)
    assert re.search("No space left on device|disk is full", done.stderr)
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in films.iterdir()} == before, "films that are made stay"


@pytest.mark.requires("mount")
def test_a_run_whose_disk_is_full_while_it_films_keeps_its_outcomes_and_films_when_there_is_room(
    usage: Sparring, tmp_path: Path, disk: SmallDisk
) -> None:
    plan = (*PLAN, "--in-process", "--benchmark-arg", "noise=256", "--output", "disk/run")
    assert usage(*plan).returncode == 0
    folder = tmp_path / "disk" / "run"
    rows = (folder / "episodes.csv").read_text()
    room = shutil.disk_usage(tmp_path / "disk").free
    (tmp_path / "disk" / "ballast").write_bytes(bytes(room - 150_000))  # less than a film of noise needs
    done = usage(*plan, "--video", "all")
    assert (done.returncode, "cannot be written: No space left on device" in done.stderr) == (1, True), done.stderr
    assert "Recorded: 4 of 4 episodes. Go on with: sparring resume disk/run" in done.stderr
    assert not [path for path in (folder / "videos").rglob("*") if path.is_file()], "half a film was left"
    assert (folder / "episodes.csv").read_text() == rows
    disk.free()
    assert usage("resume", "disk/run").returncode == 0
    assert sorted(path.suffix for path in (folder / "videos").iterdir()) == [".mp4"] * 4
    assert usage("verify", "disk/run", "--all", "--in-process").returncode == 0
