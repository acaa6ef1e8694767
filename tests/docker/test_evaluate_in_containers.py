"""`evaluate(..., launcher="docker")`: a policy of this process, simulators in containers that stay between calls."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from container_support import containers
from support import Sparring, orphans, read_csv, wait_for
from toy_policies import Forward, Wanderer

from sparring import Evaluator
from sparring.orchestrator.launchers.docker.engine import Engine

pytestmark = pytest.mark.requires("docker")

TOY: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 4, "slots": 2, "launcher": "docker"}


@pytest.fixture(autouse=True)
def _temporary(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a training program are known by a temporary folder; here it is one that has room for sockets.

    Where a path is too long for them, the folder is another one, and no container would be found.
    """
    monkeypatch.setenv("TMPDIR", str(short_folder))
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))


@pytest.fixture
def evaluator(engine: Engine, short_folder: Path) -> Iterator[Evaluator]:
    with Evaluator() as made:
        yield made
    assert containers(engine, short_folder) == [], "closed, and yet there are containers"


def names(engine: Engine, folder: Path) -> list[str]:
    return sorted(container.id for container in containers(engine, folder))


@pytest.mark.parametrize("connection", ["unix", "tcp"])
def test_metaworld_in_a_container_that_stays(
    connection: str,
    sparring: Sparring,
    evaluator: Evaluator,
    engine: Engine,
    images: dict[str, str],
    tmp_path: Path,
    short_folder: Path,
) -> None:
    from sparring.policy_server.policies.metaworld_expert import MetaworldExpert

    plan: dict[str, Any] = {"benchmark": "metaworld", "tasks": "reach-v3", "episodes": 4, "slots": 2}
    flags = ("--benchmark", "metaworld", "--task", "reach-v3", "--episodes", "4", "--slots", "2", "--policy", "expert")
    assert sparring("run", *flags, "--output", "command").returncode == 0
    seconds, before = [], []
    for call in ("first", "second"):
        began = time.perf_counter()
        results = evaluator.evaluate(
            MetaworldExpert(),
            **plan,
            launcher="docker",
            worker_connection=connection,
            image={"metaworld": images["metaworld"]},
            output=tmp_path / call,
        )
        seconds.append(time.perf_counter() - began)
        assert results.overall.successes == 4
        # The image's own simulator and this environment's: the same releases, but perhaps another build of them.
        ours, theirs = read_csv(tmp_path / call), read_csv(tmp_path / "command")
        assert [(r["task"], r["index"], r["seed"], r["outcome"], r["steps"]) for r in ours] == [
            (r["task"], r["index"], r["seed"], r["outcome"], r["steps"]) for r in theirs
        ]
        assert len(names(engine, short_folder)) == 1
        assert before in ([], names(engine, short_folder)), "the same container did both"
        before = names(engine, short_folder)
    assert seconds[1] < seconds[0], f"the second call was to find everything ready: {seconds}"
    assert (tmp_path / "second" / "logs" / "worker-metaworld.log").exists()


def test_each_call_sees_the_policy_as_it_is(
    evaluator: Evaluator, engine: Engine, toy_image: str, calm: Path, tmp_path: Path, short_folder: Path
) -> None:
    here = {**TOY, "image": {"toy": toy_image}}
    policy = Forward(gain=1.0)
    first = evaluator.evaluate(policy, **here)
    policy._gain = 0.02
    second = evaluator.evaluate(policy, **here)
    assert (first.overall.successes, second.overall.successes) == (8, 0)
    before = names(engine, short_folder)
    assert len(before) == 1
    evaluator.evaluate(Wanderer(), **here, output=tmp_path / "out")
    assert read_csv(tmp_path / "out") == read_csv(calm), "the numbers of processes"
    assert names(engine, short_folder) == before


def test_a_container_that_is_killed_between_calls_is_replaced(
    evaluator: Evaluator, engine: Engine, toy_image: str, calm: Path, tmp_path: Path, short_folder: Path
) -> None:
    here = {**TOY, "image": {"toy": toy_image}}
    evaluator.evaluate(Wanderer(), **here)
    (container,) = containers(engine, short_folder)
    container.kill()
    evaluator.evaluate(Wanderer(), **here, output=tmp_path / "out")
    assert read_csv(tmp_path / "out") == read_csv(calm)
    assert container.id not in names(engine, short_folder)


def test_an_image_that_is_not_there_is_a_sentence(evaluator: Evaluator) -> None:
    from sparring.protos.errors import SparringError

    with pytest.raises(SparringError, match="sparring-test/nowhere"):
        evaluator.evaluate(Forward(), **TOY, image={"toy": "sparring-test/nowhere:1"})


TRAINING = """
import sys, time
from sparring import evaluate
from toy_policies import Forward
here = dict(benchmark="toy", tasks="good", slots=2, launcher="docker", image={"toy": sys.argv[1]})
sys.stdout.write(f"{evaluate(Forward(), **here, episodes=2).overall.successes}\\n"); sys.stdout.flush()
"""
ENDINGS = {
    "exit": ("", None),
    "ctrl-c in training": ("time.sleep(100)", signal.SIGINT),
    "ctrl-c in evaluation": ("evaluate(Forward(seconds=0.05), **here, episodes=999)", signal.SIGINT),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_container_outlives_the_program(
    ending: str, engine: Engine, toy_image: str, tmp_path: Path, short_folder: Path
) -> None:
    then, number = ENDINGS[ending]
    program = subprocess.Popen(
        [sys.executable, "-c", TRAINING + then, toy_image], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    try:
        assert program.stdout.readline().strip() == "4"
        if number is not None:
            wait_for(lambda: len(containers(engine, short_folder)) == 1)
            time.sleep(0.5)  # to get into what comes then
            program.send_signal(number)
        _, errors = program.communicate(timeout=150)  # it waits for a container that is told to end
    finally:
        program.kill()
    assert "KeyboardInterrupt" in errors if number else "Traceback" not in errors, errors
    assert containers(engine, short_folder) == []
    assert orphans(tmp_path) == []
