"""Who may join a run over TCP: by a token, by a certificate, or everybody because somebody has said so."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates, write_secret
from coordinated import Run

from sparring.env_worker.worker.worker import Worker, WorkerRefused
from sparring.orchestrator.coordination.admission import FILE_NAME, Admission, check_admission
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.execution.prepare import prepare
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import RunSettings, read_settings
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address
from sparring.protos.net.connection import ORCHESTRATOR, Connection

TOKEN = "a-secret-of-those-who-join"
HERE = "127.0.0.1:0"
EVERYWHERE = "0.0.0.0:50052"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    return write_secret(tmp_path / "token", TOKEN)


def settings_of(**worker: Any) -> RunSettings:
    return read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "launcher": "none", **worker})


def tls(certificates: Certificates, **more: Any) -> dict[str, Any]:
    cert, key = certificates.pair()
    return {"listen_tls_cert": cert, "listen_tls_key": key, **more}


def join(folder: Path, worker: dict[str, Any], dial: Callable[[Address], Connection]) -> list[tuple[str, int]]:
    """Has a worker dial a run over TCP; returns who has joined it."""

    async def work() -> list[tuple[str, int]]:
        run = Run(folder / "run", launcher="none", **worker)
        listen = Address.parse(HERE)
        service = WorkService(run.coordinator, run.settings, PolicyAccess([]), 1, Admission.of(run.settings, listen))
        with tempfile.TemporaryDirectory() as sockets:
            _, public = await service.start(Path(sockets), listen)
            stop = asyncio.Event()
            joining = Worker(dial(public), benchmark="toy", name="w", on_joined=lambda _: stop.set())
            try:
                await joining.run(stop)
            finally:
                await service.stop("the test has ended.")
        return run.watcher.workers

    return asyncio.run(asyncio.wait_for(work(), 30))


def dialling(certificates: Certificates, identity: str = "", token: str = "", **more: Any) -> Callable[..., Connection]:
    shown = certificates.identity(identity) if identity else None
    ca = more.pop("ca", certificates.trusted)
    return lambda address: Connection(address, token=token, ca=ca, identity=shown, kind=ORCHESTRATOR)


def test_with_tls_and_the_token(tmp_path: Path, certificates: Certificates, token: Path) -> None:
    worker = tls(certificates, listen=HERE, join_token_file=token)
    assert join(tmp_path, worker, dialling(certificates, token=TOKEN))[0] == ("w", 1)
    with pytest.raises(WorkerRefused, match="only workers that bring its join token"):
        join(tmp_path / "again", worker, dialling(certificates))


@pytest.mark.parametrize(
    ("dial", "sentence"),
    [
        ({"ca": b""}, r"the orchestrator at .* is not trusted: .*give the CA that signed it with --ca"),
        ({"plain": True}, r"the orchestrator at .* speaks TLS only: give its address as tls://127"),
    ],
)
def test_who_does_not_trust_it_or_speaks_no_tls_is_told_at_once(
    tmp_path: Path, certificates: Certificates, token: Path, dial: dict[str, Any], sentence: str
) -> None:
    def plain(address: Address) -> Connection:
        return Connection(Address("tcp", address.host, address.port), token=TOKEN, kind=ORCHESTRATOR)

    way = plain if dial.pop("plain", False) else dialling(certificates, token=TOKEN, **dial)
    with pytest.raises(WorkerRefused, match=sentence):
        join(tmp_path, tls(certificates, listen=HERE, join_token_file=token), way)


def test_a_certificate_of_its_own_lets_a_worker_in(tmp_path: Path, certificates: Certificates) -> None:
    worker = tls(certificates, listen=HERE, listen_client_ca=certificates.ca)
    assert join(tmp_path, worker, dialling(certificates, "good"))[0] == ("w", 1)


@pytest.mark.parametrize("identity", ["", "stranger"])
def test_without_one_or_with_a_strangers_nobody_is_let_in(
    tmp_path: Path, certificates: Certificates, identity: str
) -> None:
    worker = tls(certificates, listen=HERE, listen_client_ca=certificates.ca)
    with pytest.raises(WorkerRefused, match=r"does not know who calls: .*--tls-cert and --tls-key"):
        join(tmp_path, worker, dialling(certificates, identity, token=TOKEN))


def test_with_a_token_file_the_certificate_is_not_enough(
    tmp_path: Path, certificates: Certificates, token: Path
) -> None:
    worker = tls(certificates, listen=HERE, listen_client_ca=certificates.ca, join_token_file=token)
    assert join(tmp_path, worker, dialling(certificates, "good", TOKEN))[0] == ("w", 1)
    with pytest.raises(WorkerRefused, match="join token"):
        join(tmp_path / "again", worker, dialling(certificates, "good"))


def told(settings: RunSettings) -> str:
    with pytest.raises(UsageError) as caught:
        prepare(settings)
    return caught.value.told(FLAGS)


def test_beyond_this_machine_a_secret_is_wanted_unless_it_is_meant(certificates: Certificates, token: Path) -> None:
    said = told(settings_of(listen=EVERYWHERE))
    assert said.startswith(f"the run would listen at {EVERYWHERE} and let in everybody who reaches it")
    assert "give --join-token-file, or --listen-client-ca" in said
    assert "--insecure" in said
    assert "let in everybody" in told(settings_of(**tls(certificates, listen=EVERYWHERE))), "TLS alone is no secret"
    for way in (
        {"join_token_file": token},
        {"insecure": True},
        tls(certificates, listen_client_ca=certificates.ca),
        {"listen": HERE},
        {"listen": None},
    ):
        check_admission(settings_of(**{"listen": EVERYWHERE, **way}))


def test_the_policys_token_is_not_for_everybody(certificates: Certificates, token: Path) -> None:
    remote = {"policy": None, "policy_server": "gpu-box:1", "policy_token_file": certificates.token}
    said = told(settings_of(listen=EVERYWHERE, insecure=True, **remote))
    assert "--insecure would hand the policy's token (--policy-token-file) to everybody" in said
    cert, key = certificates.pair()
    shown = {"policy": None, "policy_server": "tls://gpu-box:1", "policy_tls_cert": cert, "policy_tls_key": key}
    said = told(settings_of(listen=EVERYWHERE, insecure=True, **shown))
    assert "--insecure would hand your key (--policy-tls-key) to everybody" in said
    check_admission(settings_of(listen=EVERYWHERE, insecure=True, join_token_file=token, **remote))
    check_admission(settings_of(listen=HERE, insecure=True, **remote))


def test_what_workers_are_told_of_the_policy_does_not_leave_the_machine_in_the_clear(
    certificates: Certificates, token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificates.pair()
    joining = {"listen": EVERYWHERE, "join_token_file": token, "policy": None}
    shown = {**joining, "policy_server": "tls://gpu-box:1", "policy_tls_cert": cert, "policy_tls_key": key}
    said = told(settings_of(**shown))
    assert "--policy-tls-key would go to workers at 0.0.0.0:50052 in the clear: encrypt that with --listen-tls" in said
    check_admission(settings_of(**{**shown, "listen": HERE}))
    check_admission(settings_of(**tls(certificates, **shown)))
    remote = {**joining, "policy_server": "gpu-box:1", "policy_token_file": certificates.token}
    check_admission(settings_of(**tls(certificates, **remote)))
    assert caplog.text == ""
    check_admission(settings_of(**remote))
    assert "the policy's token (--policy-token-file) goes to workers at 0.0.0.0:50052 in the clear" in caplog.text


@pytest.mark.parametrize(
    ("worker", "sentence"),
    [
        ({"listen_tls_cert": "good.pem"}, "--listen-tls-cert is given without --listen-tls-key"),
        ({"listen_tls_key": "good.key"}, "--listen-tls-key is given without --listen-tls-cert"),
        ({"listen_client_ca": "ca.pem"}, "--listen-client-ca is given without --listen-tls-cert and --listen-tls-key"),
        ({"listen_tls_cert": "good.pem", "listen_tls_key": "stranger.key"}, "the key is not this certificate's"),
        (
            {"listen_tls_cert": "good.pem", "listen_tls_key": "good.key", "listen_client_ca": "token"},
            "holds no certificate",
        ),
        (
            {"listen_tls_cert": "good.pem", "listen_tls_key": "good.key", "listen": None},
            "--listen-tls-cert encrypts what comes over TCP: give --listen HOST:PORT, too",
        ),
        ({"join_token_file": "nowhere"}, "(--join-token-file) cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_told_before_anything_starts(
    certificates: Certificates, worker: dict[str, Any], sentence: str
) -> None:
    files = {name: value if name == "listen" else certificates.folder / value for name, value in worker.items()}
    assert sentence in told(settings_of(**{"listen": HERE, **files}))


def test_the_token_that_was_made_for_a_run_is_in_a_file_for_its_user_alone(tmp_path: Path) -> None:
    admission = Admission.of(settings_of(), Address.parse(HERE))
    assert admission.token not in repr(admission)
    assert len(admission.token) > 40
    path = tmp_path / FILE_NAME
    path.symlink_to(tmp_path / "elsewhere")  # of somebody who hopes that it is followed
    with admission.written_to(tmp_path) as flags:
        assert flags == f" --join-token-file {path}"
        assert path.read_text().strip() == admission.token
        assert not path.is_symlink()
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    assert not (tmp_path / "elsewhere").exists()
    assert Admission.of(settings_of(), None).token != admission.token, "each run has its own"
