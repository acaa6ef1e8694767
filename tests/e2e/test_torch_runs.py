"""A learned policy with memory through the whole path: sessions that share batches do not disturb each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Sparring, read_csv

TASKS = (
    "reach-v3", "push-v3", "door-open-v3", "drawer-close-v3", "window-open-v3", "button-press-v3", "coffee-push-v3",
    "faucet-open-v3",
)  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """One server for all runs of a test: its address, and its trace of batches."""
    trace = tmp_path.parent / f"{tmp_path.name}.trace"
    arguments = {"trace": str(trace), "seconds": 0.03, "device": "cpu", "deterministic": True}
    process = subprocess.Popen(
        [sys.executable, "-m", "sparring.policy_server", "--policy=toy_torch_policies:Recurrent",
         f"--policy-args={json.dumps(arguments)}", "--listen=127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout
    address = json.loads(process.stdout.readline())["listening"][0]
    trace.write_text("")  # of what it was tried out with when it was loaded
    yield address, trace
    process.kill()
    process.communicate()


@pytest.mark.everything
def test_tasks_at_once_end_like_one_after_the_other(
    sparring: Sparring, tmp_path: Path, served: tuple[str, Path]
) -> None:
    address, trace = served

    def run(slots: int) -> list[dict[str, str]]:
        output = f"out-{slots}"
        done = sparring(
            "run", "--benchmark", "metaworld", "--task", ",".join(TASKS), "--policy-server", address, "--episodes", "1",
            "--max-steps", "80", "--slots", str(slots), "--output", output,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return read_csv(tmp_path / output)

    together = run(slots=len(TASKS))
    sizes = [tuple(map(int, line.split())) for line in trace.read_text().splitlines()]
    assert max(waiting for waiting, _ in sizes) >= 3, "no batches, no proof"
    trace.write_text("")
    apart = run(slots=1)
    sizes += [tuple(map(int, line.split())) for line in trace.read_text().splitlines()]
    assert {size for _, size in sizes} in ({8}, {1}), "every pass has the same shape"
    assert {line.split()[0] for line in trace.read_text().splitlines()} == {"1"}
    assert together == apart
    assert len({row["reward_sum"] for row in together}) == len(TASKS)
