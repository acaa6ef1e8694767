"""Runs whose workers are containers, on a real engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from certificates import write_secret
from container_support import PLAN, SLOW, BuildImage, Proxy, attack_from, containers
from support import Sparring, StartSparring, free_port, read_csv, recorded, wait_for

from sparring.orchestrator.launchers.base import LaunchFailed
from sparring.orchestrator.launchers.docker.engine import HARDENED, Engine
from sparring.orchestrator.launchers.docker.fetch import fetch_into_volume

pytestmark = pytest.mark.requires("docker")

JOIN_TOKEN = "a-secret-of-those-who-join"


@pytest.mark.parametrize("connection", ["unix", "tcp", "every interface"])
def test_the_numbers_are_those_of_processes(
    connection: str, sparring: Sparring, engine: Engine, toy_image: str, calm: Path, tmp_path: Path
) -> None:
    if connection == "every interface":
        write_secret(tmp_path / "join-token", JOIN_TOKEN)
        flags = ["--worker-connection", "tcp", "--listen", f"0.0.0.0:{free_port()}", "--join-token-file", "join-token"]
    else:
        flags = ["--worker-connection", connection]
    done = sparring("run", *PLAN, "--launcher", "docker", "--image", f"toy={toy_image}", *flags, "--output", "out")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "out") == read_csv(calm)
    assert containers(engine, tmp_path) == []


OWN = """from toy_benchmark import Toy

class Mine(Toy):
    name = "mine"
