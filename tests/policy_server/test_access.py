"""Tokens and TLS: who is let in, what is encrypted, and the sentence for everything that does not fit."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import numpy as np
import pytest
import sample_policies as sample
from certificates import TOKEN, Certificates
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from policy_serving import TIMEOUT, Server, refused_start

from sparring.policy_server.__main__ import main
from sparring.policy_server.client import Offer, PolicyClient, PolicyDenied, PolicyRefused, PolicyUnreachable
from sparring.protos.errors import UsageError
from sparring.protos.spec import TensorSpec

pytestmark = pytest.mark.processes

Serve = Callable[..., Server]

POLICY = "--policy=sample_policies:Fragile"
OFFER = Offer({sample.SIGNAL: TensorSpec("float64", (1,))}, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
SERVE = ("-m", "sparring", "serve")


@pytest.fixture(scope="module")
def socket_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"unix://{tmp_path_factory.mktemp('socket')}/policy.sock"


@pytest.fixture(scope="module")
def secured(certificates: Certificates, socket_address: str) -> Iterator[Server]:
    """A server with token and TLS that every test of the module asks, well or badly."""
    server = Server(POLICY, certificates.guarding, *certificates.serving(), f"--listen={socket_address}", program=SERVE)
    yield server
    assert server.process.poll() is None, server.log
    assert TOKEN not in server.log
    server.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    server = Server(POLICY)
    yield server
    server.close()


def play(client: PolicyClient) -> float:
    with client, client.open(OFFER) as session:
        session.start()
        return float(session.act({sample.SIGNAL: np.array([20.0])}, step=0).actions[0, 0])


def denied(client: PolicyClient, kind: type[Exception] = PolicyDenied) -> str:
    """The sentence with which both ways in are refused, at second one although there is time to wait."""
    began = time.monotonic()
    with client:
        with pytest.raises(kind) as described:
            client.describe()
        with pytest.raises(kind) as opened:
            client.open(OFFER)
    assert time.monotonic() - began < 30, "and not at the end of its time"
    assert str(described.value) == str(opened.value)
    assert TOKEN not in str(opened.value)
    assert str(opened.value).endswith((".", "?")), str(opened.value)
    return str(opened.value)


def test_with_token_and_ca_all_is_as_ever(secured: Server, certificates: Certificates) -> None:
    assert secured.address.startswith("tls://127.0.0.1:"), "what is told to clients can be given to them"
    assert play(PolicyClient(secured.address, timeout=TIMEOUT, token=TOKEN, ca=certificates.trusted)) == 20.5
    with PolicyClient(secured.address, timeout=TIMEOUT, token=TOKEN, ca=certificates.trusted) as client:
        assert client.describe().name == POLICY.removeprefix("--policy=")


def test_a_ca_alone_turns_tls_on(secured: Server, certificates: Certificates) -> None:
    address = secured.address.removeprefix("tls://")
    assert play(PolicyClient(address, timeout=TIMEOUT, token=TOKEN, ca=certificates.trusted)) == 20.5


def test_tls_without_a_ca_trusts_what_the_machine_trusts(
    secured: Server, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = denied(PolicyClient(secured.address, timeout=TIMEOUT, token=TOKEN))
    assert "not signed by a known CA" in sentence
    assert "give the CA that signed it with ca=" in sentence
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    assert play(PolicyClient(secured.address, timeout=TIMEOUT, token=TOKEN)) == 20.5
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(certificates.other_ca))
    assert "not signed by a known CA" in denied(PolicyClient(secured.address, timeout=TIMEOUT, token=TOKEN))


def test_the_unix_socket_is_plain_but_wants_the_token(socket_address: str, secured: Server) -> None:
    assert play(PolicyClient(socket_address, timeout=TIMEOUT, token=TOKEN)) == 20.5
    assert "give it with token=." in denied(PolicyClient(socket_address, timeout=TIMEOUT))


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_without_the_right_token_nobody_is_let_in(secured: Server, certificates: Certificates, token: str) -> None:
    sentence = denied(PolicyClient(secured.address, timeout=TIMEOUT, token=token, ca=certificates.trusted))
    assert "token=" in sentence
    assert ("wants a token" if not token else "is not the one") in sentence
    assert token not in sentence or not token


def test_a_denial_is_never_taken_for_a_server_that_went_away(socket_address: str, secured: Server) -> None:
    """The hello may be written just as the server ends the stream, and gRPC then has an error of its own to tell."""
    with PolicyClient(socket_address, timeout=TIMEOUT, token="wrong") as client:
        for _ in range(200):
            with pytest.raises(PolicyDenied):
                client.open(OFFER)


def test_a_denial_is_a_mistake_of_the_user_and_not_to_be_tried_again() -> None:
    assert issubclass(PolicyDenied, UsageError)
    assert issubclass(PolicyDenied, PolicyRefused)
    assert not issubclass(PolicyDenied, PolicyUnreachable)


def test_health_is_open_and_reflection_is_not(socket_address: str, secured: Server) -> None:
    with grpc.insecure_channel(socket_address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert next(health.Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)).status == answer.status
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        with pytest.raises(grpc.RpcError) as refused:
            next(stub.ServerReflectionInfo(iter([question]), timeout=TIMEOUT))
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        pass_ = [("authorization", f"Bearer {TOKEN}")]
        answer = next(stub.ServerReflectionInfo(iter([question]), timeout=TIMEOUT, metadata=pass_))
        assert "sparring.policy.v1.Policy" in [service.name for service in answer.list_services_response.service]


def test_a_plain_client_is_told_that_the_server_speaks_tls(secured: Server) -> None:
    address = secured.address.removeprefix("tls://")
    sentence = denied(PolicyClient(address, timeout=TIMEOUT, token=TOKEN))
    assert f"tls://{address}" in sentence
    assert "ca=" in sentence


def test_a_client_with_tls_is_told_that_the_server_speaks_none(plain: Server, certificates: Certificates) -> None:
    for client in (
        PolicyClient(f"tls://{plain.address}", timeout=TIMEOUT),
        PolicyClient(plain.address, timeout=TIMEOUT, ca=certificates.trusted),
    ):
        assert "does not speak TLS" in denied(client)


def test_another_ca_is_a_sentence(secured: Server, certificates: Certificates) -> None:
    other = certificates.other_ca.read_bytes()
    sentence = denied(PolicyClient(secured.address, timeout=TIMEOUT, token=TOKEN, ca=other))
    assert "not signed by a known CA" in sentence
    assert "ca=" in sentence


@pytest.mark.parametrize(
    ("certificate", "said"), [("expired", "has expired"), ("elsewhere", "another name than '127.0.0.1'")]
)
def test_bad_certificates_are_sentences(serve: Serve, certificates: Certificates, certificate: str, said: str) -> None:
    server = serve(POLICY, *certificates.serving(certificate))
    assert said in denied(PolicyClient(server.address, timeout=TIMEOUT, ca=certificates.trusted))


def test_a_server_that_comes_later_is_still_waited_for(certificates: Certificates, serve: Serve) -> None:
    first = serve(POLICY, certificates.guarding, *certificates.serving())
    with PolicyClient(first.address, timeout=TIMEOUT, token=TOKEN, ca=certificates.trusted) as client:
        client.describe()
        first.send(signal.SIGKILL)
        first.wait()
        serve(POLICY, certificates.guarding, *certificates.serving(), listen=first.address.removeprefix("tls://"))
        client.describe()


def test_nobody_there_is_told_as_ever_with_tls(certificates: Certificates) -> None:
    with (
        PolicyClient("tls://127.0.0.1:9", timeout=0.5, ca=certificates.trusted) as client,
        pytest.raises(PolicyUnreachable, match=r"no policy server answered at tls://127.0.0.1:9"),
    ):
        client.describe()


def test_a_machine_that_nobody_knows_is_said_to_be_unknown() -> None:
    name = "x" * 64  # longer than any: no resolver need be asked, which might take its time
    with (
        PolicyClient(f"{name}.invalid:9", timeout=0.5) as client,
        pytest.raises(PolicyUnreachable, match=f"There is no machine of the name '{name}.invalid'"),
    ):
        client.describe()


def test_what_python_callers_can_get_wrong(certificates: Certificates) -> None:
    for wrong in (
        {"address": "tls://unix:///tmp/x.sock"},
        {"address": "unix:///tmp/x.sock", "ca": certificates.trusted},
        {"address": "localhost:1", "ca": b"garbage"},
        {"address": "localhost:1", "token": "two words"},
        {"address": "localhost:1", "token": "späße"},
    ):
        with pytest.raises(UsageError) as refused:
            PolicyClient(**wrong)  # type: ignore[arg-type]
        assert "two words" not in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--token-file={}/none"], "cannot be read"),
        (["--token-file={}"], "cannot be read"),
        (["--token-file={}/empty"], "is empty"),
        (["--token-file={}/two-words"], "one word"),
        (["--token-file={}/binary"], "one word"),
        (["--tls-cert={}/good.pem"], "--tls-cert is given without --tls-key"),
        (["--tls-key={}/good.key"], "--tls-key is given without --tls-cert"),
        (["--tls-cert={}/none", "--tls-key={}/good.key"], "cannot be read"),
        (["--tls-cert={}/good.pem", "--tls-key={}/none"], "cannot be read"),
        (["--tls-cert={}/two-words", "--tls-key={}/good.key"], "BEGIN CERTIFICATE"),
        (["--tls-cert={}/good.pem", "--tls-key={}/binary"], "BEGIN PRIVATE KEY"),
        (["--tls-cert={}/good.pem", "--tls-key={}/expired.key"], "not this certificate's"),
        (["--tls-cert={}/good.pem", "--tls-key={}/locked.key"], "passphrase"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_files_that_a_server_cannot_use(
    certificates: Certificates, capsys: pytest.CaptureFixture[str], flags: Sequence[str], said: str
) -> None:
    folder = certificates.folder
    (folder / "empty").write_text(" \n")
    (folder / "two-words").write_text("open sesame")
    (folder / "binary").write_bytes(bytes(range(256)))
    key = load_pem_private_key((folder / "good.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"1234"))
    (folder / "locked.key").write_bytes(locked)
    with pytest.raises(SystemExit) as ended:
        main(["--policy=zero", "--listen=127.0.0.1:0", *(flag.format(folder) for flag in flags)])
    assert ended.value.code == 2
    said_all = capsys.readouterr().err
    assert said_all.startswith("error: ")
    assert said in said_all
    assert "sesame" not in said_all
    assert "Traceback" not in said_all


def test_sparring_serve_hands_its_files_on(certificates: Certificates) -> None:
    """That it hands on those which are right is the fixture's part."""
    message = refused_start("--policy=zero", certificates.serving()[0], program=SERVE)
    assert message == "error: --tls-cert is given without --tls-key; TLS needs both."


