"""What a run takes, lends and tells at most: what just fits, and what is one more."""

from __future__ import annotations

import asyncio
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coordinated import Hand, Run
from support import wait_for

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.coordination import program_check, recorder, work_service
from sparring.orchestrator.launchers.ray import actor, cluster
from sparring.orchestrator.launchers.slurm import server_program
from sparring.orchestrator.machine import capacity, sockets
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.run import scheduler
from sparring.orchestrator.run.scheduler import Scheduler, SlotId
from sparring.orchestrator.serving import images, stats
from sparring.orchestrator.settings import plan, read_settings
from sparring.orchestrator.trackers import kept_ids, mlflow
from sparring.protos import evaluation_pb2 as pb
from sparring.protos import policy_pb2
from sparring.protos.errors import UsageError

RUN = {"benchmark": "toy", "task": "short", "policy": "zero"}


def test_the_last_episodes_seed() -> None:
    assert read_settings({**RUN, "seed": plan.MAX_SEED - 4, "episodes": 5}).plan.seed == plan.MAX_SEED - 4
    with pytest.raises(UsageError, match="the largest that can be recorded"):
        read_settings({**RUN, "seed": plan.MAX_SEED - 3, "episodes": 5})


def test_the_number_of_a_lease_fits_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def largest(below: int) -> int:
        return below - 1

    def lent() -> int:
        lease = Scheduler(Plan({"toy": [Task("x", "x", "g")]}, 1, seed=1)).lease(SlotId("toy", "w", 0))
        assert lease is not None
        return lease.number

    monkeypatch.setattr(secrets, "randbelow", largest)
    assert lent() == scheduler._MOST_LEASES
    assert pb.Lease(lease=scheduler._MOST_LEASES).lease == scheduler._MOST_LEASES
    monkeypatch.setattr(secrets, "randbelow", lambda below: 0)
    assert lent() == 1, "and 0 is none"


def test_warnings_of_benchmarks_are_told_once_and_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_MOST_WARNINGS", 2)

    async def work() -> list[str]:
        run = Run(tmp_path / "run", episodes=3)
        worker = Hand(run)
        for number in range(3):
            said = [f"look {number}", "look 0"]
            worker.says(result=pb.Result(lease=worker.takes().lease, outcome=pb.OUTCOME_SUCCESS, warnings=said))
        run.journal.close()
        return list(run.watcher.warnings)

    assert asyncio.run(asyncio.wait_for(work(), 60)) == ["look 0", "look 1"]


def test_differences_of_programs_that_a_sentence_has() -> None:
    most = program_check._MOST_LINES
    assert program_check._cut(["x"] * most) == ["x"] * most
    assert program_check._cut(["x"] * (most + 2)) == ["x"] * most + ["and 2 more"]


def test_streams_of_one_connection_are_what_grpc_is_told() -> None:
    """That gRPC holds it is shown with a real server, for the policy's port (tests/policy_server/test_limits.py)."""
    assert dict(work_service._OPTIONS)["grpc.max_concurrent_streams"] == work_service._MOST_STREAMS


def test_slots_that_are_taken_without_being_asked_for() -> None:
    most = capacity.MAX_SLOTS
    assert capacity.Capacity(1000).slots(most - 1) == most - 1
    assert capacity.Capacity(1000).slots(most + 1) == most


def test_what_is_no_limit_of_memory(tmp_path: Path) -> None:
    for allowed, left in ((capacity._NO_LIMIT - 1, [capacity._NO_LIMIT - 8]), (capacity._NO_LIMIT, [])):
        (tmp_path / "memory.limit_in_bytes").write_text(str(allowed))
        (tmp_path / "memory.usage_in_bytes").write_text("7")
        assert list(capacity._left(tmp_path)) == left