"""


def test_a_class_beside_the_user_is_played_where_the_image_has_its_module(
    sparring: Sparring, build_image: BuildImage, toy_image: str, calm: Path, tmp_path: Path
) -> None:
    (tmp_path / "my_own.py").write_text(OWN)
    plan = ("--benchmark", "my_own:Mine", *PLAN[2:], "--launcher", "docker")
    lines = OWN.replace("\n", "\\n")
    copied = f"RUN mkdir /own && printf '{lines}' > /own/my_own.py"
    image = build_image("own", "USER root", copied, "ENV PYTHONPATH=/own:$PYTHONPATH", "USER 10001")
    done = sparring("run", *plan, "--image", f"my_own:Mine={image}", "--output", "out")
    assert done.returncode == 0, done.stderr
    columns = ("task", "index", "seed", "outcome", "steps", "reward_sum")
    played, expected = ([[row[name] for name in columns] for row in read_csv(out)] for out in (tmp_path / "out", calm))
    assert played == expected
    without = sparring("run", *plan, "--image", f"my_own:Mine={toy_image}", "--output", "without")
    assert without.returncode == 1
    assert "there is no module 'my_own' to take a benchmark from" in without.stderr
    assert "needs it there: in its image, on its PYTHONPATH" in without.stderr
    unnamed = sparring("run", *plan, "--output", "unnamed")
    assert unnamed.returncode == 2
    assert "--image my_own:Mine=me/mine:1.0" in unnamed.stderr


def test_a_container_is_labelled_limited_and_without_rights(
    start_sparring: StartSparring, engine: Engine, build_image: BuildImage, tmp_path: Path
) -> None:
    image = build_image("root", "USER root")  # not even that one runs as root
    write_secret(tmp_path / "join-token", JOIN_TOKEN)
    process = start_sparring(
        "run", *SLOW, "--launcher", "docker", "--image", f"toy={image}", "--worker-memory", "700m", "--output", "o",
        "--join-token-file", "join-token",
    )  # fmt: skip
    wait_for(lambda: recorded(tmp_path / "o") >= 1, seconds=90)
    (container,) = containers(engine, tmp_path)
    assert JOIN_TOKEN not in json.dumps(engine.client.api.inspect_container(container.id)), "it came by standard input"
    about, limits = container.attrs["Config"], container.attrs["HostConfig"]
    assert about["Labels"]["dev.sparring.run"] == str(tmp_path / "o")
    assert about["Labels"]["dev.sparring.worker"] == "toy-0"
    assert container.name.startswith("sparring-")
    assert container.name.endswith("-toy-0")
    assert limits["Memory"] == limits["MemorySwap"] == 700 * 2**20
    assert limits["PidsLimit"] == 256 + 2 * 128
    assert limits["CapDrop"] == ["ALL"]
    assert limits["SecurityOpt"] == ["no-new-privileges"]
    assert limits["ReadonlyRootfs"] is True
    assert limits["Privileged"] is False
    assert limits["NetworkMode"] != "host"
    assert all(not mount["RW"] for mount in container.attrs["Mounts"] if mount["Type"] == "bind")
    look = ["python", "-c", "import os; print(os.getuid()); open('/opt/x', 'w')"]
    code, (said, errors) = container.exec_run(look, demux=True)
    assert said == b"10001\n"
    assert b"Read-only file system" in errors
    assert code == 1
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_a_killed_container_is_replaced_and_no_number_changes(
    start_sparring: StartSparring, engine: Engine, toy_image: str, calm: Path, tmp_path: Path
) -> None:
    process = start_sparring("run", *SLOW, "--launcher", "docker", "--image", f"toy={toy_image}", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=90)
    (container,) = containers(engine, tmp_path)
    container.kill()
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert "worker toy-0 ended with exit code 137" in errors
    assert "worker toy-1 joined" in errors
    with sqlite3.connect(tmp_path / "out" / "journal.sqlite") as journal:
        notes = [row[0] for row in journal.execute("SELECT message FROM events WHERE kind = 'lost'")]
    assert "worker toy-0 ended with exit code 137" in notes, "why an episode was lost"
    assert read_csv(tmp_path / "out") == read_csv(calm)
    assert containers(engine, tmp_path) == []


def test_an_unhealthy_container_is_replaced_and_no_number_changes(
    start_sparring: StartSparring, engine: Engine, build_image: BuildImage, calm: Path, tmp_path: Path
) -> None:
    image = build_image("sick", "HEALTHCHECK --interval=1s --timeout=30s --retries=2 CMD test ! -e /tmp/sick")
    process = start_sparring("run", *SLOW, "--launcher", "docker", "--image", f"toy={image}", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=90)
    (container,) = containers(engine, tmp_path)
    assert container.exec_run(["touch", "/tmp/sick"]).exit_code == 0
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert "worker toy-0 is unhealthy: its health check failed" in errors
    assert "worker toy-1 joined" in errors
    assert read_csv(tmp_path / "out") == read_csv(calm)
    assert containers(engine, tmp_path) == []


def test_a_hostile_simulator_reaches_three_sockets_and_can_replace_none(
    start_sparring: StartSparring, engine: Engine, toy_image: str, calm: Path, tmp_path: Path
) -> None:
    process = start_sparring("run", *SLOW, "--launcher", "docker", "--image", f"toy={toy_image}", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=90)
    (container,) = containers(engine, tmp_path)
    (mount,) = [mount for mount in container.attrs["Mounts"] if mount["Type"] == "bind"]
    sockets = [f"{mount['Destination']}/{name}" for name in ("policy.sock", "policy.sock.frames", "work.sock")]
    found = attack_from(container, *sockets)
    for path in sockets:
        assert found.pop(f"connect {path}") == "done"
    assert found.pop("interfaces") == ["lo"]
    assert found.pop("engine") is False
    assert set(found.pop("capabilities")) == {"0000000000000000"}
    assert {found.pop("root"), found.pop("others")} <= {"Operation not permitted", "Permission denied"}
    assert set(found.values()) == {"Read-only file system"}, found
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert read_csv(tmp_path / "out") == read_csv(calm)


class Fetching:
    """What a container is made of that downloads assets; `name` is the benchmark's."""

    def __init__(self, image: str, name: str, folder: Path, volume: str) -> None:
        from docker.types import Mount

        self._options = {
            "image": image,
            "command": ["fetch", name],
            "labels": {"dev.sparring.run": str(folder), "dev.sparring.worker": "assets"},
            "mounts": [Mount("/cache", volume, type="volume")],
            **HARDENED,
        }

    def fetching(self) -> dict[str, object]:
        return self._options