def test_a_token_that_travels_unencrypted_is_warned_of(serve: Serve, certificates: Certificates) -> None:
    warning = "the token travels unencrypted"
    loopback = serve(POLICY, certificates.guarding)
    encrypted = serve(POLICY, certificates.guarding, *certificates.serving(), listen="0.0.0.0:0")
    network = serve(POLICY, certificates.guarding, listen="0.0.0.0:0")
    network.wait_for_log(f"{warning} to {network.address}")
    for server in (loopback, encrypted):
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        assert warning not in server.log


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0"])
@pytest.mark.parametrize("program", [SERVE, ("-m", "sparring.policy_server")])
def test_nobody_listens_beyond_this_machine_without_a_token(address: str, program: tuple[str, ...]) -> None:
    said = refused_start(POLICY, f"--listen={address}", program=program)
    assert "the policy server would listen at " in said
    assert "let in everybody who reaches it: give `sparring serve --token-file`" in said
    assert "or say that it is meant with --insecure." in said


def test_tls_alone_is_no_secret(certificates: Certificates) -> None:
    assert "let in everybody" in refused_start(POLICY, "--listen=0.0.0.0:0", *certificates.serving())


def test_beyond_this_machine_with_a_token_or_if_that_is_meant(serve: Serve, certificates: Certificates) -> None:
    guarded = serve(POLICY, certificates.guarding, listen="0.0.0.0:0")
    local = guarded.address.replace("0.0.0.0", "127.0.0.1")
    assert play(PolicyClient(local, timeout=TIMEOUT, token=TOKEN)) == 20.5
    assert "wants a token" in denied(PolicyClient(local, timeout=TIMEOUT))
    everybodys = serve(POLICY, "--insecure", listen="0.0.0.0:0", program=SERVE)
    assert play(PolicyClient(everybodys.address.replace("0.0.0.0", "127.0.0.1"), timeout=TIMEOUT)) == 20.5


