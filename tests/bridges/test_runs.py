"""Runs with policies behind foreign servers: what is shown and saved, what is an error, and who waits for whom."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bridges.foreign_servers import OpenpiServer, listening, pack, says_a_traceback
from bridges.telling import OFFER
from support import Sparring, read_csv
from websockets.sync.server import ServerConnection

from sparring.orchestrator.execution import run_files
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.policies import load_policy
from sparring.policy_server.policies.base import Instruction

LAYOUT = (
    *("--policy-arg", 'images={"observation/image": "image"}'),
    *(
        "--policy-arg",
        'states={"observation/state": "position"}',
        "--policy-arg",
        "play=3",
        "--policy-arg",
        "timeout=10",
    ),
)
SENTENCE = (
    "is shown toy by this layout: observation/image = image, observation/state = position as float64, prompt = the "
    "sentence; up to 3 actions are played before it looks again"
)


def forward(connection: ServerConnection, seen: dict[str, Any]) -> None:
    connection.send(pack({"actions": np.ones((5, 1), np.float32)}))


@pytest.fixture
def server() -> Iterator[OpenpiServer]:
    openpi = OpenpiServer()
    openpi.answer = forward
    with listening(openpi.handle) as port:
        openpi.port = port  # type: ignore[attr-defined]
        yield openpi


def plan(server: OpenpiServer, *more: str) -> tuple[str, ...]:
    address = f"openpi://127.0.0.1:{server.port}"  # type: ignore[attr-defined]
    return ("run", "--benchmark", "toy", "--task", "short", "--policy", address, *LAYOUT, "--output", "out", *more)


def test_the_layout_is_shown_in_full_before_the_first_episode_and_kept_with_the_results(
    usage: Sparring, server: OpenpiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said_before: list[bool] = []
    said: list[str] = []
    warning = run_files.log.warning
    monkeypatch.setattr(run_files.log, "warning", lambda *words: said.append(words[-1]) or warning(*words))

    def noting(connection: ServerConnection, seen: dict[str, Any]) -> None:
        said_before.append(any(SENTENCE in sentence for sentence in said))
        forward(connection, seen)

    server.answer = noting
    done = usage(*plan(server, "--episodes", "2", "--in-process"))
    assert done.returncode == 0, done.stderr
    assert [row["outcome"] for row in read_csv(tmp_path / "out")] == ["success"] * 2
    assert said_before[0]
    assert sum(SENTENCE in sentence for sentence in said) == 1
    assert SENTENCE in done.stdout + done.stderr
    assert SENTENCE in (tmp_path / "out" / "run.json").read_text()
    arguments = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]["policy_arg"]
    assert arguments["play"] == 3


def test_a_server_that_fails_makes_errors_and_no_failures_and_what_it_said_is_told(
    usage: Sparring, server: OpenpiServer, tmp_path: Path
) -> None:
    server.answer = says_a_traceback
    done = usage(*plan(server, "--episodes", "2", "--in-process", "--retries", "1"))
    assert done.returncode == 3
    rows = read_csv(tmp_path / "out")
    assert [row["outcome"] for row in rows] == ["error"] * 2
    assert "out of memory on cuda:0" in rows[0]["error"]
    assert len(server.seen) == 4


@pytest.mark.processes
def test_an_episode_whose_server_went_away_is_played_again(
    usage: Sparring, server: OpenpiServer, tmp_path: Path
) -> None:
    def leaves_once(connection: ServerConnection, seen: dict[str, Any]) -> None:
        server.answer = forward
        connection.close(1011)

    server.answer = leaves_once
    done = usage(*plan(server, "--episodes", "2", "--slots", "1"))
    assert done.returncode == 0, done.stderr
    assert [row["outcome"] for row in read_csv(tmp_path / "out")] == ["success"] * 2


@pytest.mark.processes
def test_a_server_that_is_started_again_in_the_middle_of_a_run_is_waited_for(usage: Sparring, tmp_path: Path) -> None:
    openpi, fell = OpenpiServer(), threading.Event()

    def falls_once(connection: ServerConnection, seen: dict[str, Any]) -> None:
        if not fell.is_set() and len(openpi.seen) > 3:
            fell.set()
            connection.close(1011)
        else:
            forward(connection, seen)

    openpi.answer = falls_once
    first = ExitStack()
    openpi.port = port = first.enter_context(listening(openpi.handle))  # type: ignore[attr-defined]

    def start_again() -> None:
        fell.wait(120)
        first.close()
        time.sleep(4)  # it loads its policy, and each of the two slots finds nobody several times
        with listening(openpi.handle, port):
            played.wait(120)

    played, again = threading.Event(), threading.Thread(target=start_again)
    again.start()
    try:
        more = ("--policy-arg", "timeout=2", "--retries", "0")
        done = usage(*plan(openpi, "--episodes", "6", "--slots", "2", *more))
    finally:
        fell.set()
        played.set()
        again.join(60)
    assert done.returncode == 0, done.stderr
    assert [row["outcome"] for row in read_csv(tmp_path / "out")] == ["success"] * 6


@pytest.mark.processes
def test_a_server_that_went_away_for_good_stops_the_run_which_can_go_on(usage: Sparring, tmp_path: Path) -> None:
    openpi = OpenpiServer()
    with ExitStack() as first:
        openpi.port = port = first.enter_context(listening(openpi.handle))  # type: ignore[attr-defined]
        openpi.answer = forward

        def leave_after_some() -> None:
            while len(openpi.seen) < 12 and not over.is_set():  # an episode looks four times at most: one has ended
                time.sleep(0.01)
            first.close()

        over, leaving = threading.Event(), threading.Thread(target=leave_after_some)
        leaving.start()
        try:
            more = ("--policy-arg", "timeout=1", "--retries", "0", "--policy-timeout", "2")
            done = usage(*plan(openpi, "--episodes", "40", "--slots", "2", *more))
        finally:
            over.set()
            leaving.join(60)
    assert done.returncode not in (0, 3), done.stdout
    assert f"no openpi server answers at openpi://127.0.0.1:{port}" in done.stderr
    assert "sparring resume out" in done.stderr
    outcomes = [row["outcome"] for row in read_csv(tmp_path / "out")]
    assert set(outcomes) == {"success"}, "what was not played is no error"
    assert len(outcomes) < 40


@contextmanager
def one_client(server: OpenpiServer, most: list[bool]) -> Iterator[int]:
    """A server that sends a second client away; its port. `most` gets whether each that came was the only one."""
    one = threading.Lock()

    def alone(connection: ServerConnection) -> None:
        free = one.acquire(timeout=0.3)  # who has said goodbye may still be on the way out
        most.append(free)
        if not free:
            connection.close(1013, "one at a time")
            return
        try:
            server.handle(connection)
        finally:
            one.release()

    with listening(alone) as port:
        server.port = port  # type: ignore[attr-defined]
        yield port


@pytest.mark.processes
def test_a_server_that_takes_one_client_is_queued_for(usage: Sparring, server: OpenpiServer, tmp_path: Path) -> None:
    most: list[bool] = []
    with one_client(server, most):
        done = usage(*plan(server, "--episodes", "6", "--slots", "3", "--policy-arg", "clients=1", "--retries", "0"))
    assert done.returncode == 0, done.stderr
    assert [row["outcome"] for row in read_csv(tmp_path / "out")] == ["success"] * 6
    assert all(most)
    assert len(most) >= 7


def test_who_is_not_told_that_a_server_takes_one_client_hears_what_to_give(server: OpenpiServer) -> None:
    with one_client(server, []) as port:
        address = f"openpi://127.0.0.1:{port}"
        policy = load_policy(address, {"timeout": 1, "preset": "libero"})
        policy.warm_up()
        task = Instruction("go", benchmark="libero", offer=OFFER)
        first = policy.new_session(task, 0)
        with pytest.raises(PolicyFailed, match=r"one at a time.*If it takes one client at a time, give clients=1"):
            policy.new_session(task, 1)
        first.close()