def test_assets_are_downloaded_in_a_container_that_leaves_nothing_but_them(
    engine: Engine, build_image: BuildImage, toy_image: str, tmp_path: Path
) -> None:
    from docker.types import Mount

    volume = f"sparring-test-{os.getpid()}"
    image = build_image("fetching", """ENTRYPOINT ["sh", "-c", "echo $0 $1 > /cache/asked"]""")
    try:
        asyncio.run(fetch_into_volume(engine, Fetching(image, "toy", tmp_path, volume)))  # type: ignore[arg-type]
        assert containers(engine, tmp_path) == []
        reading = [Mount("/cache", volume, type="volume", read_only=True)]
        found = engine.client.containers.run(toy_image, ["/cache/asked"], entrypoint="cat", mounts=reading, remove=True)
        assert found == b"fetch toy\n"
        with pytest.raises(LaunchFailed, match="unknown benchmark 'nobody'"):
            asyncio.run(fetch_into_volume(engine, Fetching(toy_image, "nobody", tmp_path, volume)))  # type: ignore[arg-type]
        assert containers(engine, tmp_path) == []
    finally:
        engine.client.volumes.get(volume).remove()


def test_ctrl_c_removes_the_containers_and_the_run_resumes(
    sparring: Sparring, start_sparring: StartSparring, engine: Engine, toy_image: str, calm: Path, tmp_path: Path
) -> None:
    process = start_sparring("run", *SLOW, "--launcher", "docker", "--image", f"toy={toy_image}", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=90)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert containers(engine, tmp_path) == []
    assert recorded(tmp_path / "out") < 8
    done = sparring("resume", "out")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "out") == read_csv(calm)


def test_sigterm_while_the_container_is_made(
    start_sparring: StartSparring, engine: Engine, toy_image: str, tmp_path: Path
) -> None:
    process = start_sparring("run", *SLOW, "--launcher", "docker", "--image", f"toy={toy_image}", "--output", "out")
    # Its log is made in the moment before the container is.
    wait_for(lambda: (tmp_path / "out" / "logs" / "worker-toy.log").exists(), seconds=90)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert containers(engine, tmp_path) == []


def test_what_a_killed_orchestrator_leaves_ends_by_itself_and_is_cleaned_up(
    start_sparring: StartSparring, engine: Engine, toy_image: str, tmp_path: Path
) -> None:
    process = start_sparring(
        "run",
        *SLOW,
        "--benchmark-arg",
        "step_seconds=0.3",
        "--launcher",
        "docker",
        "--image",
        f"toy={toy_image}",
        "--output",
        "out",
    )
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=90)
    assert str(tmp_path) not in clean("--dry-run"), "a run that is going on is left alone"
    process.kill()
    process.communicate()
    (left,) = containers(engine, tmp_path)
    wait_for(lambda: not _state(left)["Running"])
    assert _state(left)["ExitCode"] == 1
    assert f"would remove {left.name}" in clean("--dry-run")
    assert len(containers(engine, tmp_path)) == 1
    said = clean()
    assert f"removed {left.name} (exited): worker toy-0 of the run in {str(tmp_path / 'out')!r}" in said
    assert containers(engine, tmp_path) == []
    assert str(tmp_path) not in clean()


def test_a_resumed_run_removes_what_it_left_when_it_was_killed(
    sparring: Sparring, start_sparring: StartSparring, engine: Engine, toy_image: str, calm: Path, tmp_path: Path
) -> None:
    process = start_sparring("run", *SLOW, "--launcher", "docker", "--image", f"toy={toy_image}", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=90)
    process.kill()
    process.communicate()
    assert len(containers(engine, tmp_path)) == 1
    done = sparring("resume", "out")
    assert done.returncode == 0, done.stderr
    assert "left by an earlier execution" in done.stderr
    assert read_csv(tmp_path / "out") == read_csv(calm)
    assert containers(engine, tmp_path) == []


