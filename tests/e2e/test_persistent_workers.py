"""`sparring worker --stay`: real runs that come and go, and a worker that outlives them."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from certificates import write_secret
from support import StartSparring, Undisturbed, free_port, orphans, read_csv, sampled, wait_for

RUN = (
    "run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "3",
    "--launcher", "none", "--join-token-file", "join-token",
)  # fmt: skip
LONG = (*RUN, "--episodes", "50", "--benchmark-arg", "step_seconds=0.05")


class Worker:
    """A persistent worker and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self._lines.extend(iter(self.process.stderr.readline, ""))

    @property
    def said(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str, times: int = 1) -> None:
        try:
            wait_for(lambda: self.said.count(text) >= times)
        except TimeoutError:
            raise AssertionError(f"{text!r} was not said {times} times: {self.said}") from None

    @property
    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: signal.Signals) -> None:
        """Ends it well, and soon."""
        self.process.send_signal(number)
        assert self.process.wait(60) == 0, self.said
        assert "Traceback" not in self.said


@pytest.fixture
def here(tmp_path: Path) -> str:
    write_secret(tmp_path / "join-token", "a-secret-of-many-runs")
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def persistent(start_sparring: StartSparring, here: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Starts persistent workers; with the test they end, and everything of theirs."""
    started: list[Worker] = []
    joining = ("--orchestrator", here, "--join-token-file", "join-token")

    def start(*flags: str) -> Worker:
        started.append(Worker(start_sparring("worker", *joining, "--slots", "2", "--stay", *flags)))
        return started[-1]

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait(10)
    assert orphans(tmp_path) == []


def pss(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / 2**20


def test_one_worker_serves_run_after_run(
    persistent: Callable[..., Worker],
    undisturbed: Undisturbed,
    start_sparring: StartSparring,
    here: str,
    tmp_path: Path,
) -> None:
    rows = undisturbed(*RUN[: RUN.index("--launcher")])
    worker = persistent()
    worker.wait_for(f"waiting for a run at {here}")
    time.sleep(2.0)  # it knocks again and again, and says nothing
    assert worker.said.count("\n") == 1, worker.said
    for number in (1, 2):
        run = start_sparring(*RUN, "--listen", here, "--output", f"out{number}")
        _, said = run.communicate(timeout=60)
        assert run.returncode == 0, said
        assert read_csv(tmp_path / f"out{number}") == rows
        worker.wait_for(f"joined the run at {here} with 2 slots for toy", number)
        worker.wait_for("has ended; waiting for the next", number)
        assert worker.family == [], "nothing of a run is left"
        assert pss(psutil.Process(worker.process.pid)) < 30, "MiB; a worker with its slots has hundreds"
    worker.stop(signal.SIGTERM)


def test_an_orchestrator_that_is_killed_is_waited_for_and_found_again(
    persistent: Callable[..., Worker], start_sparring: StartSparring, here: str, tmp_path: Path
) -> None:
    run = start_sparring(*LONG, "--listen", here, "--output", "out")
    worker = persistent()
    worker.wait_for("joined the run")
    wait_for(lambda: len(worker.family) >= 3)
    run.kill()
    worker.wait_for("went away")
    wait_for(lambda: worker.family == [])
    again = start_sparring(*LONG, "--listen", here, "--output", "out")
    worker.wait_for("joined the run", 2)
    again.terminate()
    again.communicate(timeout=60)
    worker.wait_for("has ended; waiting for the next")
    worker.stop(signal.SIGINT)


@pytest.mark.parametrize(
    "number", sampled([signal.SIGTERM, signal.SIGINT], signal.SIGTERM), ids=lambda number: number.name
)
def test_told_to_stop_in_the_middle_of_episodes(
    persistent: Callable[..., Worker], start_sparring: StartSparring, here: str, number: signal.Signals
) -> None:
    run = start_sparring(*LONG, "--listen", here, "--output", "out")
    worker = persistent()
    worker.wait_for("joined the run")
    wait_for(lambda: len(worker.family) >= 4)  # the worker, its fork server, two slots
    family = worker.family
    worker.stop(number)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    assert run.poll() is None, "the run goes on without it"
    run.terminate()
    run.communicate(timeout=60)


def test_nobody_is_left_when_a_persistent_worker_is_killed(
    persistent: Callable[..., Worker], start_sparring: StartSparring, here: str
) -> None:
    run = start_sparring(*LONG, "--listen", here, "--output", "out")
    worker = persistent()
    worker.wait_for("joined the run")
    wait_for(lambda: len(worker.family) >= 4)
    family = worker.family
    worker.process.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    run.terminate()
    run.communicate(timeout=60)


@pytest.mark.everything
def test_a_run_that_does_not_want_it_is_told_once_and_the_next_one_is_served(
    persistent: Callable[..., Worker], start_sparring: StartSparring, here: str, tmp_path: Path
) -> None:
    gym = ("run", "--benchmark", "gym", "--task", "CartPole-v1", "--policy", "random", *RUN[RUN.index("--launcher") :])
    other = start_sparring(*gym, "--listen", here, "--output", "other")
    worker = persistent("--benchmark", "toy")
    worker.wait_for("not wanted")
    time.sleep(3.5)  # it has asked again by now
    assert worker.said.count("not wanted") == 1
    assert "this run is of gym, and the worker has only toy installed" in worker.said
    refused = start_sparring("worker", "--orchestrator", here, "--join-token-file", "join-token", "--benchmark", "toy")
    _, said = refused.communicate(timeout=60)
    assert refused.returncode == 2, "without --stay that is an error"
    assert "this run is of gym" in said
    other.terminate()
    other.communicate(timeout=60)
    run = start_sparring(*RUN, "--listen", here, "--output", "out")
    _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert len(read_csv(tmp_path / "out")) == 6
    worker.stop(signal.SIGTERM)


def test_a_worker_that_waits_for_its_first_run_stops_when_told(start_sparring: StartSparring, here: str) -> None:
    """Without --stay, too: it need not wait for as long as it would for a run."""
    worker = start_sparring("worker", "--orchestrator", here)
    time.sleep(1.5)
    worker.terminate()
    worker.wait(60)  # and not the minutes that it would wait for a run
