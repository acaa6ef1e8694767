"""Meta-World through the whole path: the experts do exactly what they do without Sparring."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest
from metaworld_directly import driven_directly
from support import EVERYTHING, Sparring, read_csv

from sparring import Evaluator
from sparring.env_worker.benchmarks.metaworld import Metaworld
from sparring.policy_server.policies import load_policy

SEED = 1000
MT50 = [task.name for task in Metaworld().tasks("mt50")]
COMPARED = {"250 episodes": (MT50, 5)} if EVERYTHING else {"6 episodes of 3 tasks": (MT50[::17], 2)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("tasks", "episodes"), COMPARED.values(), ids=COMPARED)
def test_experts_match_themselves_driven_directly(
    sparring: Sparring, tmp_path: Path, tasks: list[str], episodes: int
) -> None:
    """All 250 episodes in `make test-all`; making so many simulators takes too long for every day."""
    done = sparring(
        "run", "--benchmark", "metaworld", "--task", ",".join(tasks), "--policy", "expert", "--episodes", str(episodes),
        "--seed", str(SEED), "--slots", "2", "--output", "out", timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = read_csv(tmp_path / "out")
    ours = [(r["task"], int(r["index"]), r["outcome"], int(r["steps"]), float(r["reward_sum"])) for r in rows]
    names = sorted(tasks)
    assert sorted({r["task"] for r in rows}) == names
    # Not forked: this process may have threads of gRPC, and forks of those stand still now and then.
    with ProcessPoolExecutor(2 if EVERYTHING else 1, multiprocessing.get_context("spawn")) as pool:
        direct = [row for rows in pool.map(driven_directly, names, repeat(episodes), repeat(SEED)) for row in rows]
    assert ours == direct
    assert all(r["renders"] == "0" for r in rows), "a policy that reads states caused a render"
    assert sum(outcome == "success" for _, _, outcome, _, _ in ours) > 0.9 * len(ours)


def test_one_look_per_chunk_gives_the_rewards_of_looking_always(warm: Evaluator, tmp_path: Path) -> None:
    tables = {}
    for observe in ("on-demand", "every-step"):
        warm.evaluate(
            load_policy("random", {"chunk": 10, "observations": ["observation.image"]}), benchmark="metaworld",
            tasks="reach-v3,push-v3", episodes=1, max_steps=25, benchmark_arg={"resolution": 64}, slots=2,
            observe=observe, output=tmp_path / observe,
        )  # fmt: skip
        tables[observe] = read_csv(tmp_path / observe)
    assert [int(r["renders"]) for r in tables["on-demand"]] == [3, 3]
    assert [int(r["renders"]) for r in tables["every-step"]] == [26, 26]
    assert [r["reward_sum"] for r in tables["on-demand"]] == [r["reward_sum"] for r in tables["every-step"]]


def test_a_wrong_resolution_is_refused_at_once(sparring: Sparring, tmp_path: Path) -> None:
    (tmp_path / "wants.py").write_text(
        "from sparring.policy_server.policies.base import Policy, PolicySpec, TensorSpec\n"
        "class P(Policy):\n"
        "    spec = PolicySpec({'observation.image': TensorSpec('uint8', (256, 256, 3))}, action_dim=4)\n"
        "    def act(self, observations, states): ...\n"
    )
    done = sparring("run", "--benchmark", "metaworld", "--task", "reach-v3", "--policy", "wants:P")
    assert done.returncode == 2
    assert "uint8 (256, 256, 3)  uint8 (480, 480, 3)  differs" in done.stderr


@pytest.mark.parametrize("command", [("doctor",), ("ls", "tasks", "--benchmark", "metaworld")])
def test_the_machine_is_well(
    sparring: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SPARRING_VENVS", str(tmp_path / "none"))  # the checkout's may be half-made at this moment
    done = sparring(*command)
    assert done.returncode == 0, done.stdout
    assert "reach-v3" in done.stdout or "used by workers here" in done.stdout


@pytest.mark.parametrize(
    ("backend", "code", "sentence"),
    [("glfw", 3, "no image can be rendered"), ("nonsense", 1, "MUJOCO_GL=nonsense is no GL backend")],
)
def test_a_gl_backend_that_does_not_work_is_told(
    sparring: Sparring, monkeypatch: pytest.MonkeyPatch, backend: str, code: int, sentence: str
) -> None:
    monkeypatch.setenv("MUJOCO_GL", backend)
    monkeypatch.delenv("DISPLAY", raising=False)
    done = sparring(
        "run", "--benchmark", "metaworld", "--task", "reach-v3", "--policy", "random", "--episodes", "1",
        "--policy-arg", 'observations=["observation.image"]', "--retries", "0", "--output", "out",
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert sentence in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