def test_the_path_of_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = sockets._LONGEST_SOCKET - len("/" + sockets._OURS)
    for length, fits in ((room, True), (room + 1, False)):
        named = "/" + "x" * (length - 1)
        monkeypatch.setattr("tempfile.gettempdir", lambda named=named: named)
        assert sockets._place() == Path(named if fits else "/tmp")
    folder = tmp_path / "s"
    folder.mkdir()
    monkeypatch.chdir(folder)  # the system's own word for it
    for length, fits in ((sockets._LONGEST_SOCKET, True), (sockets._LONGEST_SOCKET + 1, False)):
        with socket.socket(socket.AF_UNIX) as listening:
            path = "./" * ((length - 1) // 2) + "a" * (1 + (length - 1) % 2)
            assert len(path) == length
            if fits:
                listening.bind(path)
            else:
                with pytest.raises(OSError, match="too long"):
                    listening.bind(path)


def test_the_pause_before_another_policy_server_is_started() -> None:
    longest, pause, seen = server_program._LONGEST_PAUSE, server_program._FIRST_PAUSE, []
    for _ in range(6):
        pause = server_program._pause_after(pause, lived=longest)
        seen.append(pause)
    assert seen == [2.0, 4.0, 8.0, 16.0, longest, longest]
    assert server_program._pause_after(pause, lived=longest + 0.1) == server_program._FIRST_PAUSE


def test_the_log_that_nobody_has_fetched_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "_MOST_HELD", 1000)
    for size, kept in ((1000, "a" + "b" * 999), (1001, "b" * 1000)):
        worker = actor.SparringWorker()
        program = f"import sys; sys.stdout.write('a' + 'b' * {size - 1})"
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
        worker._process = process
        worker._hear_of(process)
        wait_for(lambda worker=worker: worker._code is not None)  # type: ignore[misc]
        assert worker.follow(0) == (0, size, kept.encode())


def test_what_ray_says() -> None:
    longest = cluster._LONGEST
    assert cluster.said(ValueError("x" * longest)) == "x" * longest
    assert cluster.said(ValueError("x" * (longest + 1))) == "x" * longest + " …"


def test_a_configuration_that_is_looked_at_for_images(tmp_path: Path) -> None:
    config = '{"input_features": {"a": {"type": "VISUAL"}}}'
    for size, seen in ((images._MOST, True), (images._MOST + 1, False)):
        (tmp_path / "config.json").write_text(config.ljust(size))
        assert images._lerobot_looks(str(tmp_path)) is seen


@pytest.mark.parametrize("field", ["seconds", "observations"])
def test_numbers_of_a_servers_stats(field: str) -> None:
    most: Any = stats._MOST
    assert stats._is_sound(policy_pb2.ServerStats(**{field: most - 1}))
    assert not stats._is_sound(policy_pb2.ServerStats(**{field: most}))


def test_the_id_by_which_a_tracker_knows_a_run(tmp_path: Path) -> None:
    for length in (kept_ids._LONGEST, kept_ids._LONGEST + 1):
        kept_ids.keep_id(tmp_path, "diary", "x" * length)
        assert len(kept_ids.kept_id(tmp_path, "diary")) == (length if length <= kept_ids._LONGEST else 0)


def test_a_parameter_of_mlflow() -> None:
    longest = mlflow._LONGEST
    assert mlflow._text("x" * longest) == "x" * longest
    assert mlflow._text("x" * (longest + 1)) == "x" * (longest - 3) + "..."


def test_how_often_a_job_is_started_again(usage: Callable[..., Any]) -> None:
    from sparring.orchestrator.cli.commands import submit

    run = ("run", "--benchmark", "toy", "--task", "short", "--policy", "zero", "--output", "results")
    assert f"-lt {submit._MOST}" in usage("submit", "--dry-run", *run).stdout
    assert "-lt 0" in usage("submit", "--dry-run", "--max-requeues", "0", *run).stdout
    assert usage("submit", "--dry-run", "--max-requeues", "-1", *run).returncode == 2
