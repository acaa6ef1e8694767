"""Several evaluations in one run: the same benchmark twice under names of their own, and files that say what to run."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from coordinated import Run
from support import Sparring, read_csv

from sparring.orchestrator.launchers.base import WorkerOrder
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.make_plan import identity, make_plan
from sparring.orchestrator.settings import read_settings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

TWICE = """
policy: toy_policies:Wanderer
episodes: 2
in_process: true
video: all
record: recordings
evaluations:
  - {name: calm, benchmark: toy, task: [short, long]}
  - {name: noisy, benchmark: toy, task: short, benchmark_arg: {noise: 32}}
"""


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_the_same_benchmark_twice_with_other_settings(usage: Sparring, tmp_path: Path) -> None:
    write(tmp_path, TWICE)
    done = usage("run", "--config", "run.yaml", "--output", "out", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {name: found["n"] for name, found in document["benchmarks"].items()} == {"calm": 4, "noisy": 2}
    assert set(document["tasks"]) == {"calm/short", "long", "noisy/short"}
    rows = read_csv(tmp_path / "out")
    assert Counter(row["benchmark"] for row in rows) == {"calm": 4, "noisy": 2}
    by = {(row["benchmark"], row["task"], row["index"]): row for row in rows}
    for index in "01":
        calm, noisy = by["calm", "short", index], by["noisy", "short", index]
        assert (calm["seed"], calm["reward_sum"]) == (noisy["seed"], noisy["reward_sum"]), "what is seen moves nothing"
    films = [row["video"] for row in rows]
    assert len(set(films)) == 6, "one film has taken the place of another"
    sizes = {Path(film).name.split("_")[0]: (tmp_path / "out" / film).stat().st_size for film in films}
    assert sizes["noisy"] > 2 * sizes["calm"], "noise is what cannot be compressed"
    assert {path.parent.parent.name for path in (tmp_path / "recordings").rglob("*.npz")} == {"calm", "noisy"}
    planned = usage("run", "--config", "run.yaml", "--dry-run").stdout
    assert "  noisy noise=32: short\n" in planned
    replayed = usage(
        "run", "--benchmark", "toy", "--task", "short", "--policy", "replay", "--policy-arg", "file=recordings",
        "--episodes", "1", "--in-process", "--output", "replayed",
    )  # fmt: skip
    assert "two recordings of the episode 'toy/short/0'" in replayed.stderr
    again = usage("run", "--config", "run.yaml", "--output", "out", "--json")
    assert json.loads(again.stdout)["tasks"] == document["tasks"]
    shown = usage("show", "out", "--tasks", "noisy").stdout
    assert "below: 1 of 3 tasks" in shown


def test_a_folder_is_tied_to_what_its_names_stand_for(tmp_path: Path) -> None:
    def tied(text: str) -> dict[str, object]:
        settings = read_settings({}, write(tmp_path, text))
        return identity(settings, make_plan(settings))

    named = tied(TWICE)
    assert named["benchmarks"] == {"calm": "toy", "noisy": "toy"}
    assert named["benchmark_arg"] == {"calm": {}, "noisy": {"noise": 32}}
    plain = tied("policy: zero\nbenchmark: toy\ntask: short\n")
    assert "benchmarks" not in plain, "folders of earlier releases have none, and must still be the same plan's"
    assert plain["benchmark_arg"] == {"toy": {}}


def test_workers_are_started_for_one_part_of_the_run(tmp_path: Path) -> None:
    settings = read_settings({}, write(tmp_path, TWICE.replace("in_process: true", "slots: 3")))
    order = WorkerOrder(
        run=settings, folder=tmp_path, slots={"calm": 2, "noisy": 1}, orchestrator=Address("tcp", "h", 1),
        public=Address("tcp", "h", 1), sockets=tmp_path, logs=tmp_path, rules=RetryRules(), results_of=lambda _: 0,
        explain=lambda *_: None, join_token="secret",
    )  # fmt: skip
    assert order.arguments("noisy", "w") == [
        "--orchestrator=h:1", "--benchmark=toy", "--slots=1", "--evaluation=noisy", "--name=w",
    ]  # fmt: skip
    assert order.part("calm").benchmark == "toy"


UNNAMED = """policy: zero
evaluations:
  - {benchmark: toy, task: short}
  - {benchmark: toy, task: long, name: big}
