"""Stats of a server that can be known beforehand: scraped over HTTP, and asked for over gRPC."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

import numpy as np
import pytest
import sample_policies as sample
from policy_serving import Server, refused_start
from prometheus_client.parser import text_string_to_metric_families
from support import wait_for

from sparring.policy_server import metrics
from sparring.policy_server.client import Offer, PolicyClient, PolicyFailed, PolicyRefused, fetch_stats
from sparring.policy_server.options import metrics_address
from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.spec import TensorSpec

OFFER = Offer({sample.SIGNAL: TensorSpec("float64", (1,))}, (-1.0, -1.0), (1.0, 1.0))


def seeing(signal: float) -> dict[str, np.ndarray]:
    return {sample.SIGNAL: np.array([float(signal)])}


def scraped(server: Server) -> dict[str, float]:
    """Every sample by its name, with the labels that tell it from others."""
    with urllib.request.urlopen(f"http://{server.told['metrics']}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = {}
    for family in text_string_to_metric_families(text):
        for found in family.samples:
            labels = "".join(f"[{value}]" for value in found.labels.values())
            samples[found.name + labels] = found.value
    return samples


def stats(server: Server) -> pb.ServerStats:
    return asyncio.run(fetch_stats(server.address, timeout=60))


def play(client: PolicyClient, *signals: float) -> None:
    with client.open(OFFER) as session:
        session.start(task="x")
        for step, signal in enumerate(signals):
            session.act(seeing(signal), step=step)


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve("--policy=sample_policies:Fragile", "--metrics=127.0.0.1:0", "--grace=0")


def test_a_server_that_has_done_nothing_says_so(server: Server) -> None:
    found = scraped(server)
    assert found["sparring_policy_info[sample_policies:Fragile]"] == 1
    for name in ("observations_total", "episodes_total", "sessions", "queue_wait_seconds_count", "batch_size_count"):
        assert found[f"sparring_policy_{name}"] == 0
    assert not any(name.startswith("sparring_policy_errors_total") for name in found)
    assert found["process_resident_memory_bytes"] > 0


def test_every_observation_session_and_error_is_counted(server: Server) -> None:
    with PolicyClient(server.address, timeout=60) as client:
        play(client, *[sample.FINE] * 7)
        with pytest.raises(PolicyFailed):
            play(client, sample.FINE, sample.NAN)
        with pytest.raises(PolicyFailed):
            play(client, sample.RAISE)
        with pytest.raises(PolicyRefused):
            client.open(Offer({}, (-1.0,), (1.0,)))
        with client.open(OFFER) as session:
            session.start(task="y")
            found, asked = scraped(server), stats(server)
    assert found["sparring_policy_observations_total"] == asked.observations == 10
    assert found["sparring_policy_episodes_total"] == asked.episodes == 4
    assert found["sparring_policy_sessions"] == asked.sessions == 1
    assert found["sparring_policy_batch_size_count"] == 10
    assert found["sparring_policy_batch_size_sum"] == 10
    assert dict(asked.batches) == {1: 10}
    assert found["sparring_policy_queue_wait_seconds_count"] == 10
    assert found["sparring_policy_inference_seconds_count"] == 10
    assert found["sparring_policy_errors_total[policy]"] == 2
    assert found["sparring_policy_errors_total[refused]"] == 1
    assert dict(asked.errors) == {"policy": 2, "refused": 1}


def test_buckets_are_cumulative_and_times_are_true(serve: Callable[..., Server]) -> None:
    server = serve(
        "--policy=sample_policies:Slow", '--policy-args={"seconds": 0.2}', "--metrics=127.0.0.1:0", "--grace=0"
    )
    with PolicyClient(server.address, timeout=60) as client, client.open(Offer({}, (-1.0,), (1.0,))) as session:
        session.start()
        for step in range(3):
            session.act({}, step=step)
    found = scraped(server)
    assert 0.6 <= found["sparring_policy_inference_seconds_sum"] < 1.5
    buckets = [value for name, value in found.items() if name.startswith("sparring_policy_inference_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert found["sparring_policy_inference_seconds_bucket[0.158]"] == 0
    assert found["sparring_policy_inference_seconds_bucket[+Inf]"] == 3
    assert found["sparring_policy_queue_wait_seconds_bucket[0.1]"] == 3


def test_the_sessions_that_are_too_many_are_errors_too(serve: Callable[..., Server]) -> None:
    server = serve("--policy=sample_policies:Fragile", "--max-sessions=1", "--metrics=127.0.0.1:0", "--grace=0")
    with PolicyClient(server.address, timeout=60) as client, client.open(OFFER):
        with pytest.raises(Exception, match="has no room"):
            client.open(OFFER)
        assert scraped(server)["sparring_policy_errors_total[full]"] == 1


def test_without_the_flag_nothing_listens_and_stats_are_kept_all_the_same(serve: Callable[..., Server]) -> None:
    server = serve("--policy=sample_policies:Fragile", "--grace=0")
    assert set(server.told) == {"listening"}
    with PolicyClient(server.address, timeout=60) as client:
        play(client, sample.FINE)
    assert stats(server).observations == 1


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused_start("--policy=zero", "--listen=127.0.0.1:0", f"--metrics={address}")
    assert said.endswith(f"error: metrics cannot be served at {address!r}: the port is taken. Give another --metrics.")


@pytest.mark.parametrize("address", ["9090", "localhost", ":port", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_a_sentence(address: str) -> None:
    said = refused_start("--policy=zero", "--listen=127.0.0.1:0", f"--metrics={address}")
    assert f"{address!r} is not HOST:PORT or :PORT" in said


def test_a_missing_library_is_a_sentence() -> None:
    without = (
        "import sys; sys.modules['prometheus_client'] = None; from sparring.policy_server.__main__ import main; main()"
    )
    said = refused_start("--policy=zero", "--listen=127.0.0.1:0", "--metrics=:0", program=("-c", without))
    assert "--metrics needs the prometheus_client library: pip install 'sparring[metrics]'" in said


def test_a_bare_port_is_for_this_machine_only(serve: Callable[..., Server]) -> None:
    server = serve("--policy=zero", "--metrics=:0", "--grace=0")
    assert server.told["metrics"].startswith("127.0.0.1:")
    assert json.dumps(server.told["listening"]) == json.dumps([server.address])
    assert scraped(server)["sparring_policy_sessions"] == 0


def test_beyond_this_machine_they_are_told_only_if_that_is_meant(serve: Callable[..., Server]) -> None:
    said = refused_start("--policy=zero", "--listen=127.0.0.1:0", "--metrics=0.0.0.0:0")
    assert said.endswith(
        "error: its metrics would listen at 0.0.0.0:0 and let in everybody who reaches it: name no host, "
        "listen at 127.0.0.1, or say that it is meant with --insecure."
    )
    server = serve("--policy=zero", "--metrics=0.0.0.0:0", "--insecure", "--grace=0")
    assert server.told["metrics"].startswith("0.0.0.0:")
    assert scraped(server)["sparring_policy_sessions"] == 0


def test_so_many_may_ask_at_once_and_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects needs no token: each would take a thread and a file descriptor for as long as it likes."""
    assert metrics._MOST_OF_A_PEER < metrics._MOST_CONNECTIONS
    monkeypatch.setattr(metrics, "_MOST_CONNECTIONS", 4)
    monkeypatch.setattr(metrics, "_MOST_OF_A_PEER", 3)
    monkeypatch.setattr(metrics, "_REQUEST_SECONDS", 3.0)
    before = threading.active_count()
    server = metrics.MetricsServer(StatsCounter(), metrics_address(":0"), policy="p")
    place = (server.address.host, server.address.port)
    try:
        crowd = [socket.create_connection(place, 60) for _ in range(20)]
        crowd[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")  # and never the end of it
        crowd += [socket.create_connection(place, 60, source_address=("127.0.0.9", 0)) for _ in range(5)]
        wait_for(lambda: sum(map(is_open, crowd)) == 4, seconds=2.9)
        assert sum(map(is_open, crowd[:20])) == 3
        assert threading.active_count() - before <= 1 + 2 * 4
        wait_for(lambda: not any(map(is_open, crowd)))
        # Whoever is cut off hears of it a moment before the server has counted it.
        wait_for(lambda: b"sparring_policy_sessions 0.0" in _asked(server))
    finally:
        server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, 60)
    wait_for(lambda: threading.active_count() == before)


def _asked(server: metrics.MetricsServer) -> bytes:
    try:
        with urllib.request.urlopen(f"http://{server.address.target}/metrics", timeout=60) as answer:
            return bytes(answer.read())
    except (ConnectionError, http.client.HTTPException, urllib.error.URLError):
        return b""


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False
