"""Sessions over frames, at the unix socket beside gRPC's: the same rules, the same sentences, the same limits."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import sample_policies as sample
from policy_serving import HERE, TIMEOUT, Server

from sparring.policy_server.client import (
    Offer,
    PolicyClient,
    PolicyDenied,
    PolicyFailed,
    PolicyRefused,
    PolicyUnanswered,
    PolicyUnreachable,
)
from sparring.policy_server.framed_session import FramedSession
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.net.address import Address
from sparring.protos.net.frames import (
    END,
    MESSAGE,
    MOST_OPENING,
    OPENING,
    VERSION,
    FrameReader,
    FrameTooLong,
    frame,
    frames_path,
)
from sparring.protos.policy_pb2_grpc import PolicyStub
from sparring.protos.spec import TensorSpec

Serve = Callable[..., Server]

POLICY = "--policy=sample_policies:Fragile"
OFFER = Offer({sample.SIGNAL: TensorSpec("float64", (1,))}, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
HELLO = pb.RolloutRequest(hello=pb.Hello(protocol=PROTOCOL_VERSION, offer=OFFER.to_message())).SerializeToString()
OPEN = frame(OPENING, bytes([VERSION]))
TOKEN = "a-token-that-is-long-enough-to-be-one"


def signal_of(value: float) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    return {sample.SIGNAL: np.array([float(value)])}


def dial(address: str) -> socket.socket:
    path = frames_path(Address.parse(address))
    opened = socket.socket(socket.AF_UNIX)
    opened.settimeout(TIMEOUT)
    opened.connect(str(path))
    return opened


def rest_of(opened: socket.socket) -> list[tuple[int, bytes]]:
    """All frames that come until the other side hangs up, or has ended the stream."""
    reader, found = FrameReader(1 << 20), []
    while not found or found[-1][0] != END:
        try:
            count = opened.recv_into(reader.space)
        except ConnectionResetError:
            break
        if not count:
            break
        reader.came(count)
        while (one := reader.take()) is not None:
            found.append(one)
    return found


def sessions_at(address: str) -> int:
    with grpc.insecure_channel(Address.parse(address).target) as channel:
        return PolicyStub(channel).Stats(pb.StatsRequest(), timeout=TIMEOUT).sessions


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# ------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize("size", [0, 1, 65_530, 65_531, 65_532, 200_000])
@pytest.mark.parametrize("at_once", [1, 7, 65_536, 10**6])
def test_frames_are_what_was_framed_however_they_come(size: int, at_once: int) -> None:
    if at_once == 1 and size > 1:
        size = 300
    sent = [(MESSAGE, os.urandom(size)), (END, b"x"), (OPENING, b""), (MESSAGE, os.urandom(size))]
    data = b"".join(frame(kind, content) for kind, content in sent)
    reader, found, at = FrameReader(size), [], 0
    reader.most = max(size, 1)
    while at < len(data):
        space = reader.space
        count = min(at_once, len(space), len(data) - at)
        assert count
        space[:count] = data[at : at + count]
        reader.came(count)
        at += count
        while (one := reader.take()) is not None:
            found.append(one)
    assert found == sent


def test_a_frame_has_its_limit() -> None:
    for length, fits in ((100, True), (101, False)):
        reader = FrameReader(100)
        head = frame(MESSAGE, bytes(length))[:5]
        reader.space[: len(head)] = head
        reader.came(len(head))
        if fits:
            assert reader.take() is None
        else:
            with pytest.raises(FrameTooLong, match="101 bytes came where 100 are the most"):
                reader.take()


def test_there_are_frames_beside_unix_sockets_only_and_where_their_path_is_short_enough() -> None:
    assert frames_path(Address.parse("unix:///tmp/policy.sock")) == Path("/tmp/policy.sock.frames")
    assert frames_path(Address.parse("127.0.0.1:5")) is None
    longest = Address.unix(Path("/" + "x" * (107 - 1 - len(".frames"))))
    assert frames_path(longest) is not None
    assert frames_path(Address.unix(Path(f"{longest.path}x"))) is None


# ------------------------------------------------------------------------------------------- sessions


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all that it must outlive."""
    server = Server(POLICY, "--grace=0", listen=f"unix://{tmp_path_factory.mktemp('near')}/p.sock")
    yield server.address
    assert server.process.poll() is None, server.log
    server.close()


@pytest.mark.processes
def test_a_session_near_by_uses_frames_and_answers_as_gRPC_does(near: str) -> None:
    with PolicyClient(near, timeout=TIMEOUT) as client, client.open(OFFER, client="me") as session:
        assert isinstance(session, FramedSession)
        for episode in range(2):
            session.start(seed=episode)
            for step in range(3):
                assert session.act(signal_of(20.0 + step), step=step).actions.tolist() == [[20.5 + step] * 2]
        assert session.policy.name == "sample_policies:Fragile"
        assert not session.is_over


