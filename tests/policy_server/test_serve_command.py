"""The server as a process: how it starts, how it refuses, how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import grpc
import numpy as np
import pytest
import sample_policies as sample
from grpc_health.v1 import health_pb2, health_pb2_grpc
from policy_serving import ROOT, TIMEOUT, Server, environment, refused_start
from support import wait_for

from sparring.policy_server.__main__ import main
from sparring.policy_server.client import Offer, PolicyClient, PolicyUnreachable, RemoteSession
from sparring.protos.spec import TensorSpec

pytestmark = pytest.mark.processes

Serve = Callable[..., Server]

COMMAND = ("-m", "sparring", "serve")  # what `sparring serve` is
MODULE = ("-m", "sparring.policy_server")
OFFER = Offer({sample.SIGNAL: TensorSpec("float64", (1,))}, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
ONE_ACTION = Offer({}, action_low=(-1.0,), action_high=(1.0,))


def act(session: RemoteSession, step: int) -> float:
    chunk = session.act({sample.SIGNAL: np.array([20.0 + step])}, step=step)
    return float(chunk.actions[0, 0])


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_sparring_serve_hosts_what_it_is_told_to(serve: Serve) -> None:
    server = serve("--policy=random", "--policy-arg=chunk=5", '--policy-arg=observations=["a"]', program=COMMAND)
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        description = client.describe()
    assert description.name == "random"
    assert description.arguments == {"chunk": 5, "observations": ["a"]}
    assert description.needs.chunk_length == 5
    assert list(description.needs.named) == ["a"]
    server.send(signal.SIGTERM)
    assert server.wait() == 0


def test_sparring_serve_finds_a_class_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text(
        "from sparring.policy_server.policies.base import Policy, PolicySpec\n"
        "class MyPolicy(Policy):\n"
        "    def __init__(self, *, gain): self.spec = PolicySpec(action_dim=int(gain))\n"
        "    def act(self, observations, states): return []\n"
    )
    process = subprocess.Popen(
        [sys.executable, *COMMAND, "--policy=my_module:MyPolicy", "--policy-arg=gain=2", "--listen=127.0.0.1:0"],
        cwd=tmp_path,
        env=environment(ROOT),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    with process, contextlib.closing(process.stdout) as output:
        try:
            address = json.loads(output.readline())["listening"][0]
            with PolicyClient(address, timeout=TIMEOUT) as client:
                assert client.describe().needs.action_dim == 2
        finally:
            process.terminate()


def test_more_than_one_address_serves_the_same_policy(serve: Serve, tmp_path: Path) -> None:
    socket_address = f"unix://{tmp_path}/policy.sock"
    server = serve("--policy=sample_policies:Fragile", f"--listen={socket_address}")
    for address in (server.address, socket_address):
        with PolicyClient(address, timeout=TIMEOUT) as client, client.open(OFFER) as session:
            session.start()
            assert act(session, 0) == 20.5


def test_it_says_where_other_peoples_clients_are_served(serve: Serve) -> None:
    server = serve("--policy=zero", "--also=openpi:0/libero", "--also=vla-eval:0", program=COMMAND)
    wait_for(lambda: "for clients of vla-eval" in server.log)
    told = dict(re.findall(r"and for clients of (\S+) at 127\.0\.0\.1:(\d+)", server.log))
    for wire, path in (("openpi", "healthz"), ("vla-eval", "health")):
        assert b"ok" in urlopen(f"http://127.0.0.1:{told[wire]}/{path}", timeout=TIMEOUT).read().lower()


@pytest.mark.parametrize("program", [COMMAND, MODULE], ids=["sparring serve", "policy_server"])
def test_a_taken_port_is_a_sentence(taken: str, program: tuple[str, ...]) -> None:
    message = refused_start("--policy=zero", f"--listen={taken}", program=program)
    last = message.splitlines()[-1]
    assert last.startswith("error: ")
    assert taken in last
    assert "--listen" in last


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy=zeroo"], "'zero'"),
        (["--policy=zero", "--policy-arg=chunk=0"], "chunk"),
        (["--policy=zero", "--lisen=127.0.0.1:0"], "--lisen"),
        (["--listen=127.0.0.1:0"], "--policy"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_sparring_serve_refuses_bad_usage_with_a_sentence(arguments: list[str], said: str) -> None:
    last = refused_start(*arguments, program=COMMAND).splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy=expert"], "--benchmark"),
        (["--policy=expert", "--benchmark=chess"], "chess"),
        (["--policy=no_such_module:Policy"], "no_such_module"),
        (["--policy=sample_policies:Fragil"], "'Fragile'"),
        (["--policy=sample_policies:Slow"], "seconds"),
        (["--policy=replay", '--policy-args={"file": "none.npz"}'], "none.npz"),
        (["--policy=zero", '--policy-args={"chonk": 3}'], "chonk"),
        (["--policy=zero", '--policy-args={"chunk": 0}'], "chunk"),
        (["--policy=zero", "--lisen=127.0.0.1:0"], "--lisen"),
        (["--policy="], "policy"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_policy_that_cannot_be_hosted_is_bad_usage(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith("error: ")
    assert said in told.err


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--listen=127.0.0.1", "'127.0.0.1'"),  # gRPC would take port 443 for it
        ("--listen=192.0.2.7:0", "192.0.2.7"),
        ("--listen=unix:///no/such/folder/policy.sock", "/no/such/folder"),
        ("--max-batch=0", "max-batch"),
        ("--max-sessions=0", "max-sessions"),
    ],
)
def test_what_cannot_be_is_refused_before_it_listens(argument: str, said: str) -> None:
    last = refused_start("--policy=zero", "--listen=127.0.0.1:0", argument).splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


@pytest.mark.parametrize("arguments", ["not json", "[1]", "3"])
def test_policy_arguments_that_are_no_object_are_bad_usage(arguments: str) -> None:
    assert "--policy-args" in refused_start("--policy=zero", f"--policy-args={arguments}", "--listen=127.0.0.1:0")


def test_more_sessions_than_allowed_are_refused_until_one_ends(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile", "--max-sessions=2")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        first, second = client.open(OFFER), client.open(OFFER)
        with pytest.raises(PolicyUnreachable, match="--max-sessions") as caught:
            client.open(OFFER)
        cause = caught.value.__cause__
        assert isinstance(cause, grpc.RpcError)
        assert cause.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        second.start()
        assert act(second, 0) == 20.5, "the sessions it holds are not touched"
        first.close()
        with opened_when_free(client) as third:
            third.start()
            assert act(third, 0) == 20.5


def test_a_client_that_dies_gives_its_session_back(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile", "--max-sessions=1")
    program = (
        "import os, sys\n"
        "from sparring.policy_server.client import Offer, PolicyClient\n"
        "from sparring.protos.spec import TensorSpec\n"
        "offer = Offer({'signal': TensorSpec('float64', (1,))}, action_low=(-1.0,) * 2, action_high=(1.0,) * 2)\n"
        "session = PolicyClient(sys.argv[1], timeout=10).open(offer)\n"
        "session.start()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", program, server.address],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    with PolicyClient(server.address, timeout=TIMEOUT) as client, opened_when_free(client) as session:
        session.start()
        assert act(session, 0) == 20.5


def opened_when_free(client: PolicyClient) -> RemoteSession:
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return client.open(OFFER)
        except PolicyUnreachable:
            assert time.monotonic() < deadline, "the session was never given back"
            time.sleep(0.05)


# ------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(serve: Serve, number: signal.Signals) -> None:
    server = serve("--policy=zero", "--grace=600")
    server.send(number)
    assert server.wait() == 0, "and not after its grace"
    assert "Traceback" not in server.log


def test_on_sigterm_a_running_episode_goes_on_and_no_other_begins(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile", "--grace=600", program=COMMAND)
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        busy, idle = client.open(OFFER), client.open(OFFER)
        busy.start(seed=1)
        assert act(busy, 0) == 20.5
        server.send(signal.SIGTERM)
        server.wait_for_log("draining")
        for step in range(1, 4):
            assert act(busy, step) == 20.5 + step
        for session in (idle, busy):
            with pytest.raises(PolicyUnreachable, match="shutting down") as caught:
                session.start(seed=2)
            cause = caught.value.__cause__
            assert isinstance(cause, grpc.RpcError)
            assert cause.code() == grpc.StatusCode.UNAVAILABLE
        # Both streams have ended, so there is nothing left to wait for.
        assert server.wait() == 0
    assert "Traceback" not in server.log


def test_while_draining_no_session_begins(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile", "--grace=60")
    with PolicyClient(server.address, timeout=TIMEOUT) as client, PolicyClient(server.address, timeout=TIMEOUT) as late:
        session = client.open(OFFER)
        session.start()
        assert late.describe().name
        server.send(signal.SIGTERM)
        server.wait_for_log("draining")
        late.timeout = 0.5
        with pytest.raises(PolicyUnreachable):
            late.open(OFFER)
        assert act(session, 0) == 20.5


def test_while_draining_health_does_not_say_serving(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile", "--grace=5")
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(OFFER) as session:
        session.start()
        with grpc.insecure_channel(server.address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            server.send(signal.SIGTERM)
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()


def test_an_episode_that_does_not_end_is_cut_off_after_the_grace(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Fragile", "--grace=0.5")
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(OFFER) as session:
        session.start()
        began = time.monotonic()
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - began > 0.4
        with pytest.raises(PolicyUnreachable):
            act(session, 0)
    assert "Traceback" not in server.log


def test_a_policy_that_never_answers_does_not_keep_the_server_alive(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Slow", '--policy-args={"seconds": 600}', "--grace=0.2")
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(ONE_ACTION) as session:
        session.start()
        session._timeout = 1.0
        with pytest.raises(PolicyUnreachable):
            session.act({}, step=0)
        server.send(signal.SIGTERM)
        assert server.wait() == 0


def test_with_exit_with_parent_the_server_ends_when_its_standard_input_closes(serve: Serve) -> None:
    server = serve("--policy=zero", "--exit-with-parent")
    with PolicyClient(server.address, timeout=TIMEOUT) as client:
        assert client.describe().name == "zero"
    assert server.process.stdin
    server.process.stdin.write("anything\n")
    server.process.stdin.flush()
    time.sleep(0.1)
    assert server.process.poll() is None, "only the end of the input means the end"
    server.process.stdin.close()
    assert server.wait() == 0


def test_with_exit_with_parent_the_server_does_not_outlive_a_parent_that_is_killed() -> None:
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'policy_server', '--policy=zero', '--listen=127.0.0.1:0',"
        " '--exit-with-parent'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)\n"
        "child.stdout.readline()\n"
        "sys.stdout.write(str(child.pid)); sys.stdout.flush()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=TIMEOUT,
        check=False,
    )
    child = int(parent.stdout)
    deadline = time.monotonic() + TIMEOUT
    while _alive(child):
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_policy_that_prints_does_not_stop_at_a_full_pipe(serve: Serve) -> None:
    server = serve("--policy=sample_policies:Chatty")
    with PolicyClient(server.address, timeout=TIMEOUT) as client, client.open(ONE_ACTION) as session:
        session.start()
        for step in range(3):
            session.act({}, step=step)
    assert "xxx" in server.log