"""


def test_a_part_without_a_name_beside_others_of_its_benchmark_is_named_to_its_workers(tmp_path: Path) -> None:
    settings = read_settings({}, write(tmp_path, UNNAMED))
    order = WorkerOrder(
        run=settings, folder=tmp_path, slots={"toy": 1, "big": 1}, orchestrator=Address("tcp", "h", 1),
        public=Address("tcp", "h", 1), sockets=tmp_path, logs=tmp_path, rules=RetryRules(), results_of=lambda _: 0,
        explain=lambda *_: None, join_token="secret",
    )  # fmt: skip
    assert "--evaluation=toy" in order.arguments("toy", "w"), "else it is sent to the neediest, which may be the other"
    assert settings.plan.worker_flags("toy") == "--benchmark toy --evaluation toy"
    assert settings.plan.worker_flags("big") == "--benchmark toy --evaluation big"
    alone = read_settings({"benchmark": "toy", "task": "short", "policy": "zero"})
    assert alone.plan.worker_flags("toy") == "--benchmark toy", "who starts one by hand need not type it twice"


def test_who_is_for_nothing_in_particular_goes_where_most_waits_for_a_slot(tmp_path: Path) -> None:
    async def work() -> None:
        parts = [{"name": name, "benchmark": "toy", "task": task} for name, task in (("a", "good"), ("b", "short"))]
        coordinator = Run(tmp_path / "run", benchmark=None, task=None, evaluations=parts).coordinator
        assert coordinator.need("a") > coordinator.need("b")
        assignment = pb.Assignment(benchmark="toy", slots=3)
        coordinator.join(pb.Register(worker="w"), assignment, lambda _: None, part="a")
        assert coordinator.need("a") < coordinator.need("b")
        assert coordinator.unattended() == {"b"}

    asyncio.run(work())


def test_lists_and_commas_are_the_same(tmp_path: Path) -> None:
    listed = read_settings({}, write(tmp_path, "benchmark: toy\ntask: [short, long]\npolicy: zero\n"))
    assert listed.plan.task == "short,long"
    servers = read_settings({}, write(tmp_path, "benchmark: toy\ntask: [short]\npolicy_server: ['a:1', 'tls://b:2']\n"))
    assert [str(server) for server in servers.policy.servers] == ["a:1", "tls://b:2"]
    with pytest.raises(UsageError, match=r"line 2: `task`: input should be a valid string, not \[1, 2\]"):
        read_settings({}, write(tmp_path, "benchmark: toy\ntask: [1, 2]\npolicy: zero\n"))


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("polcy: zero\nbenchmark: toy\ntask: short", {}, "run.yaml, line 1: 'polcy'. Did you mean 'policy'"),
        (
            "benchmark: toy\ntask: short\n\nmax-steps: -1\npolicy: zero",
            {},
            "run.yaml, line 4: `max_steps`: input should be greater than or equal to 0, not -1.",
        ),
        ("benchmark: toy\ntask: short\n", {}, "`policy` (hosted for this run) or `policy_server` (hosted"),
        (
            "benchmark: toy\ntask: short\npolicy: zero\nepisodes: 1",
            {"episodes": 0},
            "--episodes: input should be greater than or equal to 1, not 0.",
        ),
        (
            "policy: zero\nevaluations:\n- benchmark: toy\n  task: short\n- benchmark: gym\n  tasks: x\n  task: y",
            {},
            "run.yaml, line 6: `evaluations`, number 2: unknown key 'tasks'. Did you mean 'task'?",
        ),
        (
            "policy: zero\nevaluations:\n- benchmark: toy",
            {},
            "run.yaml, line 3: `evaluations`, number 1, `task` is missing.",
        ),
        (
            "policy: zero\nevaluations:\n- {benchmark: toy, task: short}\n- {benchmark: toy, task: long}",
            {},
            "evaluations has 'toy' twice; give all its tasks in one list, or each of them a `name`.",
        ),
        (
            "policy: zero\nevaluations:\n- {benchmark: toy, task: short, name: a/b}",
            {},
            "line 3: `evaluations`, number 1, `name`: must be of letters, digits, '.', '-' and '_', not \"a/b\".",
        ),
        (
            "benchmark: toy\ntask: short\npolicy: zero\nworker_memory: 1g",
            {},
            "`worker_memory` goes with `launcher: docker`.",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_told_by_its_keys_and_lines(
    text: str, flags: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        read_settings(flags, write(tmp_path, text))
    told = str(refused.value)
    assert said in told.replace(f"{tmp_path}/", "")
    assert flags or "--" not in told


def test_a_run_of_nothing_shows_how_to_run_something(usage: Sparring) -> None:
    done = usage("run")
    assert done.returncode == 2
    assert "\n    sparring run --benchmark metaworld --task easy --policy expert --episodes 10\n" in done.stderr
    assert "sparring run --help" in done.stderr


OWN = """
from toy_benchmark import Toy

class Mine(Toy):
    name = "mine"
"""


def test_a_benchmark_beside_the_user_runs_in_this_process(usage: Sparring, tmp_path: Path) -> None:
    write(tmp_path, OWN, "my_own_benchmark.py")
    done = usage(
        "run", "--benchmark", "my_own_benchmark:Mine", "--task", "good", "--policy", "expert", "--episodes", "1",
        "--output", "out", "--in-process", "--record", "recordings",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    replayed = usage(
        "run", "--benchmark", "my_own_benchmark:Mine", "--task", "good", "--policy", "replay", "--policy-arg",
        "file=recordings", "--episodes", "1", "--output", "replayed", "--in-process",
    )  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr
    assert {row["benchmark"] for row in read_csv(tmp_path / "out")} == {"my_own_benchmark.Mine"}
    assert usage("resume", "out").returncode == 0
    assert "expert on my_own_benchmark.Mine: 2 tasks" in usage("show", "out").stdout


@pytest.mark.processes
def test_workers_find_a_benchmark_beside_the_user_and_each_plays_its_own_part(
    sparring: Sparring, tmp_path: Path
) -> None:
    write(tmp_path, OWN, "my_own_benchmark.py")
    text = """
policy: toy_policies:Forward
episodes: 2
slots: 2
evaluations:
  - {benchmark: "my_own_benchmark:Mine", task: short}
  - {name: other, benchmark: "my_own_benchmark:Mine", task: short, benchmark_arg: {noise: 16}}
"""
    write(tmp_path, text)
    done = sparring("run", "--config", "run.yaml", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert Counter(row["benchmark"] for row in read_csv(tmp_path / "out")) == {"my_own_benchmark.Mine": 2, "other": 2}
    logs = {path.name for path in (tmp_path / "out" / "logs").iterdir()}
    assert {"worker-my_own_benchmark.Mine.log", "worker-other.log"} <= logs