def failures(client: PolicyClient) -> list[str]:
    """What is said about everything that goes wrong in turn."""
    said = []
    session = client.open(OFFER)
    session.start(seed=7)
    with pytest.raises(PolicyFailed) as failed:
        session.act(signal_of(sample.RAISE), step=0)
    said.append(failed.value.sentence)
    assert session.is_over
    session = client.open(OFFER)
    session.start()
    session.act(signal_of(20.0), step=3)
    with pytest.raises(PolicyRefused) as refused:
        session.act(signal_of(20.0), step=3)
    said.append(refused.value.sentence)
    with pytest.raises((PolicyUnreachable, PolicyRefused)):
        session.act(signal_of(20.0), step=4)
    with pytest.raises(PolicyRefused) as mismatch:
        client.open(Offer({"x": TensorSpec("float64", (1,))}, (-1.0, -1.0), (1.0, 1.0)))
    return [*said, mismatch.value.sentence]


@pytest.mark.processes
def test_what_fails_is_told_in_the_same_words(near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PolicyClient(near, timeout=TIMEOUT) as client:
        framed = failures(client)
        monkeypatch.setattr(FramedSession, "connected", lambda *_: None)
        with client.open(OFFER) as session:
            assert not isinstance(session, FramedSession)
        assert failures(client) == framed


@pytest.mark.processes
def test_who_hangs_up_gives_the_place_back(near: str) -> None:
    before = sessions_at(near)
    with PolicyClient(near, timeout=TIMEOUT) as client:
        client.open(OFFER)
        kept = client.open(OFFER)
        wait_until(lambda: sessions_at(near) <= before + 2, "too many")
        assert sessions_at(near) >= before + 1
        assert not kept.is_over
    wait_until(lambda: sessions_at(near) == before, "a place is not given back")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("said", "code", "sentence"),
    [
        (frame(MESSAGE, HELLO), grpc.StatusCode.FAILED_PRECONDITION, "not due"),
        (OPEN + OPEN, grpc.StatusCode.FAILED_PRECONDITION, "not due"),
        (frame(OPENING, bytes([VERSION + 1])), grpc.StatusCode.FAILED_PRECONDITION, "version"),
        (frame(OPENING, b""), grpc.StatusCode.FAILED_PRECONDITION, "version"),
        (frame(OPENING, bytes(MOST_OPENING + 1)), grpc.StatusCode.RESOURCE_EXHAUSTED, "the most"),
        (b"GET / HTTP/1.1\r\n\r\n" * 100, grpc.StatusCode.RESOURCE_EXHAUSTED, "the most"),
        (OPEN + b"\xff\xff\xff\xff\x00", grpc.StatusCode.RESOURCE_EXHAUSTED, "the most"),
        (OPEN + frame(MESSAGE, b"nonsense"), grpc.StatusCode.INVALID_ARGUMENT, "not of this protocol"),
        (OPEN + frame(MESSAGE, HELLO) * 2, grpc.StatusCode.FAILED_PRECONDITION, "a second hello"),
        (OPEN + frame(MESSAGE, b"") * 400, grpc.StatusCode.FAILED_PRECONDITION, "without content"),
        (OPEN + frame(MESSAGE, bytes(300_000)), grpc.StatusCode.INVALID_ARGUMENT, "longest that can be due"),
    ],
)
def test_whoever_breaks_a_rule_is_told_and_the_server_stays(
    near: str, said: bytes, code: grpc.StatusCode, sentence: str
) -> None:
    with dial(near) as opened:
        opened.sendall(said)
        kind, content = rest_of(opened)[-1]
    assert kind == END
    assert content[0] == code.value[0]
    assert sentence in content[1:].decode()
    with PolicyClient(near, timeout=TIMEOUT) as client, client.open(OFFER) as session:
        session.start()
        assert session.act(signal_of(20.0), step=0).actions[0, 0] == 20.5


@pytest.mark.processes
def test_messages_that_come_all_at_once_are_answered_one_after_the_other(near: str) -> None:
    start = pb.RolloutRequest(episode_start=pb.EpisodeStart(number=1)).SerializeToString()
    with dial(near) as opened:
        opened.sendall(OPEN + frame(MESSAGE, HELLO) + frame(MESSAGE, start) * 3)
        kinds = [kind for kind, _ in rest_of(opened)]
    assert kinds == [MESSAGE, MESSAGE, END]  # welcome, started, and a number that does not go up


@pytest.mark.processes
def test_the_token_is_wanted_here_too(serve: Serve, short_folder: Path) -> None:
    token = short_folder / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    address = serve(POLICY, f"--token-file={token}", listen=f"unix://{short_folder}/p.sock").address
    with PolicyClient(address, timeout=TIMEOUT, token=TOKEN) as client, client.open(OFFER) as session:
        assert isinstance(session, FramedSession)
    for wrong, sentence in (("", "wants a token"), ("another-one-of-the-same-kind-of-size", "is not the one")):
        with PolicyClient(address, timeout=TIMEOUT, token=wrong) as client, pytest.raises(PolicyDenied, match=sentence):
            client.open(OFFER)
    with dial(address) as opened:  # and not a word of the contract without it
        opened.sendall(OPEN + frame(MESSAGE, HELLO))
        ((kind, content),) = rest_of(opened)
        assert (kind, content[0]) == (END, grpc.StatusCode.UNAUTHENTICATED.value[0])


