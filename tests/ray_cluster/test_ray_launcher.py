"""Runs on a real Ray cluster: the same rows as on one machine, whoever is killed, and nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import ROOT, Sparring, StartSparring, Undisturbed, free_port, read_csv, recorded, wait_for

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--episodes", "4")
WANDERER = ("--policy", "toy_policies:Wanderer")
SLOW = ("--policy", "toy_policies:SlowWanderer")
"""The same actions, and time to do harm in."""


def on(cluster: Any, *more: str) -> tuple[str, ...]:
    """Flags of a run with two workers on a cluster."""
    where = ("--launcher", "ray", "--ray-address", cluster.address, "--workers", "2", "--slots-per-worker", "1")
    return (*where, *more)


def workers_of(process: subprocess.Popen[str], cluster: Any) -> list[psutil.Process]:
    """Returns the worker processes of a run, once both are there, for as long as it goes on."""
    wait_for(lambda: len(cluster.worker_processes()) >= 2 or process.poll() is not None)
    found: list[psutil.Process] = cluster.worker_processes()
    assert process.poll() is None, process.communicate()
    return found


def test_rows_are_those_of_one_machine_and_nothing_is_left(
    sparring: Sparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    done = sparring(*PLAN, *SLOW, *on(cluster, "--ray", "placement=STRICT_SPREAD"), "--output", "ray")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "ray") == undisturbed(*PLAN, *WANDERER)
    assert "worker toy-0-0 is an actor on" in done.stderr
    assert "worker toy-1-0 is an actor on" in done.stderr
    assert cluster.worker_processes() == []
    assert cluster.actors() == []


def test_a_node_that_is_killed_hard_costs_no_episode(
    start_sparring: StartSparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    process = start_sparring(*PLAN, *SLOW, *on(cluster, "--ray", "scheduling=SPREAD"), "--output", "ray")
    workers = workers_of(process, cluster)
    names = cluster.actors()
    assert len(names) == 2
    assert all(name.startswith("sparring ray toy-") for name in names), "they show what they are"
    token = (tmp_path / "ray" / "join-token").read_text().strip()
    for worker in workers:
        assert token not in " ".join(worker.cmdline()), "the token of others"
    wait_for(lambda: recorded(tmp_path / "ray") >= 2)
    cluster.kill(cluster.nodes[0])
    cluster.add(num_cpus=2, resources={"sim": 2})
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "was lost: " in said, "the worker on that node, in Ray's words"
    assert read_csv(tmp_path / "ray") == undisturbed(*PLAN, *WANDERER)
    wait_for(lambda: cluster.worker_processes() == [])


def test_an_actor_that_somebody_kills_is_replaced(
    start_sparring: StartSparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    process = start_sparring(*PLAN, *SLOW, *on(cluster), "--output", "named")
    workers_of(process, cluster)
    assert "sparring run named" in cluster.jobs()
    name = cluster.actors()[0]
    cluster.kill_actor(name)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert re.search(rf"worker {name.split()[2]} was lost: .*ray.kill", said), f"in Ray's words: {said}"
    assert read_csv(tmp_path / "named") == undisturbed(*PLAN, *WANDERER)


def test_an_orchestrator_that_is_killed_leaves_nothing_and_its_run_goes_on(
    sparring: Sparring, start_sparring: StartSparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    process = start_sparring(*PLAN, *SLOW, *on(cluster), "--output", "ray")
    workers_of(process, cluster)
    wait_for(lambda: recorded(tmp_path / "ray") >= 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: cluster.worker_processes() == [], seconds=30)
    wait_for(lambda: cluster.actors() == [], seconds=30)
    had = recorded(tmp_path / "ray")
    done = sparring("resume", "ray")
    assert done.returncode == 0, done.stderr
    assert 2 <= had < 8
    assert read_csv(tmp_path / "ray") == undisturbed(*PLAN, *WANDERER)


def test_ctrl_c_ends_the_workers(start_sparring: StartSparring, cluster: Any, tmp_path: Path) -> None:
    process = start_sparring(*PLAN, *SLOW, *on(cluster), "--output", "ray")
    workers_of(process, cluster)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    wait_for(lambda: cluster.worker_processes() == [], seconds=10)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--ray", "resources={gold: 1}"), "asks Ray for CPU 1, gold 1, and the cluster .* has no node for that"),
        (("--ray", "cpus=64"), "the most that one of its nodes has is CPU 2. Ask for less"),
        (("--ray", "placement_group=nobody"), "Ray has no placement group of that name"),
        (("--ray", "python=/no/such/python"), "cannot be started on .*: .*No such file.*python"),
    ],
)
def test_what_the_cluster_does_not_have_is_told_in_seconds(
    sparring: Sparring, cluster: Any, flags: tuple[str, ...], sentence: str
) -> None:
    began = time.monotonic()
    done = sparring(*PLAN, *WANDERER, *on(cluster, *flags), "--output", "ray")
    assert done.returncode in (1, 2), done.stderr
    assert re.search(sentence, " ".join(done.stderr.split())), done.stderr
    assert time.monotonic() - began < 60, "not after a deadline of Ray's"


def test_workers_wait_for_their_turn_and_the_run_goes_with_those_that_are_there(
    sparring: Sparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    """Eight workers on a cluster that has CPUs for four: the others are pending, as Ray calls it."""
    flags = ("--launcher", "ray", "--ray-address", cluster.address, "--workers", "8", "--slots-per-worker", "1")
    done = sparring(*PLAN, *WANDERER, *flags, "--output", "ray")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "ray") == undisturbed(*PLAN, *WANDERER)
    assert cluster.actors() == []


def test_workers_wait_for_nodes_that_are_yet_to_come(
    start_sparring: StartSparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    """As with an autoscaler: the actors are pending, which is what it looks at, until somebody brings a node."""
    flags = on(cluster, "--ray", "resources={later: 1}", "--ray", "autoscale=true")
    process = start_sparring(*PLAN, *WANDERER, *flags, "--output", "ray")
    wait_for(lambda: len(cluster.actors()) == 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    assert recorded(tmp_path / "ray") == 0
    cluster.add(num_cpus=2, resources={"later": 2})
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert read_csv(tmp_path / "ray") == undisturbed(*PLAN, *WANDERER)


def test_a_runtime_environment_and_gpus_are_those_of_the_benchmark(
    start_sparring: StartSparring, cluster: Any, tmp_path: Path
) -> None:
    cluster.add(num_cpus=2, num_gpus=2)  # Ray believes it; there is none
    process = start_sparring(
        *(*PLAN, *SLOW, *on(cluster), "--output", "ray"),
        *("--ray", "toy.runtime_env={env_vars: {FOR_THE_TOY: here}}", "--ray", "toy.gpus=1"),
    )
    workers = workers_of(process, cluster)
    # A fork on its way to another program looks like its worker for a moment.
    assert {worker.environ().get("FOR_THE_TOY") for worker in workers} == {"here"}
    assert {worker.environ().get("CUDA_VISIBLE_DEVICES") for worker in workers} == {"0", "1"}
    assert len(workers) >= 2
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


RESERVES = """
import ray, sys
ray.init(sys.argv[1], namespace="training", log_to_driver=False)
group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], name="ours")
ray.get(group.ready())
print(group.id.hex(), flush=True)
sys.stdin.read()
table = ray.util.placement_group_table(group)
print(table["state"], flush=True)
"""


def test_workers_have_their_place_in_a_group_of_the_training_program(
    sparring: Sparring, undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", RESERVES, cluster.address]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as training:
        assert training.stdin is not None
        assert training.stdout is not None
        try:
            assert training.stdout.readline().strip()
            flags = on(cluster, "--ray", "placement_group=ours", "--ray", "namespace=training")
            done = sparring(*PLAN, *WANDERER, *flags, "--output", "ray")
            assert done.returncode == 0, done.stderr
            training.stdin.close()
            assert training.stdout.readline().strip() == "CREATED", "it is the program's, and stays"
        finally:
            training.kill()
    assert read_csv(tmp_path / "ray") == undisturbed(*PLAN, *WANDERER)
    assert cluster.actors() == []


def test_it_holds_to_the_rules_of_launchers(sparring: Sparring, cluster: Any) -> None:
    done = sparring("check", "launcher", "ray", "--benchmark", "toy", "--ray-address", cluster.address, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 ok, 0 skipped, 0 failed" in done.stdout


def test_a_training_program_in_ray_evaluates_the_policy_of_its_actor(cluster: Any, tmp_path: Path) -> None:
    program = ROOT / "tests" / "ray_cluster" / "training_program.py"
    done = subprocess.run(
        [sys.executable, str(program), cluster.address], cwd=tmp_path, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["in ray"] == told["here"], "the same rows, wherever the policy and the workers are"
    assert told["again"] == told["here"]
    assert told["batches"] < told["observations"], "several observations go in one call"
    assert told["sessions kept"] <= 8, "of 16 episodes the actor has forgotten those of the first evaluation, at least"
    assert told["generator"] == "untouched"


def test_no_cluster_at_the_address_is_a_sentence_in_seconds(sparring: Sparring) -> None:
    began = time.monotonic()
    nowhere = f"127.0.0.1:{free_port()}"
    done = sparring(*PLAN, *WANDERER, "--launcher", "ray", "--ray-address", nowhere)
    assert done.returncode == 2
    assert f"error: there is no Ray cluster at {nowhere}: " in done.stderr
    assert "--ray-address HOST:PORT" in done.stderr
    assert time.monotonic() - began < 30
