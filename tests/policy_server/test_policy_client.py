from __future__ import annotations

import asyncio
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import sample_policies as sample
from policy_serving import ROOT, TIMEOUT, Server, environment

from sparring.policy_server.client import (
    Offer,
    PolicyClient,
    PolicyFailed,
    PolicyInterrupted,
    PolicyRefused,
    PolicyUnreachable,
    RemoteSession,
)
from sparring.policy_server.session_client import SessionClient
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.policy_pb2_grpc import PolicyStub
from sparring.protos.spec import PolicySpec, TensorSpec
from sparring.protos.tensor import TensorError, encode

pytestmark = pytest.mark.processes

Serve = Callable[..., Server]

OFFER = Offer({sample.SIGNAL: TensorSpec("float64", (1,))}, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
ONE_ACTION = Offer({}, action_low=(-1.0,), action_high=(1.0,))


def signal_of(value: float) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    return {sample.SIGNAL: np.array([value], np.float64)}


@pytest.fixture
def client(fragile: Server) -> Iterator[PolicyClient]:
    with PolicyClient(fragile.address, timeout=TIMEOUT) as client:
        yield client


@pytest.fixture
def session(client: PolicyClient) -> Iterator[RemoteSession]:
    with client.open(OFFER, benchmark="bench", client="test") as session:
        yield session


def assert_serves(client: PolicyClient) -> None:
    with client.open(OFFER) as session:
        session.start(task="any", seed=1)
        assert session.act(signal_of(20), step=0).actions.tolist() == [[20.5, 20.5]]


# ------------------------------------------------------------------------------------ when all is well


def test_it_tells_what_is_hosted(client: PolicyClient) -> None:
    description = client.describe()
    assert description.name == "sample_policies:Fragile"
    assert description.needs == sample.Fragile.spec
    assert description.arguments == {}


def test_arguments_come_back_as_they_were_given(serve: Serve) -> None:
    server = serve("--policy=zero", '--policy-args={"chunk": 3, "observations": ["a", "b"]}')
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        assert client.describe().arguments == {"chunk": 3, "observations": ["a", "b"]}


@pytest.mark.parametrize(
    ("flags", "most"), [((), 256), (("--max-sessions=7",), 7), (("--policy=sample_policies:Alone",), 1)]
)
def test_it_tells_how_many_sessions_it_takes(serve: Serve, flags: tuple[str, ...], most: int) -> None:
    server = serve(*(flags if "--policy=sample_policies:Alone" in flags else ("--policy=zero", *flags)))
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        assert client.describe().max_sessions == most


def test_a_session_knows_the_settled_needs(session: RemoteSession) -> None:
    assert session.needs == PolicySpec({sample.SIGNAL: TensorSpec("float64", (1,))}, action_dim=2, chunk_length=3)
    assert session.policy.name == "sample_policies:Fragile"


def test_many_episodes_and_steps_on_one_session(session: RemoteSession) -> None:
    for episode in range(20):
        session.start(task="any", seed=episode)
        for step in (0, 3, 9):
            chunk = session.act(signal_of(20 + step), step=step)
            assert chunk.actions.tolist() == [[20.5 + step] * 2]
            assert chunk.batch_size == 1
            assert chunk.policy_seconds > 0
            assert chunk.transport_seconds >= 0


def test_the_split_of_the_time_adds_up(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Slow", '--policy-args={"seconds": 0.3}')
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(ONE_ACTION) as session:
        session.start()
        began = time.perf_counter()
        chunk = session.act({}, step=0)
        waited = time.perf_counter() - began
    assert chunk.policy_seconds >= 0.3
    assert waited - 0.25 < chunk.policy_seconds + chunk.transport_seconds <= waited


def test_two_sessions_on_one_client_do_not_mix(client: PolicyClient) -> None:
    with client.open(OFFER) as one, client.open(OFFER) as two:
        one.start(seed=1)
        two.start(seed=2)
        two.start(seed=3)
        for step in range(10):
            assert one.act(signal_of(20 + step), step=step).actions[0, 0] == 20.5 + step
            assert two.act(signal_of(40 + step), step=step).actions[0, 0] == 40.5 + step


def test_sessions_that_ask_at_the_same_time_share_a_forward_pass(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Slow", '--policy-args={"seconds": 0.2}')
    sizes: list[int] = []

    def slot(seed: int) -> None:
        with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(ONE_ACTION) as session:
            session.start(seed=seed)
            for step in range(3):
                chunk = session.act({}, step=step)
                assert chunk.actions.item() == seed
                sizes.append(chunk.batch_size)

    threads = [threading.Thread(target=slot, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert len(sizes) == 12
    assert max(sizes) >= 2


def test_a_unix_socket_is_an_address_too(serve: Serve, tmp_path: Path) -> None:
    server = serve("--policy=sample_policies:Fragile", listen=f"unix://{tmp_path}/policy.sock")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        assert_serves(client)


def test_it_can_be_used_where_an_event_loop_is_running(fragile: Server) -> None:
    async def notebook() -> None:
        with PolicyClient(fragile.address, timeout=TIMEOUT) as client:
            assert client.describe().name
            assert_serves(client)

    asyncio.run(notebook())


def test_it_can_be_made_outside_an_event_loop_and_used_inside_one(client: PolicyClient, session: RemoteSession) -> None:
    session.start()

    async def control_loop() -> None:
        assert session.act(signal_of(20), step=0).actions[0, 0] == 20.5
        assert client.describe().name

    asyncio.run(control_loop())


def test_large_observations_pass(serve: Serve) -> None:
    """gRPC's own limit is 4 MB; two cameras with a history are more."""
    server = serve("--policy=zero", '--policy-args={"observations": ["camera"]}')
    frames = np.random.default_rng(0).integers(0, 255, (8, 1080, 1920, 3), np.uint8)
    offer = Offer({"camera": TensorSpec("uint8", frames.shape)}, action_low=(0.0,), action_high=(1.0,))
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(offer) as session:
        session.start()
        assert session.act({"camera": frames}, step=0).actions.shape == (1, 1)


def test_importing_the_client_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("torch", "metaworld", "mujoco", "gymnasium")
    for name in heavy:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the client imported {name}')")
    program = "import sys, sparring.policy_server.client; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(ROOT),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert not {name.partition(".")[0] for name in loaded} & set(heavy)
    ours = ("bridges", "bridges.wires", "chunks", "client", "errors", "framed_session", "options", "session_client")
    parts = {f"sparring.policy_server.{name}" for name in ours}
    assert {name for name in loaded if name.startswith("sparring.policy_server.")} == parts
    assert not [name for name in loaded if name.startswith(("sparring.orchestrator", "sparring.env_worker"))]


def test_clients_that_come_and_go_in_threads_leave_no_tracebacks_in_the_log(
    fragile: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def come_and_go() -> None:
        for _ in range(15):
            with PolicyClient(fragile.address, timeout=TIMEOUT) as client:
                assert_serves(client)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


# ------------------------------------------------------------------------------------ when the policy fails


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (sample.RAISE, "ZeroDivisionError: seed 9 divided by zero"),
        (sample.NAN, "nan"),
        (sample.WRONG_SHAPE, "(1, 3)"),
        (sample.TOO_LONG, "(4, 2)"),
        (sample.TEXT, "numbers"),
        (sample.LONG_DOUBLE, "float"),
        (sample.ODD_WORDS, "cannot read"),
    ],
    ids=["raises", "nan", "wrong shape", "too long", "text", "long double", "odd words"],
)
def test_a_policy_that_fails_ends_the_episode_with_its_message(
    client: PolicyClient, session: RemoteSession, value: float, said: str
) -> None:
    session.start(seed=9)
    with pytest.raises(PolicyFailed) as caught:
        session.act(signal_of(value), step=0)
    assert said in str(caught.value)
    assert 'File "' not in str(caught.value)
    assert_serves(client)


@pytest.mark.parametrize(
    ("value", "said"), [(sample.RAGGED, "array|shape|sequence"), (sample.EXIT, "I quit")], ids=["ragged", "exits"]
)
def test_a_policy_that_fails_in_the_oddest_ways_does_not_take_the_server_with_it(
    serve: Serve, value: float, said: str
) -> None:
    server = serve("--policy=sample_policies:Fragile")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        session = client.open(OFFER)
        session.start()
        with pytest.raises(PolicyFailed, match=said):
            session.act(signal_of(value), step=0)
        assert_serves(client)


def test_a_policy_that_fails_with_very_many_words_has_still_failed(
    client: PolicyClient, session: RemoteSession
) -> None:
    """HTTP/2 headers hold a few kilobytes: a longer message must be cut, or the status arrives as another one."""
    session.start()
    with pytest.raises(PolicyFailed, match=r"RuntimeError: Error\(s\) in loading state_dict"):
        session.act(signal_of(sample.WORDY), step=0)
    assert_serves(client)


def test_an_offer_with_very_many_names_is_refused_as_what_it_is(client: PolicyClient) -> None:
    offer = Offer(
        {f"a.rather.long.name.of.an.observation.{k}": TensorSpec("float32", (k,)) for k in range(250)},
        action_low=(0.0,),
        action_high=(1.0,),
    )
    with pytest.raises(PolicyRefused, match=sample.SIGNAL):
        client.open(offer)


def test_after_a_failed_start_no_action_can_be_had(client: PolicyClient, session: RemoteSession) -> None:
    """A peer's bug: the reply after a failed start was taken for another observation's, and so on for ever."""
    session.start(task="fine", seed=1)
    session.act(signal_of(20), step=0)
    with pytest.raises(PolicyFailed, match="no such thing can be started"):
        session.start(task="unstartable", seed=2)
    for step in (0, 1, 2):
        with pytest.raises((PolicyFailed, PolicyRefused, PolicyUnreachable)):
            session.act(signal_of(30 + step), step=step)
    assert_serves(client)


def test_after_a_failed_start_nothing_that_was_sent_ahead_is_answered(fragile: Server) -> None:
    """The same with a client that waits for nothing, over the wire."""

    def seen(episode: int, step: int) -> pb.RolloutRequest:
        tensors = {sample.SIGNAL: encode(np.array([20.0 + step]))}
        return pb.RolloutRequest(observation=pb.Observation(episode=episode, step=step, tensors=tensors))

    def begun(number: int, task: str) -> pb.RolloutRequest:
        return pb.RolloutRequest(episode_start=pb.EpisodeStart(number=number, task=task))

    requests = [
        pb.RolloutRequest(hello=pb.Hello(protocol=PROTOCOL_VERSION, offer=OFFER.to_message())),
        begun(1, "fine"),
        seen(1, 0),
        begun(2, "unstartable"),
        *(seen(2, step) for step in range(5)),
        *(seen(1, step) for step in range(1, 5)),
        begun(3, "fine"),
        seen(3, 0),
    ]
    answers: list[pb.RolloutResponse] = []
    with grpc.insecure_channel(fragile.address) as channel:
        call = PolicyStub(channel).Rollout(iter(requests), timeout=TIMEOUT)
        with pytest.raises(grpc.RpcError):
            answers.extend(call)
        assert call.code() == grpc.StatusCode.ABORTED
    assert [answer.WhichOneof("message") for answer in answers] == ["welcome", "episode_started", "chunk"]
    assert (answers[-1].chunk.episode, answers[-1].chunk.step) == (1, 0)


def test_a_neighbour_in_the_batch_is_told_to_start_again(serve: Serve) -> None:
    """Which is no failure of the policy on its own episode, and not told as if the server had gone."""
    server = serve("--policy=sample_policies:Fragile", "--max-queue-delay=5")  # until both have asked
    ends: dict[str, list[Exception | None]] = {"culprit": [], "bystander": []}
    rounds, barrier = 12, threading.Barrier(2)

    def slot(name: str, value: float) -> None:
        with PolicyClient(server.address, timeout=TIMEOUT) as client:
            for _ in range(rounds):
                with client.open(OFFER) as session:
                    session.start()
                    barrier.wait(TIMEOUT)
                    try:
                        session.act(signal_of(value), step=0)
                    except (PolicyFailed, PolicyRefused, PolicyUnreachable) as error:
                        ends[name].append(error)
                    else:
                        ends[name].append(None)

    threads = [
        threading.Thread(target=slot, args=("culprit", sample.RAISE)),
        threading.Thread(target=slot, args=("bystander", 20.0)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert list(map(type, ends["culprit"])) == [PolicyFailed] * rounds
    assert len(ends["bystander"]) == rounds
    interrupted = [end for end in ends["bystander"] if end is not None]
    assert interrupted, "they never were in one batch"
    assert set(map(type, interrupted)) == {PolicyInterrupted}
    assert set(map(str, interrupted)) == {
        "interrupted, because the policy failed on another episode in the same batch; it starts anew."
    }


# ------------------------------------------------------------------------------------ when the caller errs


def test_an_offer_that_does_not_fit_is_refused_with_the_table(client: PolicyClient) -> None:
    offer = Offer({"siganl": TensorSpec("float64", (1,))}, action_low=(-1.0,), action_high=(1.0,))
    with pytest.raises(PolicyRefused) as caught:
        client.open(offer)
    rows = {line.split()[0]: line for line in str(caught.value).splitlines()[2:]}
    assert rows["signal"].endswith("not offered")
    assert rows["action"].endswith("differs")
    assert "siganl" in rows


def test_acting_before_starting_is_refused(session: RemoteSession) -> None:
    with pytest.raises(PolicyRefused, match="before its episode"):
        session.act(signal_of(20), step=0)


def test_a_step_that_does_not_go_up_is_refused(session: RemoteSession) -> None:
    session.start()
    session.act(signal_of(20), step=4)
    with pytest.raises(PolicyRefused, match="step 4"):
        session.act(signal_of(20), step=4)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {sample.SIGNAL: np.zeros(2)},
        {sample.SIGNAL: np.zeros(1, np.float32)},
        {sample.SIGNAL: np.zeros(1), "more": np.zeros(1)},
    ],
    ids=["nothing", "wrong shape", "wrong type", "too much"],
)
def test_an_observation_that_was_not_asked_for_is_refused(
    session: RemoteSession, tensors: dict[str, np.ndarray]
) -> None:  # type: ignore[type-arg]
    session.start()
    with pytest.raises(PolicyRefused, match=sample.SIGNAL):
        session.act(tensors, step=0)


def test_an_array_that_cannot_be_sent_is_refused_here(session: RemoteSession) -> None:
    session.start()
    with pytest.raises(TensorError):
        session.act({sample.SIGNAL: np.array(["text"])}, step=0)


def test_a_closed_session_answers_with_an_error(session: RemoteSession) -> None:
    session.start()
    session.close()
    with pytest.raises(PolicyUnreachable):
        session.act(signal_of(20), step=0)


# ------------------------------------------------------------------------------------ when the server is gone


def within(seconds: float) -> Callable[[float], bool]:
    began = time.monotonic()
    return lambda least: least <= time.monotonic() - began < seconds


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens, and nobody will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_nobody_there_is_a_sentence_after_the_deadline(nobody: str) -> None:
    in_time = within(30)
    with PolicyClient(nobody, timeout=0.5) as client:
        with pytest.raises(PolicyUnreachable, match=f"{nobody} within 0.5 s"):
            client.describe()
        with pytest.raises(PolicyUnreachable, match=nobody):
            client.open(OFFER)
    assert in_time(0.8)


def test_a_host_that_does_not_exist_is_a_sentence_after_the_deadline() -> None:
    in_time = within(30)
    with PolicyClient("no-such-host.invalid:1", timeout=0.5) as client:
        with pytest.raises(PolicyUnreachable, match="no-such-host"):
            client.describe()
        with pytest.raises(PolicyUnreachable, match="no-such-host"):
            client.open(OFFER)
    assert in_time(0)


def test_a_server_that_starts_late_is_waited_for(serve: Serve) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    names: list[str] = []

    def early() -> None:
        with PolicyClient(address, timeout=TIMEOUT) as client:
            names.append(client.describe().name)

    thread = threading.Thread(target=early)
    thread.start()
    time.sleep(0.2)
    serve("--policy=zero", listen=address)
    thread.join(TIMEOUT)
    assert names == ["zero"]


def test_a_server_that_stands_still_runs_into_the_deadline_at_every_point(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        acting, starting = client.open(OFFER), client.open(OFFER)
        acting.start()
        for impatient in (acting, starting):  # from here on: what comes before may take its time on a busy machine
            impatient._timeout = 0.6
        client.timeout = 0.6
        server.send(signal.SIGSTOP)
        try:
            for wait in (
                lambda: acting.act(signal_of(20), step=0),
                starting.start,
                lambda: client.open(OFFER),
                client.describe,
            ):
                in_time = within(30)
                with pytest.raises(PolicyUnreachable, match=r"within 0\.6 s"):
                    wait()
                assert in_time(0.55)
        finally:
            server.send(signal.SIGCONT)
        client.timeout = TIMEOUT
        with pytest.raises(PolicyUnreachable):
            acting.act(signal_of(21), step=1)
        assert_serves(client)


def test_an_answer_that_comes_after_the_deadline_is_never_taken_for_the_next(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Slow", '--policy-args={"seconds": 0.6}')
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(ONE_ACTION) as session:
        session.start(seed=5)
        session._timeout = 0.3
        for step in range(3):
            with pytest.raises(PolicyUnreachable):
                session.act({}, step=step)
            time.sleep(0.2)


def test_a_server_that_is_killed_is_noticed_at_once(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Slow", '--policy-args={"seconds": 30}')
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(ONE_ACTION) as session:
        session.start()
        threading.Timer(0.3, server.process.kill).start()
        in_time = within(25)  # and not when its answer would come
        with pytest.raises(PolicyUnreachable, match=server.address):
            session.act({}, step=0)
        assert in_time(0.2)
        with pytest.raises(PolicyUnreachable):
            session.act({}, step=1)


def test_a_client_outlives_its_server(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        assert_serves(client)
        server.process.kill()
        server.wait()
        serve("--policy=sample_policies:Fragile", listen=server.address)
        assert_serves(client)


def test_a_server_that_is_not_a_policy_server_is_refused() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        with PolicyClient(f"127.0.0.1:{port}", timeout=TIMEOUT) as client:
            with pytest.raises(PolicyRefused):
                client.describe()
            with pytest.raises(PolicyRefused):
                client.open(OFFER)
    finally:
        other.stop(None)


@pytest.mark.parametrize("seconds", [math.nan, math.inf])
def test_a_server_whose_timing_is_no_finite_number_has_failed(seconds: float) -> None:
    class Answers(SessionClient):
        """Answers as no server of ours does."""

        def _answer(self, request: pb.RolloutRequest | bytes, wait: float | None) -> pb.RolloutResponse:
            if isinstance(request, pb.RolloutRequest) and request.WhichOneof("message") == "hello":
                needs = PolicySpec({}, action_dim=2).to_message()
                description = pb.PolicyDescription(needs=needs)
                return pb.RolloutResponse(welcome=pb.Welcome(needs=needs, policy=description))
            return pb.RolloutResponse(chunk=pb.Chunk(queue_seconds=seconds, actions=encode(np.zeros((1, 2)))))

    session = Answers("the server")
    session._greet(OFFER, benchmark="toy", client="test")
    with pytest.raises(PolicyFailed, match=f"an answer took it {seconds} seconds"):
        session.act({}, step=0)
