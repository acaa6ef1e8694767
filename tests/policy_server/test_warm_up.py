"""Health before, while and after a policy is loaded and warmed up."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from policy_serving import ROOT, environment, refused_start
from support import free_port, wait_for

from sparring.policy_server.client import Offer, PolicyClient, PolicyUnreachable

pytestmark = pytest.mark.processes

POLICY = """
import threading, time
from pathlib import Path
import numpy as np
from sparring.policy_server.policies.base import Policy, PolicySpec

GATE = Path(__file__).parent

def wait_for(name):
    (GATE / f"reached-{name}").touch()
    while not (GATE / name).exists():
        time.sleep(0.01)

wait_for("import")

class Gated(Policy):
    spec = PolicySpec(action_dim=1)

    def warm_up(self):
        wait_for("warm")
        self.thread = threading.get_ident()

    def act(self, observations, states):
        assert threading.get_ident() == self.thread, "warmed up in another thread than it acts in"
        return [np.zeros((1, 1)) for _ in observations]

class Cold(Gated):
    def warm_up(self):
        raise RuntimeError("no kernel image is available")
"""


def status(address: str) -> str:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service="sparring.policy.v1.Policy"), timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)  # type: ignore[attr-defined]
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@contextmanager
def gated(folder: Path, name: str = "Gated") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server whose policy loads, and warms up, when it is let."""
    (folder / "gated_policy.py").write_text(POLICY)
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "sparring.policy_server", f"--policy=gated_policy:{name}", f"--listen={address}"]
    with subprocess.Popen(
        [*command, "--grace=0"], cwd=ROOT, env=environment(folder), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            yield server, address
        finally:
            server.kill()


def test_health_says_serving_only_when_the_policy_is_loaded_and_warm(tmp_path: Path) -> None:
    offer = Offer({}, (-1.0,), (1.0,))
    with gated(tmp_path) as (server, address):
        wait_for(lambda: (tmp_path / "reached-import").exists())
        assert status(address) == "NOT_SERVING"
        with PolicyClient(address, timeout=0.3) as client, pytest.raises(PolicyUnreachable, match=r"within 0\.3 s"):
            client.describe()
        (tmp_path / "import").touch()
        wait_for(lambda: (tmp_path / "reached-warm").exists())
        assert status(address) == "NOT_SERVING"
        with PolicyClient(address, timeout=0.3) as client, pytest.raises(PolicyUnreachable, match=r"within 0\.3 s"):
            client.open(offer)
        (tmp_path / "warm").touch()
        # Whoever asks while it is not there yet gets the answer when it is.
        with PolicyClient(address, timeout=60) as client, client.open(offer) as session:
            assert client.describe().name == "gated_policy:Gated"
            session.start()
            assert session.act({}, step=0).actions.tolist() == [[0.0]]
        wait_for(lambda: status(address) == "SERVING")
        assert server.stdout is not None
        assert address in server.stdout.readline()


def test_a_failing_warm_up_is_a_sentence_at_the_start(tmp_path: Path) -> None:
    with gated(tmp_path, "Cold"):  # writes the module
        pass
    for name in ("import", "warm"):
        (tmp_path / name).touch()
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from sparring.policy_server.__main__ import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "--policy=gated_policy:Cold", "--listen=127.0.0.1:0"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[-1] == (
        "error: the policy 'gated_policy:Cold' failed in its warm-up: RuntimeError: no kernel image is available"
    )


def test_a_taken_address_is_told_before_the_policy_is_loaded(tmp_path: Path) -> None:
    with gated(tmp_path) as (_, address):
        wait_for(lambda: (tmp_path / "reached-import").exists())
        said = refused_start("--policy=nobody:Knows", f"--listen={address}")
    assert "it is taken" in said, "and not that nobody knows the policy"


def test_a_server_that_is_told_to_stop_while_it_loads_stops(tmp_path: Path) -> None:
    with gated(tmp_path) as (server, _):
        wait_for(lambda: (tmp_path / "reached-import").exists())
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert server.stdout is not None
        assert server.stdout.read() == ""