@pytest.fixture(scope="module")
def mutual(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that wants to see a certificate of its callers over TCP, and no token."""
    socket = f"unix://{tmp_path_factory.mktemp('mutual')}/policy.sock"
    server = Server(
        POLICY, *certificates.serving(), f"--client-ca={certificates.ca}", f"--listen={socket}", program=SERVE
    )
    yield server
    assert server.process.poll() is None, server.log
    server.close()


def test_a_certificate_that_its_ca_has_signed_lets_a_caller_in(mutual: Server, certificates: Certificates) -> None:
    shown = certificates.identity()
    assert play(PolicyClient(mutual.address, timeout=TIMEOUT, ca=certificates.trusted, identity=shown)) == 20.5


@pytest.mark.parametrize("who", ["", "stranger"])
def test_without_one_or_with_a_strangers_no_caller_is_let_in(
    mutual: Server, certificates: Certificates, who: str
) -> None:
    shown = certificates.identity(who) if who else None
    sentence = denied(PolicyClient(mutual.address, timeout=TIMEOUT, ca=certificates.trusted, identity=shown))
    assert "does not know who calls: show it a certificate that its CA has signed, with identity=" in sentence


def test_a_key_is_never_in_a_file_of_ours(
    mutual: Server, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's handshakes take it only from one: it is in memory, and needs no folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    shown = certificates.identity("stranger")
    sentence = denied(PolicyClient(mutual.address, timeout=TIMEOUT, ca=certificates.trusted, identity=shown))
    assert "does not know who calls" in sentence


def test_a_certificate_is_shown_over_tls_only(certificates: Certificates) -> None:
    with pytest.raises(UsageError, match=r"a certificate is shown over TLS only: give tls://HOST:PORT, or ca="):
        PolicyClient("127.0.0.1:1", identity=certificates.identity())


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "--client-ca is given without --tls-cert and --tls-key"),
        (("serving",), "holds no certificate"),
    ],
)
def test_a_client_ca_that_cannot_be_used_is_told(
    certificates: Certificates, flags: tuple[str, ...], sentence: str
) -> None:
    ca = certificates.token if flags else certificates.ca
    assert sentence in refused_start(POLICY, *(certificates.serving() if flags else ()), f"--client-ca={ca}")