def test_an_engine_that_dies_stops_the_run_and_loses_nothing(
    sparring: Sparring,
    start_sparring: StartSparring,
    engine: Engine,
    toy_image: str,
    calm: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not engine.local:
        pytest.fail("this test needs an engine on this machine")
    proxy = Proxy(tmp_path / "engine.sock", engine.address.removeprefix("unix://"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    process = start_sparring("run", *SLOW, "--launcher", "docker", "--image", f"toy={toy_image}", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=90)
    proxy.close()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "does not answer any more" in errors
    assert "sparring resume out" in errors
    assert "Traceback" not in errors
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "unfinished"
    monkeypatch.delenv("DOCKER_HOST")
    done = sparring("resume", "out")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "out") == read_csv(calm)
    assert containers(engine, tmp_path) == []


def test_logs_of_all_generations_are_collected_to_the_last_line(
    sparring: Sparring, engine: Engine, build_image: BuildImage, tmp_path: Path
) -> None:
    crashing = build_image("crashing", 'ENTRYPOINT ["sh", "-c", "(seq 1000; echo no air) >&2; exit 7"]')
    done = sparring("run", *PLAN, "--launcher", "docker", "--image", f"toy={crashing}", "--output", "out")
    assert done.returncode == 1
    assert "workers die before they finish an episode, 5 times in a row; the last one ended with exit" in done.stderr
    assert "no air" in done.stderr
    lines = (tmp_path / "out" / "logs" / "worker-toy.log").read_text().splitlines()
    assert lines.count("no air") == 5
    assert lines.count("1000") == 5
    assert containers(engine, tmp_path) == []


def test_what_a_slot_logs_is_collected(sparring: Sparring, toy_image: str, tmp_path: Path) -> None:
    done = sparring(
        "run", "--benchmark", "toy", "--task", "raises", "--policy", "zero", "--episodes", "1", "--retries", "0",
        "--launcher", "docker", "--image", f"toy={toy_image}", "--output", "out",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "ValueError: the world came apart" in (tmp_path / "out" / "logs" / "worker-toy.log").read_text()


def test_a_worker_that_runs_out_of_memory(sparring: Sparring, engine: Engine, toy_image: str, tmp_path: Path) -> None:
    done = sparring(
        "run", *PLAN, "--launcher", "docker", "--image", f"toy={toy_image}", "--worker-memory", "20m", "--output", "o"
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "out of memory (OOM) at its limit of 20 MiB; raise --worker-memory or lower --slots" in done.stderr
    for generation in range(4):
        assert f"worker toy-{generation} was killed: out of memory (OOM)" in done.stderr, "each time a fresh container"
    assert "workers die before they finish an episode" in done.stderr
    assert "sparring resume o" in done.stderr
    assert containers(engine, tmp_path) == []


def test_a_slot_that_runs_out_of_memory_is_an_error_that_says_so(
    sparring: Sparring, toy_image: str, tmp_path: Path
) -> None:
    done = sparring(
        "run", "--benchmark", "toy", "--task", "hungry,short", "--policy", "zero", "--episodes", "1", "--retries", "1",
        "--slots", "1", "--launcher", "docker", "--image", f"toy={toy_image}", "--worker-memory", "512m",
        "--output", "out",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    rows = {row["task"]: row for row in read_csv(tmp_path / "out")}
    assert rows["short"]["outcome"] == "failure"
    assert rows["hungry"]["outcome"] == "error"
    assert rows["hungry"]["attempts"] == "2"
    assert "out of memory (OOM)" in rows["hungry"]["error"]
    assert "limit of 512 MiB" in rows["hungry"]["error"]


def clean(*flags: str) -> str:
    command = [sys.executable, "-m", "sparring", "clean", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def _state(container: object) -> dict[str, object]:
    container.reload()  # type: ignore[attr-defined]
    return container.attrs["State"]  # type: ignore[attr-defined,no-any-return]
