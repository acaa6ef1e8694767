"""LIBERO through the whole path, in its own environment, which `sparring run` finds by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import Sparring, read_csv

RUN = ("run", "--output", "out", "--retries", "0")


@pytest.mark.requires("libero", "libero-assets")
def test_the_expert_on_two_benchmarks_behind_one_address(sparring: Sparring, tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(
        "policy: expert\nepisodes: 2\noutput: out\nevaluations:\n"
        "- {benchmark: metaworld, task: reach-v3}\n- {benchmark: libero, task: 'libero_goal/8'}\n"
    )
    done = sparring("run", "--config", "both.yaml", "--json", timeout=280)
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout)["tasks"]
    assert {name: (s["success_rate"], s["n"]) for name, s in tasks.items()} == {
        "reach-v3": (1.0, 2),
        "libero_goal/8": (1.0, 2),
    }
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["versions"]["metaworld-0"]["mujoco"].startswith("3.3.")
    assert run["versions"]["libero-0"]["mujoco"] == "3.8.1"
    assert run["tasks"]["libero_goal/8"]["instruction"] == "put the bowl on the plate"
    assert run["tasks"]["libero_goal/8"]["initial_states"] == 50


@pytest.mark.requires("libero", "libero-assets")
def test_cameras_on_demand_give_the_rewards_of_rendering_always(sparring: Sparring, tmp_path: Path) -> None:
    tables = {}
    for observe in ("on-demand", "every-step"):
        done = sparring(
            *RUN, "--benchmark", "libero", "--task", "libero_object/0", "--policy", "random", "--episodes", "1",
            "--policy-arg", "chunk=10", "--policy-arg",
            'observations=["observation.images.image", "observation.images.image2"]',
            "--max-steps", "30", "--benchmark-arg", "resolution=64", "--observe", observe, "--output", observe,
            timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        tables[observe] = read_csv(tmp_path / observe)[0]
    assert (tables["on-demand"]["renders"], tables["every-step"]["renders"]) == ("6", "62")
    assert tables["on-demand"]["reward_sum"] == tables["every-step"]["reward_sum"]


@pytest.mark.requires("libero")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--task", "libero_gaol"), "Did you mean 'libero_goal'"),
        (("--task", "libero_goal/12"), "0 to 9"),
        (("--task", "libero_goal", "--assets", "no/such/folder"), "no/such/folder"),
        (("--task", "libero_goal", "--benchmark-arg", "control=sideways"), "relative or absolute"),
    ],
)
def test_mistakes_are_named_before_anything_starts(usage: Sparring, arguments: tuple[str, ...], sentence: str) -> None:
    done = usage("run", "--benchmark", "libero", "--policy", "expert", *arguments)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requires("libero")
def test_without_assets_and_without_a_network_there_is_a_sentence(
    sparring: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARRING_LIBERO_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    done = sparring("run", "--benchmark", "libero", "--task", "libero_goal/0", "--policy", "expert", timeout=60)
    assert done.returncode == 1
    assert "assets" in done.stderr
    assert "SPARRING_LIBERO_ASSETS" in done.stderr


@pytest.mark.requires("libero", "libero-assets")
def test_a_policy_that_wants_another_resolution_is_refused(sparring: Sparring, tmp_path: Path) -> None:
    (tmp_path / "wants.py").write_text(
        "from sparring.policy_server.policies.base import Policy, PolicySpec, TensorSpec\n"
        "class P(Policy):\n"
        "    spec = PolicySpec({'observation.images.image': TensorSpec('uint8', (360, 360, 3))}, action_dim=7)\n"
        "    def act(self, observations, states): ...\n"
    )
    done = sparring(*RUN, "--benchmark", "libero", "--task", "libero_goal/8", "--policy", "wants:P", timeout=120)
    assert done.returncode == 2
    assert "uint8 (360, 360, 3)  uint8 (256, 256, 3)  differs" in done.stderr


def test_no_environment_is_told_with_the_command_that_makes_it(
    usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARRING_VENVS", str(tmp_path / "nowhere"))
    done = usage("run", "--benchmark", "libero", "--task", "libero_goal/8", "--policy", "expert")
    assert done.returncode == 2
    assert "sparring env create libero" in done.stderr
