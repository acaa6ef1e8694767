"""A policy server with fewer places than a run has slots: those that have one play, the others wait."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support import StartSparring, read_csv

from sparring.policy_server.client import Offer, PolicyClient
from sparring.protos.spec import TensorSpec

RUN = ("run", "--benchmark", "toy", "--task", "good", "--episodes", "6", "--output", "out")


def start_server(start_sparring: StartSparring, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    server = start_sparring("serve", "--policy", "toy_policies:Wanderer", *arguments, "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line, server.communicate()[1]
    return server, json.loads(line)["listening"][0]


def run(start_sparring: StartSparring, *arguments: str) -> tuple[int, str]:
    """Runs the command beside a server; returns its exit code and what it said, in one line."""
    process = start_sparring(*arguments)
    said = process.communicate(timeout=120)[1]
    return process.returncode, " ".join(said.split())


def test_with_one_place_one_slot_plays_it_all(start_sparring: StartSparring, tmp_path: Path) -> None:
    """It stopped in 1.3 s, and advised a flag that it does not have."""
    _, address = start_server(start_sparring, "--max-sessions", "1")
    code, said = run(start_sparring, *RUN, "--policy-server", address, "--slots", "3")
    assert code == 0, said
    rows = read_csv(tmp_path / "out")
    assert len(rows) == 12
    assert {(row["error"], row["attempts"]) for row in rows} == {("", "1")}
    assert said.count("fewer --slots would do") == 1
    assert "holds 1 session and takes no more" in said


def test_if_nobody_gets_a_place_the_run_stops_and_says_what_to_do(
    start_sparring: StartSparring, tmp_path: Path
) -> None:
    _, address = start_server(start_sparring, "--max-sessions", "1")
    offer = Offer({"position": TensorSpec("float64", (1,))}, (-1.0,), (1.0,))
    with PolicyClient(address, timeout=60) as somebody_else, somebody_else.open(offer):
        code, said = run(start_sparring, *RUN, "--policy-server", address, "--slots", "2", "--policy-timeout", "2")
        assert code == 1, said
        assert "no slot got a session at the policy server for 2 s (--policy-timeout waits for longer)." in said
        assert "whoever started it makes room for others with `sparring serve --max-sessions`." in said
    code, said = run(start_sparring, "resume", "out")
    assert code == 0, said
    assert len(read_csv(tmp_path / "out")) == 12
