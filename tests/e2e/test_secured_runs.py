"""A run whose policy is hosted elsewhere, behind a token and TLS: real servers, real certificates, real workers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import TOKEN, Certificates, write_secret
from policy_processes import PolicyProcess
from support import Sparring, StartSparring, free_port, read_csv, wait_for

RUN = ("run", "--benchmark", "toy", "--task", "good", "--episodes", "3", "--slots", "2")
WANDERER = ("--policy", "toy_policies:Wanderer")
JOIN_TOKEN = "a-secret-of-those-who-join"


@pytest.fixture(scope="module")
def secured(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of `sparring serve` with token and TLS."""
    flags = (*WANDERER, certificates.guarding, *certificates.serving())
    with PolicyProcess(*flags, folder=tmp_path_factory.mktemp("server")) as server:
        yield server.address


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with PolicyProcess(*WANDERER, folder=tmp_path_factory.mktemp("plain")) as server:
        yield server.address


def assert_nowhere(secret: str, folder: Path) -> None:
    """No file below the folder holds the secret: not run.json, not the journal, no log."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"run.json", "journal.sqlite", "episodes.csv"} <= {path.name for path in files}
    assert any(path.suffix == ".log" for path in files), "there are logs to look at"
    for path in files:
        assert secret.encode() not in path.read_bytes(), path


def test_a_run_with_token_and_tls(sparring: Sparring, secured: str, certificates: Certificates, tmp_path: Path) -> None:
    assert sparring(*RUN, *WANDERER, "--output", "here").returncode == 0
    done = sparring(
        *RUN, "--policy-server", secured, "--policy-token-file", str(certificates.token),
        "--policy-ca", str(certificates.ca), "--output", "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "out") == read_csv(tmp_path / "here")
    assert TOKEN not in done.stdout + done.stderr
    assert_nowhere(TOKEN, tmp_path / "out")
    saved = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert saved["policy_token_file"] == str(certificates.token), "its path may be saved"
    assert saved["policy_ca"] == str(certificates.ca)


def test_the_same_from_a_file_with_a_worker_from_elsewhere_and_a_resume(
    sparring: Sparring, start_sparring: StartSparring, secured: str, certificates: Certificates, tmp_path: Path
) -> None:
    here = f"127.0.0.1:{free_port()}"
    (tmp_path / "run.yaml").write_text(
        f"benchmark: toy\ntask: good\nepisodes: 3\npolicy_server: {secured}\nlauncher: none\n"
        f"listen: {here}\njoin_token_file: join-token\n"
        f"policy_token_file: {certificates.token}\npolicy_ca: {certificates.ca}\noutput: out\n"
    )
    write_secret(tmp_path / "join-token", JOIN_TOKEN)
    run = start_sparring("run", "--config", "run.yaml")
    worker = start_sparring("worker", "--orchestrator", here, "--slots", "2", "--join-token-file", "join-token")
    _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    _, worker_said = worker.communicate(timeout=60)
    assert worker.returncode == 0
    for secret in (TOKEN, JOIN_TOKEN):
        assert secret not in said + worker_said
        assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
    rows = read_csv(tmp_path / "out")
    assert len(rows) == 6
    # A resume reads the token from the same path, and denial there is as clear as at the start.
    assert sparring("resume", "out").returncode == 0
    write_secret(tmp_path / "other-token", "wrong-but-long-enough")
    done = sparring("resume", "out", "--episodes", "4", "--policy-token-file", "other-token")
    assert done.returncode == 2
    assert "is not the one" in done.stderr
    assert read_csv(tmp_path / "out") == rows


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["{tls}", "--policy-ca={ca}"], "wants a token; give it with --policy-token-file"),
        (["{tls}", "--policy-ca={ca}", "--policy-token-file={wrong}"], "is not the one"),
        (["{tls}", "--policy-token-file={token}"], "give the CA that signed it with --policy-ca"),
        (["{tls}", "--policy-token-file={token}", "--policy-ca={other_ca}"], "not signed by a known CA"),
        (["{bare}", "--policy-token-file={token}"], "give its address as tls://"),
        (["tls://{plain}"], "does not speak TLS"),
        (["{plain}", "--policy-ca={ca}"], "does not speak TLS"),
        (["{tls}", "--policy-token-file={wrong}x"], "cannot be read"),
        (["{tls}", "--policy-ca={token}"], "holds no certificate"),
        (["unix:///nowhere.sock", "--policy-ca={ca}"], "never encrypted"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_ends_the_run_at_once(
    usage: Sparring,
    secured: str,
    plain: str,
    certificates: Certificates,
    tmp_path: Path,
    flags: list[str],
    said: str,
) -> None:
    write_secret(tmp_path / "wrong", "open-sesame-open-sesame")
    values = {
        "tls": secured, "bare": secured.removeprefix("tls://"), "plain": plain, "wrong": tmp_path / "wrong",
        "token": certificates.token, "ca": certificates.ca, "other_ca": certificates.other_ca,
    }  # fmt: skip
    began = time.monotonic()
    done = usage(*RUN, "--output", "out", "--policy-server", *(flag.format(**values) for flag in flags))
    assert done.returncode == 2, done.stderr
    assert time.monotonic() - began < 15, "not after the policy's timeout"
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last
    assert TOKEN not in done.stderr
    assert "open-sesame" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists(), "no debris of a mistyped command"


@pytest.mark.everything
def test_a_server_that_comes_back_with_another_token_ends_the_run(
    start_sparring: StartSparring, certificates: Certificates, tmp_path: Path
) -> None:
    """A worker, too, is denied at once, and what it is told is told to the user."""
    write_secret(tmp_path / "new-token", "another-one-that-is-long")
    with PolicyProcess(*WANDERER, certificates.guarding, folder=tmp_path / "first") as server:
        run = start_sparring(
            *RUN, "--episodes", "20", "--benchmark-arg", "step_seconds=0.02", "--output", "out",
            "--policy-server", server.address, "--policy-token-file", str(certificates.token),
        )  # fmt: skip
        wait_for(lambda: server.connections() >= 2)
    listen = ("--listen", server.address)
    with PolicyProcess(*WANDERER, "--token-file=new-token", *listen, folder=tmp_path):
        _, said = run.communicate(timeout=60)
    assert run.returncode == 2, said
    assert "is not the one" in said


@pytest.mark.everything
def test_a_run_whose_policy_server_wants_to_know_who_calls(
    sparring: Sparring, certificates: Certificates, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cert, key = certificates.pair()
    to_server = ("--policy-ca", str(certificates.ca))
    shown = ("--policy-tls-cert", str(cert), "--policy-tls-key", str(key))
    flags = (*WANDERER, *certificates.serving(), f"--client-ca={certificates.ca}")
    with PolicyProcess(*flags, folder=tmp_path_factory.mktemp("mutual")) as server:
        done = sparring(*RUN, "--policy-server", server.address, *to_server, *shown, "--output", "out")
        assert done.returncode == 0, done.stderr
        assert len(read_csv(tmp_path / "out")) == 6
        assert_nowhere(key.read_text().splitlines()[1], tmp_path / "out")
        nobody = sparring(*RUN, "--policy-server", server.address, *to_server, "--output", "other")
        assert nobody.returncode == 2
        assert "show it a certificate that its CA has signed, with --policy-tls-cert" in nobody.stderr
        described = sparring(
            "describe", server.address, "--ca", str(certificates.ca), "--tls-cert", str(cert), "--tls-key", str(key)
        )
        assert "toy_policies:Wanderer" in described.stdout, described.stderr
