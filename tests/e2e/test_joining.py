"""Who joins a run, with real processes: nobody without its secret, which is not to be seen anywhere."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from certificates import Certificates, write_secret
from support import StartSparring, free_port, read_csv, recorded, wait_for

pytestmark = pytest.mark.processes

TOKEN = "a-secret-of-those-who-join"
RUN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "3")
SLOW = (*RUN, "--benchmark-arg", "step_seconds=0.05", "--slots", "2")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for the end of a command; returns its exit code and what it said."""
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def shown_by(process: psutil.Process) -> bytes:
    """What others may read of a process."""
    folder = Path("/proc", str(process.pid))
    try:
        return (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
    except OSError:  # it has just ended
        return b""


def test_the_secret_of_launched_workers_is_not_to_be_seen_and_nothing_listens_for_others(
    start_sparring: StartSparring, tmp_path: Path
) -> None:
    write_secret(tmp_path / "token", TOKEN)
    run = start_sparring(*SLOW, "--join-token-file", "token", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1, seconds=60)
    orchestrator = psutil.Process(run.pid)
    family = [orchestrator, *orchestrator.children(recursive=True)]
    assert len(family) >= 4, "a worker, its fork server, slots"
    assert [p.pid for p in family if TOKEN.encode() in shown_by(p)] == []
    assert [c for c in orchestrator.net_connections("tcp") if c.status == psutil.CONN_LISTEN] == []
    _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert TOKEN not in said
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()] == []


def test_a_worker_without_the_secret_hears_what_it_lacks_and_the_run_goes_on(
    start_sparring: StartSparring, tmp_path: Path
) -> None:
    write_secret(tmp_path / "wrong", "a-secret-of-another-run")
    here = f"127.0.0.1:{free_port()}"
    run = start_sparring(*RUN, "--launcher", "none", "--listen", here, "--output", "out")
    wait_for((tmp_path / "out" / "join-token").exists)
    joining = ("worker", "--orchestrator", here, "--slots", "2")
    code, said = ended(start_sparring(*joining))
    assert code == 2
    assert "bring its join token; give the file that has it with --join-token-file" in said
    code, said = ended(start_sparring(*joining, "--join-token-file", "wrong"))
    assert code == 2
    assert "(--join-token-file) is not this run's" in said
    code, said = ended(start_sparring(*joining, "--join-token-file", "out/join-token"))
    assert code == 0, said
    code, said = ended(run)
    assert code == 0, said
    assert "wanted to join without this run's join token, and was not let in" in said
    assert len(read_csv(tmp_path / "out")) == 6


@pytest.mark.everything
def test_over_tls_with_certificates_on_both_sides(
    start_sparring: StartSparring, certificates: Certificates, tmp_path: Path
) -> None:
    here = f"127.0.0.1:{free_port()}"
    cert, key = map(str, certificates.pair())
    tls = ("--listen-tls-cert", cert, "--listen-tls-key", key, "--listen-client-ca", str(certificates.ca))
    run = start_sparring(*RUN, "--launcher", "none", "--listen", here, *tls, "--output", "out")
    trusting = ("worker", "--orchestrator", f"tls://{here}", "--ca", str(certificates.ca), "--slots", "2")
    began = time.monotonic()
    code, said = ended(start_sparring(*trusting))
    assert code == 2, said
    assert "does not know who calls" in said
    assert time.monotonic() - began < 25, "it need not wait for as long as for a run that is not there"
    code, said = ended(start_sparring(*trusting, "--tls-cert", cert, "--tls-key", key))
    assert code == 0, said
    code, said = ended(run)
    assert code == 0, said
    assert f"sparring worker --benchmark toy --orchestrator tls://{here} --tls-cert FILE --tls-key FILE" in said
    assert not (tmp_path / "out" / "join-token").exists()
    assert len(read_csv(tmp_path / "out")) == 6


def test_a_persistent_worker_hands_what_it_was_told_to_each_of_its_workers(
    start_sparring: StartSparring, tmp_path: Path
) -> None:
    write_secret(tmp_path / "token", TOKEN)
    here = f"127.0.0.1:{free_port()}"
    flags = ("--orchestrator", here, "--join-token-file", "-", "--stay", "--slots", "2")
    command = [sys.executable, "-m", "sparring", "worker", *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path) as worker:
        try:
            assert worker.stdin is not None
            worker.stdin.write(f"{TOKEN}\n")
            worker.stdin.flush()
            for number in range(2):
                own = ("--launcher", "none", "--listen", here, "--join-token-file", "token", "--output", f"out{number}")
                run = start_sparring(*RUN, *own)
                _, said = run.communicate(timeout=60)
                assert run.returncode == 0, said
            worker.terminate()
            assert worker.wait(60) == 0
        finally:
            worker.kill()


def test_a_run_that_starts_no_workers_says_the_command_that_does(
    start_sparring: StartSparring,
) -> None:
    run = start_sparring(
        "run", "--benchmark", "toy", "--task", "short", "--policy", "expert", "--episodes", "2", "--launcher", "none",
        "--listen", f"127.0.0.1:{free_port()}", "--output", "my run",
    )  # fmt: skip
    assert run.stderr is not None
    said = ""
    while "sparring worker" not in said:
        said = run.stderr.readline()
        assert said, "it ended without a word"
    assert "more workers" not in said, "there is none"
    command = shlex.split(said[said.index("sparring worker") :])
    worker = subprocess.run(  # in another folder than the run
        [sys.executable, "-m", *command], cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    assert worker.returncode == 0, worker.stderr
    assert run.wait(60) == 0
