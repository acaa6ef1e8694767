"""Of the folder that a run is started in workers import only what the user names: it may be a folder of downloads."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Sparring

TRAP = "from pathlib import Path\nPath(__file__).with_name('IMPORTED').touch()\nraise RuntimeError('a trap')\n"
BENCHMARK = """
from toy_benchmark import Toy


class Mine(Toy):
    name = "mine"
"""
ENVIRONMENT = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

gymnasium.register("Mine-v0", CartPoleEnv, max_episode_steps=20)
"""


@pytest.fixture(autouse=True)
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("sparring", "numpy", "grpc", "psutil"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    return tmp_path


def test_a_run_in_a_folder_of_downloads_imports_none_of_them(usage: Sparring, downloads: Path) -> None:
    done = usage("run", "--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--episodes", "2")
    assert done.returncode == 0, done.stderr
    assert not (downloads / "IMPORTED").exists()


@pytest.mark.parametrize("named", ["benchmark", "environment"])
def test_what_the_user_names_is_found_there(named: str, usage: Sparring, downloads: Path) -> None:
    for trap in downloads.glob("*.py"):
        trap.unlink()
    (downloads / f"own_{named}.py").write_text(BENCHMARK if named == "benchmark" else ENVIRONMENT)
    what = (
        ("--benchmark", "own_benchmark:Mine", "--task", "short", "--policy", "toy_policies:Forward")
        if named == "benchmark"
        else ("--benchmark", "gym", "--task", "own_environment:Mine-v0", "--policy", "random", "--metric", "return")
    )
    done = usage("run", *what, "--episodes", "2", "--output", "out")
    assert done.returncode == 0, done.stderr
