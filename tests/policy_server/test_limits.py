"""What callers may take up of a server: memory, sessions, time. Each limit from both sides, with a real server."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import sample_policies as sample
from half_open import HalfOpen
from policy_serving import HERE, TIMEOUT, Server

from sparring.policy_server.client import Offer, PolicyClient, PolicyRefused, PolicyUnreachable, RemoteSession
from sparring.policy_server.limits import Limits, OpenSessions, ServerFull
from sparring.protos import PROTOCOL_VERSION, evaluation_pb2
from sparring.protos import policy_pb2 as pb
from sparring.protos.limits import MAX_ACTION_DIM, MAX_EXTRA_BYTES, MAX_HELLO_BYTES, MAX_NAME, MAX_OBSERVATIONS
from sparring.protos.net.rpc import CLIENT_OPTIONS
from sparring.protos.policy_pb2_grpc import PolicyStub
from sparring.protos.spec import SpecMismatch, TensorSpec
from sparring.protos.tensor import MAX_AXES, MAX_TENSOR_BYTES

Serve = Callable[..., Server]

POLICY = "--policy=sample_policies:Fragile"
OFFER = Offer({sample.SIGNAL: TensorSpec("float64", (1,))}, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
TOKEN = "a token that nobody of these callers has".replace(" ", "-")
MEGABYTE = 1 << 20
LIMITED = (str(HERE / "limited_server.py"),)


def limits(**values: float) -> str:
    return f"--limits={json.dumps(values)}"


def hello(offer: pb.Offer | None = None, **fields: Any) -> pb.RolloutRequest:
    said = pb.Hello(protocol=PROTOCOL_VERSION, offer=offer or OFFER.to_message(), **fields)
    return pb.RolloutRequest(hello=said)


def play(session: RemoteSession) -> None:
    session.start()
    assert session.act({sample.SIGNAL: np.array([20.0])}, step=0).actions[0, 0] == 20.5


def sessions_at(server: Server) -> int:
    with grpc.insecure_channel(server.address) as channel:
        return PolicyStub(channel).Stats(pb.StatsRequest(), timeout=TIMEOUT).sessions


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# ------------------------------------------------------------------------------------------- memory


def peak_megabytes(server: Server) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@pytest.mark.processes
def test_who_has_no_token_takes_no_memory(serve: Serve, tmp_path: Path) -> None:
    """gRPC reads the request of a unary call whole before it is refused, unless it is told that it is a stream."""
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    server = serve(POLICY, f"--token-file={token}")
    before = peak_megabytes(server)
    large = bytes(32 * MEGABYTE)
    ends: list[grpc.StatusCode] = []

    def call(method: str) -> None:
        with grpc.insecure_channel(server.address, options=[("grpc.max_send_message_length", -1)]) as channel:
            try:
                channel.unary_unary(method)(large, timeout=TIMEOUT)
                ends.append(grpc.StatusCode.OK)
            except grpc.RpcError as error:
                ends.append(error.code())

    methods = ["/sparring.policy.v1.Policy/Describe", "/sparring.policy.v1.Policy/Stats"]
    methods += ["/sparring.policy.v1.Policy/Rollout", "/grpc.health.v1.Health/Check"]
    callers = [threading.Thread(target=call, args=(method,)) for method in methods for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sorted(code.name for code in ends) == ["OK"] * 3 + ["UNAUTHENTICATED"] * 9
    # Of 12 messages of 32 MiB, what arrives before they are refused is what peers may send unasked: little.
    assert peak_megabytes(server) - before < 96
    with PolicyClient(server.address, timeout=TIMEOUT, token=TOKEN) as client, client.open(OFFER) as session:
        play(session)


@pytest.fixture(scope="module")
def generous() -> Iterator[Server]:
    """A server that is told everything that is too much, one after the other, and must outlive it."""
    server = Server(POLICY)
    yield server
    assert server.process.poll() is None, server.log
    server.close()


def answer(server: Server, *requests: pb.RolloutRequest | bytes) -> tuple[grpc.StatusCode, str]:
    """How a stream with these messages ends."""
    raw = [request if isinstance(request, bytes) else request.SerializeToString() for request in requests]
    with grpc.insecure_channel(server.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.stream_stream("/sparring.policy.v1.Policy/Rollout")(iter(raw), timeout=TIMEOUT)
        with contextlib.suppress(grpc.RpcError):
            list(call)
        return call.code(), call.details()


def offering(*, observations: int = 1, name: int = 1, axes: int = 1, length: int = 1, actions: int = 2) -> pb.Offer:
    """An offer of this size, with what the policy needs in it."""
    offer = OFFER.to_message()
    offer.action_low[:] = offer.action_high[:] = [0.0] * actions
    for number in range(observations - 1):
        shape = [length, *[1] * (axes - 1)]
        offer.observations.add(name=str(number).rjust(name, "x"), dtype=pb.DTYPE_UINT8, shape=shape)
    return offer


@pytest.mark.processes
@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        ({"observations": MAX_OBSERVATIONS}, {"observations": MAX_OBSERVATIONS + 1}),
        ({"observations": 2, "name": MAX_NAME}, {"observations": 2, "name": MAX_NAME + 1}),
        ({"observations": 2, "axes": MAX_AXES}, {"observations": 2, "axes": MAX_AXES + 1}),
        ({"observations": 2, "length": MAX_TENSOR_BYTES}, {"observations": 2, "length": MAX_TENSOR_BYTES + 1}),
        ({"observations": MAX_OBSERVATIONS, "name": MAX_NAME, "axes": MAX_AXES}, {"actions": MAX_ACTION_DIM + 1}),
    ],
    ids=["observations", "name", "axes", "elements", "actions"],
)
def test_an_offer_is_bounded(generous: Server, fits: dict[str, int], does_not: dict[str, int]) -> None:
    assert answer(generous, hello(offering(**fits))) == (grpc.StatusCode.OK, "")
    code, sentence = answer(generous, hello(offering(**does_not)))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "at most" in sentence or "no observation has more than" in sentence
    assert sentence.endswith(".")


@pytest.mark.processes
@pytest.mark.parametrize("field", ["client", "benchmark"])
def test_names_in_a_hello_are_bounded(generous: Server, field: str) -> None:
    assert answer(generous, hello(**{field: MAX_NAME * "n"})) == (grpc.StatusCode.OK, "")
    code, sentence = answer(generous, hello(**{field: (MAX_NAME + 1) * "n"}))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert f"the {field}'s name has {MAX_NAME + 1} characters; at most {MAX_NAME} are allowed." == sentence


@pytest.mark.processes
def test_a_hello_that_is_too_long_is_not_even_read(generous: Server) -> None:
    """One of 15 MB kept everybody waiting for 12 s: hundreds of thousands of names, each a row of a table."""
    whole = hello(offering(observations=MAX_OBSERVATIONS, name=MAX_NAME, axes=MAX_AXES)).SerializeToString()
    assert len(whole) < MAX_HELLO_BYTES, "whatever is within the other bounds is within this one"
    padding = MAX_HELLO_BYTES - len(whole)
    unknown_field = bytes([15 << 3 | 2]) + _varint(padding - 4) + bytes(padding - 4)  # protobuf skips what it knows not
    longest = whole + unknown_field
    assert len(longest) == MAX_HELLO_BYTES
    assert answer(generous, longest) == (grpc.StatusCode.OK, "")
    code, sentence = answer(generous, longest + bytes([15 << 3, 0]))
    assert (code, f"a message of {MAX_HELLO_BYTES + 2} bytes" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)

    flood = hello(offering(observations=300_000, name=40, actions=3)).SerializeToString()
    assert len(flood) > 10 * MEGABYTE
    with PolicyClient(generous.address, timeout=TIMEOUT) as client, client.open(OFFER) as session:
        play(session)
        senders = [threading.Thread(target=answer, args=(generous, flood)) for _ in range(2)]
        for sender in senders:
            sender.start()
        slowest = 0.0
        step = 1
        while any(sender.is_alive() for sender in senders):
            began = time.monotonic()
            session.act({sample.SIGNAL: np.array([20.0])}, step=step)
            slowest = max(slowest, time.monotonic() - began)
            step += 1
        assert slowest < 5, "others have to wait while it is looked at"


@pytest.mark.processes
def test_messages_after_the_hello_are_as_long_as_what_was_asked_for(generous: Server) -> None:
    def start(length: int) -> pb.RolloutRequest:
        return pb.RolloutRequest(episode_start=pb.EpisodeStart(number=1, instruction="i" * length))

    assert answer(generous, hello(), start(MAX_EXTRA_BYTES - 64)) == (grpc.StatusCode.OK, "")
    code, sentence = answer(generous, hello(), start(MAX_EXTRA_BYTES + 64))
    assert (code, "where the longest that can be due has" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# ------------------------------------------------------------------------------------------- time


@pytest.mark.processes
def test_a_hello_is_waited_for_and_not_for_ever(serve: Serve) -> None:
    server = serve(POLICY, limits(hello_seconds=1.0, sweep_seconds=0.1), program=LIMITED)
    with grpc.insecure_channel(server.address) as channel:
        never: Any = threading.Event()
        call = PolicyStub(channel).Rollout(iter(never.wait, None), timeout=TIMEOUT)
        with pytest.raises(grpc.RpcError) as ended:
            next(call)
        never.set()
    assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
    assert ended.value.details() == "no hello came within 1 s; it is a stream's first message."
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(OFFER) as session:
        play(session)
        time.sleep(2)
        session.act({sample.SIGNAL: np.array([20.0])}, step=1)  # who has said hello has other limits


@pytest.mark.processes
def test_a_session_that_says_nothing_is_ended_and_one_that_waits_for_its_answer_is_not(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Slow", '--policy-args={"seconds": 3}', "--idle-timeout=2")
    offer = Offer({}, action_low=(0.0,), action_high=(1.0,))
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        session = client.open(offer)
        session.start(seed=7)
        assert session.act({}, step=0).actions[0, 0] == 7.0  # it took longer than a client may take
        wait_until(lambda: session.is_over, "the session is not ended")
        assert sessions_at(server) == 0
        with pytest.raises(PolicyUnreachable, match=r"no message came for 2 s; `sparring serve --idle-timeout`"):
            session.act({}, step=1)


@pytest.mark.processes
def test_a_slot_whose_idle_session_was_ended_opens_another(serve: Serve) -> None:
    """At the end of a run slots have nothing to do for long: the next lease must not be lost to that."""
    from sparring.env_worker.worker.slot import _RemoteSessions
    from sparring.env_worker.worker.waiting import PolicyWait

    server = serve(POLICY, "--idle-timeout=2")
    assignment = evaluation_pb2.Assignment(policy_addresses=[server.address], policy_seconds=TIMEOUT)
    sessions = _RemoteSessions(0, assignment, PolicyWait(lambda: None, TIMEOUT))
    first = sessions.session_for(OFFER)
    play(first)
    assert sessions.session_for(OFFER) is first
    wait_until(lambda: sessions_at(server) == 0, "the session is not ended")
    wait_until(lambda: sessions.session_for(OFFER) is not first, "the session that is over is taken for another lease")
    play(sessions.session_for(OFFER))
    sessions.close()


@pytest.mark.processes
def test_who_does_not_take_its_answer_is_not_waited_for(serve: Serve) -> None:
    large = ("--policy=zero", '--policy-args={"chunk": 200000}')
    server = serve(*large, limits(taking_seconds=1.0, farewell_seconds=1.0, sweep_seconds=0.1), program=LIMITED)
    requests = [
        hello(),
        pb.RolloutRequest(episode_start=pb.EpisodeStart(number=1)),
        *(pb.RolloutRequest(observation=pb.Observation(episode=1, step=step)) for step in range(20)),
    ]
    sent = threading.Event()

    def sending() -> Iterator[pb.RolloutRequest]:
        yield from requests
        sent.set()
        over.wait()

    over = threading.Event()
    with grpc.insecure_channel(server.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        call = PolicyStub(channel).Rollout(sending(), timeout=TIMEOUT)
        wait_until(lambda: sessions_at(server) == 1, "the session was not opened")
        wait_until(lambda: sessions_at(server) == 0, "the session was not ended")
        assert call.is_active() or call.code() != grpc.StatusCode.DEADLINE_EXCEEDED, "it was the client who ended it"
        over.set()
        call.cancel()
    assert "an answer was not taken within 1 s." in server.log
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(OFFER) as session:
        session.start()
        assert session.act({}, step=0).actions.shape == (200_000, 2)


@pytest.mark.processes
def test_a_client_that_vanished_is_noticed_and_one_that_is_quiet_is_not(serve: Serve) -> None:
    server = serve(POLICY, limits(keepalive_seconds=1.0, vanished_seconds=1.0), program=LIMITED)
    with (
        HalfOpen(server.address) as way,
        PolicyClient(way.address, timeout=TIMEOUT) as vanishing,
        PolicyClient(server.address, timeout=TIMEOUT) as quiet,
    ):
        vanishing.open(OFFER)
        staying = quiet.open(OFFER)
        play(staying)
        assert sessions_at(server) == 2
        way.cut()
        wait_until(lambda: sessions_at(server) == 1, "a client that vanished has its session for ever")
        time.sleep(3)  # longer than it took to notice that the other had gone
        staying.act({sample.SIGNAL: np.array([20.0])}, step=1)


def test_vanished_clients_are_noticed_within_half_a_minute() -> None:
    said = dict(Limits().channel_options())
    for told in (said, dict(CLIENT_OPTIONS)):
        assert told["grpc.keepalive_time_ms"] + told["grpc.keepalive_timeout_ms"] == 30_000
        assert told["grpc.http2.ping_timeout_ms"] == told["grpc.keepalive_timeout_ms"]


# ------------------------------------------------------------------------------------------- sessions


@pytest.mark.processes
def test_a_peer_has_its_share_of_the_sessions_and_no_more(serve: Serve, short_folder: Path) -> None:
    socket = f"unix://{short_folder}/policy.sock"
    server = serve(POLICY, "--max-sessions=6", "--max-sessions-per-peer=2", f"--listen={socket}")
    with (
        PolicyClient(server.address, timeout=TIMEOUT) as here,
        HalfOpen(server.address, source="127.0.0.9") as way,
        PolicyClient(way.address, timeout=TIMEOUT) as elsewhere,
        PolicyClient(socket, timeout=TIMEOUT) as near,
    ):
        sessions = [here.open(OFFER) for _ in range(2)]
        with pytest.raises(PolicyUnreachable, match=r"holds 2 sessions of your address.*--max-sessions-per-peer"):
            here.open(OFFER)
        sessions.append(elsewhere.open(OFFER))
        sessions += [near.open(OFFER) for _ in range(3)]
        with pytest.raises(PolicyUnreachable, match=r"holds 6 sessions and takes no more.*--max-sessions`"):
            elsewhere.open(OFFER)
        for session in sessions:
            play(session)
        sessions[0].close()
        wait_until(lambda: sessions_at(server) == 5, "an ended session counts on")
        play(here.open(OFFER))


def test_peers_are_machines_whatever_their_ports() -> None:
    sessions = OpenSessions(Limits(sessions=100, sessions_per_peer=1))
    counted = sessions.add("ipv4:10.0.0.7:41234")
    sessions.add("ipv6:%5Bfe80::1%5D:41234")
    for peer in ("ipv4:10.0.0.7:41235", "ipv6:%5Bfe80::1%5D:1"):
        with pytest.raises(ServerFull):
            sessions.add(peer)
    sessions.add("ipv4:10.0.0.8:41234")
    sessions.remove(counted)
    sessions.add("ipv4:10.0.0.7:1")
    for _ in range(9):
        sessions.add("unix:")


@pytest.mark.processes
def test_watchers_of_health_are_bounded(serve: Serve) -> None:
    server = serve(POLICY, limits(watchers=2), program=LIMITED)
    with grpc.insecure_channel(server.address) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watching = [watch(b"", timeout=TIMEOUT) for _ in range(2)]
        assert all(next(call) for call in watching)
        with pytest.raises(grpc.RpcError) as refused:
            next(watch(b"", timeout=TIMEOUT))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=TIMEOUT)
        watching[0].cancel()
        wait_until(lambda: _watches(watch), "a watch that has ended counts on")


def _watches(watch: Any) -> bool:
    try:
        return bool(next(watch(b"", timeout=TIMEOUT)))
    except grpc.RpcError:
        return False


def test_warnings_that_clients_can_make_up_are_bounded() -> None:
    from sparring.policy_server import stats as counted

    stats = counted.StatsCounter()
    assert stats.warning("the first")
    assert all(stats.warning(f"another {number}") for number in range(1, counted._MOST_WARNINGS))
    assert not any(stats.warning(f"made up {number}") for number in range(10))
    assert len(stats.to_message().warnings) == counted._MOST_WARNINGS
    assert not stats.warning("the first")
    assert stats.to_message().warnings["the first"] == 2


def test_bounds_of_an_offer_are_said_in_both_directions() -> None:
    """The client makes what the server takes."""
    with pytest.raises(SpecMismatch, match="at most"):
        Offer.from_message(offering(observations=MAX_OBSERVATIONS + 1))


@pytest.mark.processes
def test_a_peer_has_so_many_connections_and_others_are_not_disturbed(serve: Serve) -> None:
    server = serve(POLICY, limits(connections_per_peer=3, sweep_seconds=0.1), program=LIMITED)
    host, _, port = server.address.rpartition(":")
    with (
        PolicyClient(server.address, timeout=TIMEOUT) as client,
        client.open(OFFER) as session,
        contextlib.ExitStack() as stack,
    ):
        crowd = [
            stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT, source_address=("127.0.0.9", 0)))
            for _ in range(10)
        ]
        wait_until(lambda: sum(map(is_open, crowd)) == 3, "it has as many as it likes")
        play(session)
        time.sleep(0.5)
        assert sum(map(is_open, crowd)) == 3
    assert "7 connections too many were ended, of 127.0.0.9" in server.log


@pytest.mark.processes
def test_connections_have_an_end_in_number_and_in_time(serve: Serve) -> None:
    few = limits(sessions=1, connections_per_peer=1000, handshake_seconds=4.0, unused_seconds=1.0)
    server = serve(POLICY, few, program=LIMITED)
    host, _, port = server.address.rpartition(":")
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(OFFER) as session:
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT)) for _ in range(100)]
            counts: list[int] = []
            wait_until(
                lambda: counts.append(sum(map(is_open, crowd))) or counts[-1] <= 66,  # type: ignore[func-returns-value]
                "there are more than twice the sessions and 64",
            )
            assert counts[-1] >= 50, "so many there may be"
            wait_until(lambda: not any(map(is_open, crowd)), "who never begins to speak is held for ever")
        with grpc.insecure_channel(server.address) as channel:
            unused: list[grpc.ChannelConnectivity] = []
            channel.subscribe(unused.append, try_to_connect=True)
            wait_until(lambda: grpc.ChannelConnectivity.READY in unused, "it could not connect")
            wait_until(lambda: unused[-1] == grpc.ChannelConnectivity.IDLE, "who asks for nothing is held for ever")
        play(session)


def is_open(connection: socket.socket) -> bool:
    """Whether nobody has ended a connection; what came on it is no matter."""
    connection.settimeout(0.01)
    try:
        while connection.recv(4096):
            continue
    except TimeoutError:
        return True
    except OSError:
        return False
    return False


@pytest.mark.processes
def test_an_observation_has_as_many_bytes_as_a_server_takes_and_no_more(serve: Serve) -> None:
    server = serve("--policy=zero", '--policy-args={"observations": ["image"]}', "--max-observation=2")

    def offer(megabytes: int) -> Offer:
        return Offer({"image": TensorSpec("uint8", (megabytes, MEGABYTE))}, action_low=(0.0,), action_high=(1.0,))

    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        with client.open(offer(2)) as session:
            session.start()
            assert session.act({"image": np.zeros((2, MEGABYTE), np.uint8)}, step=0).actions.shape == (1, 1)
        with pytest.raises(PolicyRefused, match=r"has 3 MiB, and the server takes 2; .* lets in more with"):
            client.open(offer(3))
    before = peak_megabytes(server)
    with grpc.insecure_channel(server.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        call = PolicyStub(channel).Rollout(iter([hello(client="x" * 100 * MEGABYTE)]), timeout=TIMEOUT)
        with pytest.raises(grpc.RpcError) as ended:
            next(call)
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert peak_megabytes(server) - before < 50, "it was not read"
