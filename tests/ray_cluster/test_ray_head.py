"""The head of a Ray cluster dies: the run ends with a sentence, and goes on with another cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import Sparring, StartSparring, Undisturbed, read_csv, recorded, wait_for

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--episodes", "4")


def test_a_head_that_dies_ends_the_run_with_a_sentence_and_it_is_resumed_elsewhere(
    start_sparring: StartSparring, sparring: Sparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN, "--policy", "toy_policies:Wanderer")
    where = ("--launcher", "ray", "--ray-address", cluster.address, "--workers", "2", "--slots-per-worker", "1")
    # So slow that it is not over before the head is missed.
    slow = ("--policy", "toy_policies:Wanderer", "--benchmark-arg", "step_seconds=0.8")
    run = start_sparring(*PLAN, *slow, *where, "--output", "headless")
    wait_for(lambda: recorded(tmp_path / "headless") >= 1 or run.poll() is not None)
    cluster.kill_head()
    _, said = run.communicate(timeout=90)
    assert run.returncode == 1, said
    assert f"the head of the Ray cluster at {cluster.address} is gone" in said
    assert "Go on with: sparring resume headless" in said
    assert 1 <= recorded(tmp_path / "headless") < len(expected)
    done = sparring("resume", "headless", "--launcher", "process", "--slots", "8", timeout=150)
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "headless") == expected