@pytest.mark.processes
def test_who_is_silent_is_not_waited_for(serve: Serve, short_folder: Path) -> None:
    limits = {"hello_seconds": 0.3, "idle_seconds": 0.6, "sweep_seconds": 0.1, "sessions": 2}
    server = serve(
        POLICY,
        f"--limits={json.dumps(limits)}",
        program=(str(HERE / "limited_server.py"),),
        listen=f"unix://{short_folder}/p.sock",
    )
    with dial(server.address) as nothing:
        assert rest_of(nothing) == []
    with dial(server.address) as no_hello:
        no_hello.sendall(OPEN)
        ((kind, content),) = rest_of(no_hello)
        assert (kind, b"no hello came" in content) == (END, True)
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        session = client.open(OFFER)
        wait_until(lambda: session.is_over, "an idle session is not ended")
        with pytest.raises(PolicyUnreachable, match=r"no message came for 0\.6 s"):
            session.start()
        first = client.open(OFFER)
        second = client.open(OFFER)
        with pytest.raises(PolicyUnreachable, match="holds 2 sessions and takes no more"):
            client.open(OFFER)
        first.close()
        second.close()


@pytest.mark.processes
def test_a_server_that_dies_or_hangs_is_noticed_and_the_next_one_is_found(serve: Serve, short_folder: Path) -> None:
    listen = f"unix://{short_folder}/p.sock"
    first = serve(POLICY, listen=listen)
    with PolicyClient(listen, timeout=TIMEOUT) as client:
        session = client.open(OFFER)
        session.start()
        first.send(signal.SIGKILL)
        with pytest.raises(PolicyUnreachable, match="went away"):
            session.act(signal_of(20.0), step=0)
        started = threading.Timer(0.5, lambda: serve(POLICY, listen=listen))
        started.start()
        session = client.open(OFFER)  # the socket is there, and nobody listens: it is waited for, as ever
        session.start()
        assert session.act(signal_of(20.0), step=0).actions[0, 0] == 20.5
        started.join()
        assert isinstance(client.open(OFFER), FramedSession)


@pytest.mark.processes
def test_a_server_that_is_stopped_has_its_deadline(serve: Serve, short_folder: Path) -> None:
    server = serve(POLICY, listen=f"unix://{short_folder}/p.sock")
    with PolicyClient(server.address, timeout=0.5) as client:
        session = client.open(OFFER, connect_timeout=TIMEOUT)
        server.send(signal.SIGSTOP)
        with pytest.raises(PolicyUnanswered, match=r"within 0\.5 s"):
            session.start()
        server.send(signal.SIGCONT)


@pytest.mark.processes
def test_a_server_that_shuts_down_lets_the_episode_end_and_leaves_no_socket(serve: Serve, short_folder: Path) -> None:
    server = serve(POLICY, "--grace=20", listen=f"unix://{short_folder}/p.sock")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        session = client.open(OFFER)
        session.start()
        server.send(signal.SIGTERM)
        server.wait_for_log("draining")
        assert session.act(signal_of(20.0), step=0).actions[0, 0] == 20.5
        with pytest.raises(PolicyUnreachable, match="shutting down"):
            session.start()
    assert server.wait() == 0
    assert list(short_folder.glob("*.frames")) == []


def test_a_socket_that_is_somebody_elses_is_not_used(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write to the folder could put one there, and would be told the token."""
    (short_folder / "p.sock").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(short_folder / "p.sock.frames"))
        listening.listen()
        with PolicyClient(f"unix://{short_folder}/p.sock", timeout=0.2) as client:
            assert FramedSession.connected(client._connection, 0.2) is not None
            stat = Path.stat

            def others(path: Path, **options: bool) -> os.stat_result:
                """Says of both paths that they are of another user: who listens is not, and that is what counts."""
                cells = list(stat(path, **options))
                cells[4] += 1
                return os.stat_result(cells)

            monkeypatch.setattr(Path, "stat", others)
            assert FramedSession.connected(client._connection, 0.2) is None


def test_who_waits_for_an_answer_hears_that_the_session_was_closed(short_folder: Path) -> None:
    (short_folder / "p.sock").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(short_folder / "p.sock.frames"))
        listening.listen()
        with PolicyClient(f"unix://{short_folder}/p.sock", timeout=TIMEOUT) as client:
            session = FramedSession.connected(client._connection, TIMEOUT)
            assert session is not None
            server, _ = listening.accept()
            closing = threading.Timer(0.3, session.close)
            closing.start()
            began = time.monotonic()
            with server, pytest.raises(PolicyUnreachable):
                session.start()
            assert time.monotonic() - began < TIMEOUT / 2
            closing.join()


@pytest.mark.processes
def test_that_there_can_be_no_frames_is_told(serve: Serve, short_folder: Path) -> None:
    (short_folder / "p.sock.frames").mkdir()
    server = serve(POLICY, listen=f"unix://{short_folder}/p.sock")
    server.wait_for_log("no frames can be taken at")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        session = client.open(OFFER)
        assert not isinstance(session, FramedSession)
        session.close()
