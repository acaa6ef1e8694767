"""Workers elsewhere: several of a benchmark, and all that passes the network to and from them is encrypted."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import Sparring, Undisturbed, free_port, read_csv
from toy_policies import Wanderer

from sparring import Evaluator, Observation
from sparring.protos.tensor import Array


@pytest.mark.processes
def test_several_workers_of_a_benchmark_play_over_tls(
    tmp_path: Path, sparring: Sparring, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("http_proxy", "https_proxy"):  # as on many clusters; it leads to the web, and to no node
        monkeypatch.setenv(variable, f"http://127.0.0.1:{free_port()}")
    plan = ("run", "--benchmark", "toy", "--task", "good,short", "--policy", "toy_policies:Wanderer", "--episodes", "4")
    done = sparring(*plan, "--launcher", "far", "--workers", "2", "--slots-per-worker", "1", "--output", "far")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "far") == undisturbed(*plan)
    assert {path.name for path in (tmp_path / "far" / "logs").glob("worker-*")} == {
        "worker-toy-0.log",
        "worker-toy-1.log",
    }
    assert "unencrypted" not in (tmp_path / "far" / "logs" / "worker-toy-0.log").read_text()


@pytest.mark.processes
def test_what_listens_for_workers_elsewhere_speaks_tls_only() -> None:
    """The policy that lives in this process, too: what it sees passes the same network."""
    before, kinds = set(_listening()), set()

    class Looks(Wanderer):
        def act(self, observations: Sequence[Observation], states: Sequence[dict[str, Any]]) -> Sequence[Array]:
            kinds.update((port, _speaks_tls(port)) for port in _listening() if port not in before)
            return super().act(observations, states)

    with Evaluator() as evaluator:
        evaluator.evaluate(
            Looks(), benchmark="toy", tasks="good", episodes=2, launcher="far", workers=1, slots_per_worker=2
        )
    assert [tls for _, tls in kinds] == [True, True], "the run's port, and the policy's"


def _listening() -> list[int]:
    """TCP ports of this process."""
    return [c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]


def _speaks_tls(port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError:
        return False
