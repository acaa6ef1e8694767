"""`sparring run` as a user runs it: real processes, real gRPC, a toy world."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import toy_policies
from support import Sparring, read_csv
from toy_benchmark import ToySettings, ToySimulator

from sparring import Evaluator, Policy
from sparring.policy_server.policies import load_policy

TOY = ("run", "--benchmark", "toy", "--output", "out")
GOOD = (*TOY, "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "6")


def test_results_are_complete_and_consistent(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(*GOOD, "--slots", "2", "--json", "--seed", "40")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    numbers = {"overall", "benchmarks", "groups", "tasks", "metric", "seconds", "out_of_range", "protocols"}
    assert set(document) == {*numbers, "status", "episodes", "output", "renderers", "warnings", "changes", "early_stop"}
    assert (document["status"], document["episodes"]) == ("finished", {"planned": 12, "recorded": 12})
    assert set(document["overall"]) == {
        "success_rate", "interval", "n", "judged", "errors", "errors_by_kind", "metrics", "worst_case", "best_case",
        "return", "steps", "reward_max",
    }  # fmt: skip
    assert set(document["groups"]) == {"good"}
    rows = read_csv(tmp_path / "out")
    assert [(r["task"], int(r["index"]), int(r["seed"])) for r in rows] == [
        (task, k, 40 + k) for task in ("long", "short") for k in range(6)
    ]
    successes = sum(r["outcome"] == "success" for r in rows)
    assert successes > 0
    assert document["overall"]["success_rate"] == pytest.approx(successes / 12)
    assert document["overall"]["n"] == 12
    for task in ("long", "short"):
        left = [json.loads(r["metrics"])["distance"] for r in rows if r["task"] == task]
        assert document["tasks"][task]["metrics"]["distance"]["mean"] == pytest.approx(np.mean(left))
    assert all((json.loads(r["metrics"])["distance"] == 0) == (r["outcome"] == "success") for r in rows), (
        "not the value at the end"
    )
    info = json.loads((tmp_path / "out" / "eval_info.json").read_text())
    assert [(t["task_group"], t["task_id"]) for t in info["per_task"]] == [("good", 0), ("good", 1)]
    assert info["per_task"][0]["metrics"]["sum_rewards"] == [
        float(r["reward_sum"]) for r in rows if r["task"] == "short"
    ], "the plan's order is short, long"
    assert info["overall"]["pc_success"] == pytest.approx(100 * successes / 12)
    assert set(info["overall"]) == {
        "avg_sum_reward", "avg_max_reward", "pc_success", "n_episodes", "video_paths", "predicted_video_paths",
        "eval_s", "eval_ep_s",
    }  # fmt: skip
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["status"] == "finished"
    assert run["settings"]["episodes"] == 6
    assert run["seed"] == 40
    assert run["policy"]["name"] == "toy_policies:Wanderer"
    assert run["policy"]["checkpoint_sha256"] is None
    assert {"orchestrator", "toy-0"} <= set(run["versions"])
    assert run["versions"]["toy-0"]["toy-benchmark"] == "1.0", "a benchmark of somebody else's"
    assert run["host"]["name"]
    with (tmp_path / "out" / "episodes.csv").open() as file:
        for row in csv.DictReader(file):
            split = sum(float(row[c]) for c in ("physics_s", "render_s", "policy_s", "transport_s"))
            assert 0 < split <= float(row["seconds"])


def test_the_expert_of_somebody_else_s_benchmark_and_a_task_by_its_place(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*TOY, "--task", "good/1", "--policy", "expert", "--episodes", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["overall"]["success_rate"] == 1.0
    assert {row["task"] for row in read_csv(tmp_path / "out")} == {"long"}
    assert json.loads((tmp_path / "out" / "run.json").read_text())["policy"]["name"] == "expert"


def test_slots_and_order_change_no_number(usage: Sparring, tmp_path: Path) -> None:
    tables = []
    for slots in ("1", "4"):
        done = usage(*GOOD, "--slots", slots, "--output", f"out{slots}")
        assert done.returncode == 0, done.stderr
        tables.append(read_csv(tmp_path / f"out{slots}"))
    assert tables[0] == tables[1]


def test_running_again_and_resuming_run_nothing_twice(usage: Sparring, tmp_path: Path) -> None:
    assert usage(*GOOD).returncode == 0
    before = (tmp_path / "out" / "episodes.csv").read_text()
    for command in (GOOD, ("resume", "out")):
        done = usage(*command)
        assert done.returncode == 0, done.stderr
        assert "overall" in done.stdout
        assert (tmp_path / "out" / "episodes.csv").read_text() == before


def test_another_plan_is_refused_and_touches_nothing(usage: Sparring, tmp_path: Path) -> None:
    assert usage(*GOOD).returncode == 0
    before = {p: p.read_bytes() for p in (tmp_path / "out").glob("*.*s*") if p.suffix in (".csv", ".json")}
    done = usage(*GOOD, "--seed", "5")
    assert done.returncode == 2
    assert "seed: 1000 there, 5 now" in done.stderr
    done = usage(*TOY, "--task", "good", "--policy", "zero", "--episodes", "6")
    assert done.returncode == 2
    assert "policy name:" in done.stderr
    assert before == {p: p.read_bytes() for p in before}


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (toy_policies.Raises, "my knees are weak"),
        (toy_policies.SaysNaN, "nan in dimension 0"),
        (toy_policies.WrongShape, "the shape (1, 3)"),
    ],
)
def test_a_broken_policy_is_an_error_of_its_episodes_only(
    warm: Evaluator, tmp_path: Path, policy: type[toy_policies.Forward], sentence: str
) -> None:
    results = warm.evaluate(
        policy(), benchmark="toy", tasks="short", episodes=4, retries=1, slots=2, output=tmp_path / "out"
    )
    rows = read_csv(tmp_path / "out")
    assert [r["outcome"] for r in rows] == ["success", "error", "success", "error"]
    assert [r["attempts"] for r in rows] == ["1", "2", "1", "2"]
    assert all(sentence in r["error"] for r in rows if r["outcome"] == "error")
    assert {r["error_kind"] for r in rows if r["outcome"] == "error"} == {"policy"}
    assert (results.overall.successes, results.overall.n, results.overall.errors) == (2, 2, 2)


def test_errors_are_told_apart_from_failures(sparring: Sparring) -> None:
    done = sparring(*TOY, "--task", "short", "--policy", "toy_policies:Raises", "--episodes", "4", "--retries", "0")
    assert done.returncode == 3, done.stderr
    assert "100.0 %" in done.stdout, "errors count against the policy"
    assert "2 episodes ended in an error (2 policy)" in done.stdout


def test_errors_are_tried_again_when_a_run_is_resumed(usage: Sparring, tmp_path: Path) -> None:
    flags = tmp_path / "flags"
    flags.mkdir()
    command = (*TOY, "--task", "flaky", "--policy", "toy_policies:Forward", "--episodes", "2")
    command = (*command, "--benchmark-arg", f"flag_folder={flags}", "--retries", "0")
    assert usage(*command).returncode == 3
    assert [r["outcome"] for r in read_csv(tmp_path / "out")] == ["error", "error"]
    assert usage(*command).returncode == 0
    assert [r["outcome"] for r in read_csv(tmp_path / "out")] == ["success", "success"]


def test_retries_are_counted(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "flags").mkdir()
    done = usage(
        *TOY, "--task", "flaky", "--policy", "toy_policies:Forward", "--episodes", "2",
        "--benchmark-arg", f"flag_folder={tmp_path / 'flags'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [(r["outcome"], r["attempts"]) for r in read_csv(tmp_path / "out")] == [("success", "2")] * 2
    with sqlite3.connect(tmp_path / "out" / "journal.sqlite") as journal:
        events = journal.execute("SELECT kind, message FROM events").fetchall()
    (kept,) = (tmp_path / "out" / "errors").iterdir()
    said = f"the simulator raised ValueError: only the first time (traceback: errors/{kept.name})"
    assert events == [("error", said)] * 2
    assert "in _misbehave" in kept.read_text()


def test_a_simulator_that_fails_does_not_stop_the_others(usage: Sparring, tmp_path: Path) -> None:
    done = usage(
        *TOY, "--task", "raises,segfaults,unmakeable,unmeasured,short", "--policy", "toy_policies:Forward",
        "--episodes", "1", "--retries", "1", "--slots", "2",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    rows = {r["task"]: r for r in read_csv(tmp_path / "out")}
    assert rows["short"]["outcome"] == "success"
    assert "the world came apart" in rows["raises"]["error"]
    assert "SIGSEGV" in rows["segfaults"]["error"]
    assert "no such world" in rows["unmakeable"]["error"]
    assert rows["unmeasured"]["error"] == "the benchmark reported nan as its metric 'distance' at step 3."
    assert {r["error_kind"] for name, r in rows.items() if name != "short"} == {"simulator"}
    assert (rows["short"]["error_kind"], rows["raises"]["metrics"]) == ("", "")


def test_a_simulator_that_hangs_is_killed(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(
        *TOY, "--task", "hangs,short", "--policy", "toy_policies:Forward", "--episodes", "1", "--retries", "0",
        "--stall-timeout", "5",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    rows = {r["task"]: r for r in read_csv(tmp_path / "out")}
    assert "made no step" in rows["hangs"]["error"]
    assert rows["hangs"]["error_kind"] == "limit"
    assert rows["short"]["outcome"] == "success"


def test_a_policy_that_does_not_fit_is_refused_with_both_sides(usage: Sparring) -> None:
    done = usage(*TOY, "--task", "short", "--policy", "toy_policies:WantsTooMuch")
    assert done.returncode == 2
    table = [line.split() for line in done.stderr.splitlines()]
    assert ["image", "uint8", "(32,", "32,", "3)", "uint8", "(16,", "16,", "3)", "differs"] in table
    assert ["action", "7", "1", "differs"] in table
    assert any(line[:1] == ["depth"] and line[-2:] == ["not", "offered"] for line in table)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--benchmark", "tyo", "--task", "short", "--policy", "zero"), "Did you mean 'toy'"),
        (("--benchmark", "toy", "--task", "shrot", "--policy", "zero"), "Did you mean 'short'"),
        (("--benchmark", "toy", "--task", "short", "--policy", "zreo"), "Did you mean 'zero'"),
        (("--benchmark", "toy", "--task", "short", "--polciy", "zero"), "--policy"),
        (("--benchmark", "toy", "--task", "short", "--policy", "no_such_module:X"), "no module 'no_such_module'"),
        (("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Froward"), "Did you mean 'Forward'"),
        (("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:LacksAct"), "lacks act()"),
        (
            ("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--policy-arg", "gian=2"),
            "gian",
        ),
        (
            ("--benchmark", "toy", "--task", "short", "--policy", "zero", "--benchmark-arg", "step_second=2"),
            "step_seconds",
        ),
        (("--benchmark", "gym", "--task", "CartPole-v1", "--policy", "expert"), "no scripted expert"),
        (
            ("--benchmark", "gym", "--task", "CartPole-v9", "--policy", "random"),
            "no Gymnasium environment 'CartPole-v9'",
        ),
        (("--benchmark", "toy", "--task", "short", "--policy", "zero", "--listen", "127.0.0.1:99999"), "up to 65535"),
        (("--benchmark", "toy", "--task", "short", "--policy", "zero", "--record", "/dev/null"), "another folder with"),
        (("--config", "missing.yaml"), "cannot be read"),
    ],
)
def test_mistakes_are_named_before_anything_starts(
    usage: Sparring, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = usage("run", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "outputs").exists(), "a mistyped command left a folder"


def test_a_policy_server_that_is_not_there(usage: Sparring) -> None:
    done = usage(*TOY, "--task", "short", "--policy-server", "127.0.0.1:9", "--policy-timeout", "1")
    assert done.returncode == 1
    assert "no policy server answered at 127.0.0.1:9 within 1 s" in done.stderr


def test_films(warm: Evaluator, tmp_path: Path) -> None:
    def run(output: str, **video: str) -> list[dict[str, str]]:
        # A gain of 0.75 reaches the goal in 20 steps from some starts only.
        policy = toy_policies.Forward(gain=0.75)
        warm.evaluate(policy, benchmark="toy", tasks="short", episodes=5, slots=2, output=tmp_path / output, **video)
        return read_csv(tmp_path / output)

    plain = run("plain")
    outcomes = [r["outcome"] for r in plain]
    assert {"success", "failure"} == set(outcomes), "the test needs both"
    for which, filmed in {
        "all": list(range(5)),
        "first:2": [0, 1],
        "failures": [k for k, outcome in enumerate(outcomes) if outcome == "failure"],
    }.items():
        rows = run(which, video=which)
        assert [k for k, r in enumerate(rows) if r["video"]] == filmed
        assert [r["reward_sum"] for r in rows] == [r["reward_sum"] for r in plain]
        for k in filmed:
            assert rows[k]["video"] == f"videos/short_{k:04d}_{outcomes[k]}.mp4"
            assert (tmp_path / which / rows[k]["video"]).read_bytes()[4:8] == b"ftyp"


def test_max_parallel_tasks_still_finishes(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*GOOD, "--slots", "3", "--max-parallel-tasks", "1")
    assert done.returncode == 0, done.stderr
    assert len(read_csv(tmp_path / "out")) == 12


def test_an_installed_benchmark_and_policy_are_listed(usage: Sparring) -> None:
    assert "a point on a line" in usage("ls", "benchmarks").stdout
    assert "Go a little" in usage("ls", "tasks", "--benchmark", "toy").stdout
    listed = usage("ls", "policies").stdout
    assert "toy-installed" in listed
    assert "observations=[names]" in listed


def test_settings_from_a_file(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "benchmark: toy\ntask: short\npolicy: toy_policies:Forward\npolicy-arg: {gain: 0.5}\nepisodes: 2\noutput: out\n"
    )
    done = usage("run", "--config", "run.yaml", "--episodes", "3")
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (run["settings"]["episodes"], run["policy"]["arguments"]) == (3, {"gain": 0.5})


def test_two_benchmarks_in_one_plan(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(
        "policy: random\nepisodes: 3\noutput: out\nevaluations:\n"
        "- {benchmark: toy, task: short}\n- {benchmark: gym, task: CartPole-v1}\n"
    )
    done = usage("run", "--config", "both.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert {task: s["n"] for task, s in json.loads(done.stdout)["tasks"].items()} == {"short": 3, "CartPole-v1": 3}
    assert [r["benchmark"] for r in read_csv(tmp_path / "out")] == ["gym"] * 3 + ["toy"] * 3
    assert usage("resume", "out").returncode == 0


def test_recordings_hold_what_was_seen_and_done_and_can_be_played_back(warm: Evaluator, tmp_path: Path) -> None:
    def run(policy: Policy, output: str, **record: Path) -> list[dict[str, str]]:
        warm.evaluate(policy, benchmark="toy", tasks="good", episodes=3, slots=2, output=tmp_path / output, **record)
        return read_csv(tmp_path / output)

    rows = run(toy_policies.Wanderer(), "recorded", record=tmp_path / "demos")
    assert rows == run(toy_policies.Wanderer(), "plain"), "recording changed a trajectory"
    for row in rows:
        path = tmp_path / "demos" / "toy" / row["task"] / f"{int(row['index']):04d}.npz"
        with np.load(path, allow_pickle=False) as episode:
            about = json.loads(episode["about"].tobytes())
            assert (about["task"], str(about["seed"]), about["success"]) == (
                row["task"], row["seed"], row["outcome"] == "success"
            )  # fmt: skip
            assert episode["actions"].shape == (int(row["steps"]), 1)
            assert episode["rewards"].sum() == pytest.approx(float(row["reward_sum"]))
            assert list(episode["looks"]) == list(range(0, int(row["steps"]), 4)), "Wanderer plays chunks of four"
            assert episode["observations/position"].shape == (len(episode["looks"]), 1)
    kept = ("task", "index", "outcome", "reward_sum", "steps")
    played = run(load_policy("replay", {"file": str(tmp_path / "demos")}), "replayed")
    assert [[r[k] for k in kept] for r in played] == [[r[k] for k in kept] for r in rows]


@pytest.mark.everything
def test_a_recording_may_be_larger_than_any_message(sparring: Sparring, tmp_path: Path) -> None:
    """70 MB of noise in one episode: in pieces from slot to worker to orchestrator, and the same as was seen."""
    done = sparring(
        *TOY, "--task", "short", "--episodes", "1", "--slots", "1", "--seed", "0", "--benchmark-arg", "noise=1100",
        "--record", "demos", "--policy", "zero", "--policy-arg", 'observations=["image"]', timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = (path for path in (tmp_path / "demos").rglob("*") if path.is_file())
    assert path.stat().st_size > 64 * 2**20
    with np.load(path, allow_pickle=False) as episode:
        looks, images = episode["looks"], episode["observations/image"]
        assert images.shape == (20, 1100, 1100, 3)
    simulator = ToySimulator("short", ToySettings(noise=1100))
    look = frozenset({"image"})
    assert (simulator.reset(seed=0, index=0, look=look)["image"] == images[0]).all()
    for image in images[1:]:
        assert (simulator.step(np.zeros(1), look=look).observation["image"] == image).all()
    assert len(looks) == 20
