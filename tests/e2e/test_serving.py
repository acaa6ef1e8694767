"""Serving that can be seen and spread: stats of a run, Prometheus, queue delay, replicas."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support import Sparring, StartSparring, Undisturbed, free_port, orphans, read_csv, recorded, wait_for

from sparring.policy_server.client import fetch_stats

RUN = ("run", "--benchmark", "toy", "--task", "good", "--episodes", "6")
POLICY = ("--policy", "toy_policies:Wanderer")


def server_stats(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())["server_stats"]
    return document


def looks(folder: Path) -> int:
    return sum(int(row["round_trips"]) for row in read_csv(folder))


def start_server(start_sparring: StartSparring, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    server = start_sparring("serve", *arguments, "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line, server.communicate()[1]
    return server, json.loads(line)["listening"][0]


def begun(server: str) -> int:
    """Returns how many episodes have begun at a server."""
    return asyncio.run(fetch_stats(server, timeout=60)).episodes


def test_run_json_has_the_stats_of_the_hosted_policy(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*RUN, *POLICY, "--slots", "2", "--output", "out")
    assert done.returncode == 0, done.stderr
    found = server_stats(tmp_path / "out")
    assert found["observations"] == looks(tmp_path / "out") > 20
    assert found["episodes"] == 12
    assert 1 <= found["batch_size"]["mean"] <= found["batch_size"]["max"] <= 2
    assert found["batches"] * found["batch_size"]["mean"] == pytest.approx(found["observations"])
    assert found["observations_per_second"] == pytest.approx(found["observations"] / found["seconds"])
    assert 0 <= found["queue_wait_s"]["p50"] <= found["queue_wait_s"]["p99"] < 5
    assert found["inference_s"]["total"] == pytest.approx(found["inference_s"]["mean"] * found["batches"])
    assert found["errors"] == {}
    assert found["servers"] == {}, "there is only one"


def test_errors_of_the_policy_are_in_the_stats(usage: Sparring, tmp_path: Path) -> None:
    policy = ("--policy", "toy_policies:SaysNaN")
    done = usage(
        "run", "--benchmark", "toy", "--task", "short", "--episodes", "4", *policy, "--retries", "1", "--slots", "1",
        "--output", "out",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert server_stats(tmp_path / "out")["errors"] == {"policy": 4}, "two episodes, two attempts each"
    errors = {row["error"] for row in read_csv(tmp_path / "out") if row["error"]}
    assert errors == {
        "the policy answered with nan in dimension 0 of action 0 of its chunk. (policy 'toy_policies:SaysNaN', step 2)"
    }


@pytest.mark.everything
def test_what_a_policy_has_to_say_is_said_where_people_look(start_sparring: StartSparring, tmp_path: Path) -> None:
    """A batch that does not fit in memory is halved, and whoever evaluates is told: now, and in every run to come."""
    flags = ("--benchmark", "toy", "--task", "short", "--episodes", "4", "--slots", "4")
    said = "out of memory on cpu with a batch of"
    _, address = start_server(start_sparring, "--policy", "toy_torch_policies:Hungry", "--max-queue-delay", "0.2")
    for output in ("first", "second"):
        run = start_sparring("run", *flags, "--policy-server", address, "--output", output)
        printed, errors = run.communicate(timeout=60)
        assert run.returncode == 0, errors
        assert f"warning: {said}" in printed
        assert said in errors, "while it goes"
        assert said in str(server_stats(tmp_path / output)["warnings"])


def test_the_metrics_of_a_run_are_scraped_while_it_goes(start_sparring: StartSparring, tmp_path: Path) -> None:
    port = free_port()
    process = start_sparring(
        *RUN, *POLICY, "--benchmark-arg", "step_seconds=0.02", "--slots", "2", "--metrics", f"127.0.0.1:{port}",
        "--output", "out",
    )  # fmt: skip
    seen: list[float] = []

    def scraped() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return False
        seen.append(next(float(x.split()[1]) for x in lines if x.startswith("sparring_policy_observations_total")))
        sessions = next(float(x.split()[1]) for x in lines if x.startswith("sparring_policy_sessions "))
        return seen[-1] > 5 and sessions == 2

    wait_for(scraped)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert seen[-1] <= looks(tmp_path / "out")


def test_a_server_that_others_used_before_counts_this_run_only(start_sparring: StartSparring, tmp_path: Path) -> None:
    _, address = start_server(start_sparring, *POLICY)
    for name in ("first", "second"):
        # The fixture's own check for orphans would find the server.
        process = start_sparring(*RUN, "--policy-server", address, "--slots", "2", "--output", name)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert server_stats(tmp_path / name)["observations"] == looks(tmp_path / name)


@pytest.mark.everything
def test_stats_go_on_when_a_run_is_resumed(sparring: Sparring, start_sparring: StartSparring, tmp_path: Path) -> None:
    slow = (*RUN, *POLICY, "--benchmark-arg", "step_seconds=0.02", "--slots", "1", "--output", "out")
    process = start_sparring(*slow)
    wait_for(lambda: recorded(tmp_path / "out") >= 3)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    before = server_stats(tmp_path / "out")["observations"]
    assert before > 0
    assert sparring("resume", "out").returncode == 0
    found = server_stats(tmp_path / "out")
    # The episode that was cut off was played again: what was done for it in vain is in the stats, too.
    assert found["observations"] >= looks(tmp_path / "out")
    assert found["observations"] > before
    finished = found["observations"]
    assert sparring("resume", "out").returncode == 0
    assert server_stats(tmp_path / "out")["observations"] == finished, "nothing was left to do"


@pytest.mark.everything
def test_a_queue_delay_makes_larger_batches_and_the_same_numbers(sparring: Sparring, tmp_path: Path) -> None:
    sizes = {}
    for delay in ("0", "0.5", "auto"):
        done = sparring(
            *RUN, *POLICY, "--benchmark-arg", "step_seconds=0.002", "--slots", "4", "--max-queue-delay", delay,
            "--output", f"out{delay}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sizes[delay] = server_stats(tmp_path / f"out{delay}")["batch_size"]["mean"]
    assert sizes["0.5"] > max(sizes["0"], 2)
    assert read_csv(tmp_path / "out0") == read_csv(tmp_path / "out0.5") == read_csv(tmp_path / "outauto")


@pytest.fixture
def calm(undisturbed: Undisturbed) -> list[dict[str, str]]:
    return undisturbed(*RUN, *POLICY)


def test_sessions_are_spread_over_replicas(
    calm: list[dict[str, str]], start_sparring: StartSparring, tmp_path: Path
) -> None:
    servers = dict(start_server(start_sparring, *POLICY)[::-1] for _ in range(2))
    run = start_sparring(*RUN, "--policy-server", ",".join(servers), "--slots", "4", "--output", "out")
    wait_for(lambda: (tmp_path / "out" / "journal.sqlite").exists())
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors
    assert read_csv(tmp_path / "out") == calm
    found = server_stats(tmp_path / "out")
    assert set(found["servers"]) == set(servers)
    assert all(server["episodes"] > 0 for server in found["servers"].values())
    assert sum(server["observations"] for server in found["servers"].values()) == found["observations"]
    assert found["observations"] == looks(tmp_path / "out")


@pytest.mark.everything
def test_workers_of_two_benchmarks_do_not_all_go_to_the_first_replica(
    start_sparring: StartSparring, tmp_path: Path
) -> None:
    servers = [start_server(start_sparring, "--policy", "random")[1] for _ in range(2)]
    (tmp_path / "both.yaml").write_text(
        f"policy_server: {','.join(servers)}\nepisodes: 2\nmax_steps: 20\nslots: 2\noutput: out\nevaluations:\n"
        "  - {benchmark: toy, task: long}\n  - {benchmark: metaworld, task: reach-v3}\n"
    )
    run = start_sparring("run", "--config", "both.yaml")
    _, errors = run.communicate(timeout=100)
    assert run.returncode == 0, errors
    assert [server["episodes"] for server in server_stats(tmp_path / "out")["servers"].values()] == [2, 2]


def test_a_replica_that_is_killed_changes_no_number(
    calm: list[dict[str, str]], start_sparring: StartSparring, tmp_path: Path
) -> None:
    (victim, first), (_, second) = (start_server(start_sparring, *POLICY) for _ in range(2))
    run = start_sparring(
        *RUN, "--policy-server", f"{first},{second}", "--slots", "4", "--benchmark-arg", "step_seconds=0.02",
        "--output", "out",
    )  # fmt: skip
    wait_for(lambda: recorded(tmp_path / "out") >= 1)
    before = begun(first)  # slots are in step, and may all be between two episodes now
    wait_for(lambda: begun(first) > before)
    victim.kill()
    killed = time.monotonic()
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors
    assert time.monotonic() - killed < 30, "slots moved to the other at once"
    rows = read_csv(tmp_path / "out")
    assert rows == calm, "a lost lease is not an attempt"
    with sqlite3.connect(tmp_path / "out" / "journal.sqlite") as journal:
        lost = journal.execute("SELECT count(*) FROM events WHERE kind = 'lost'").fetchone()[0]
    assert lost >= 1, "nobody was in an episode on the one that was killed"


def test_replicas_of_different_policies_are_refused(start_sparring: StartSparring, tmp_path: Path) -> None:
    _, one = start_server(start_sparring, "--policy", "toy_policies:Forward", "--policy-arg", "gain=1")
    _, other = start_server(start_sparring, "--policy", "toy_policies:Forward", "--policy-arg", "gain=2")
    run = start_sparring(*RUN, "--policy-server", f"{one},{other}", "--output", "out")
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 2, errors
    assert "the policy servers do not host the same policy" in errors
    assert f"argument gain: 1 at {one}, 2 at {other}" in errors
    assert not (tmp_path / "out").exists()


def test_a_replica_that_is_not_there_is_named(start_sparring: StartSparring, tmp_path: Path) -> None:
    _, one = start_server(start_sparring, *POLICY)
    missing = f"127.0.0.1:{free_port()}"
    run = start_sparring(
        *RUN, "--policy-server", f"{one},{missing}", "--policy-timeout", "1", "--output", "out"
    )  # fmt: skip
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 1, errors
    assert f"no policy server answered at {missing} within 1 s" in errors


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--policy-server", "a:1,a:1"), "the server a:1 is named twice"),
        (("--policy-server", "a:1,b"), "'b' is not an address"),
        (("--policy-server", "a:1", "--metrics", ":9090"), "--metrics goes with --policy"),
        (("--policy-server", "a:1", "--max-queue-delay", "1"), "--max-queue-delay goes with --policy"),
        (("--policy", "zero", "--metrics", "9090"), "'9090' is not HOST:PORT or :PORT"),
        (("--policy", "zero", "--max-queue-delay", "-1"), "--max-queue-delay: must be seconds, at least 0, or auto"),
        (("--policy", "zero", "--out-of-range", "sometimes"), "'sometimes' is not one of"),
    ],
)
def test_wrong_settings_are_sentences(usage: Sparring, flags: tuple[str, ...], sentence: str) -> None:
    done = usage(*RUN, *flags)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_metrics_at_a_taken_port_end_the_run_with_a_sentence(usage: Sparring, tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = usage(*RUN, *POLICY, "--metrics", f"127.0.0.1:{taken.getsockname()[1]}", "--output", "out")
    assert done.returncode == 2, done.stderr
    assert "the port is taken. Give another --metrics." in done.stderr
    assert not (tmp_path / "out").exists()
    assert orphans(tmp_path) == []
