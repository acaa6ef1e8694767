"""A policy server that is started anew in the middle of a run, with other code: nothing is played with it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support import Sparring, StartSparring, read_csv, recorded, wait_for

EDITS_ITSELF = """
import os
from pathlib import Path
from toy_policies import Forward


class Mine(Forward):
    def new_session(self, task, seed):
        return task.episode

    def act(self, observations, states):
        if states[0] == 2 and not Path("died").exists():
            Path("died").touch()
            with open(__file__, "a") as file:
                file.write("# edited\\n")
            os._exit(9)
        return super().act(observations, states)
"""
SLOW = """
from toy_policies import Forward


class Mine(Forward):
    def __init__(self):
        super().__init__(seconds=0.01)
"""
TOLD = "the policy server was started anew in the middle of the run, with another program; the run stops:"
PLAN = ("--benchmark", "toy", "--task", "short", "--episodes", "6", "--output", "out", "--slots", "1")


@pytest.mark.everything
def test_a_server_of_ours_that_comes_back_with_edited_code(sparring: Sparring, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EDITS_ITSELF)
    done = sparring("run", *PLAN, "--policy", "mine:Mine")
    assert done.returncode == 1, done.stderr
    assert TOLD in done.stderr
    assert "  mine.py: was changed" in done.stderr
    assert len(read_csv(tmp_path / "out")) == 2, "something was played with it"
    refused = sparring("resume", "out")
    assert refused.returncode == 2
    assert "the policy is not what made the 2 episodes recorded in 'out':\n  mine.py: was changed" in refused.stderr
    assert sparring("resume", "out", "--accept-changes").returncode == 0
    (change,) = json.loads((tmp_path / "out" / "run.json").read_text())["changes"]
    assert change == "4 of 6 episodes were made after the policy had changed: mine.py: was changed."


def test_a_server_elsewhere_that_comes_back_with_edited_code(
    start_sparring: StartSparring, short_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    socket = short_folder / "policy.sock"
    serve = ("serve", "--policy", "mine:Mine", "--listen", f"unix://{socket}")
    server = start_sparring(*serve)
    wait_for(socket.exists)
    run = start_sparring("run", *PLAN, "--episodes", "40", "--policy-server", f"unix://{socket}")
    wait_for(lambda: recorded(tmp_path / "out") >= 2)
    (tmp_path / "mine.py").write_text(SLOW.replace("0.01", "0.02"))
    server.kill()
    server.wait(60)
    socket.unlink(missing_ok=True)
    at = recorded(tmp_path / "out")
    began = time.monotonic()
    start_sparring(*serve)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 1, said
    assert TOLD in said
    assert "  mine.py: was changed" in said
    assert recorded(tmp_path / "out") <= at + 1, "something was played with it"
    assert time.monotonic() - began < 50
