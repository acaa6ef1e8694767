"""Foreign servers that die, stall, answer late or with nonsense: a sentence, in time, whatever their wire."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bridges.foreign_servers import (
    ActServer,
    GrootServer,
    VlaEvalServer,
    goes_away,
    listening,
    says_garbage,
    says_nothing,
)
from bridges.telling import HORIZON, OFFER, SIZE, actions_for, made_up
from certificates import Certificates

from sparring.policy_server.errors import PolicyFailed, PolicyUnreachable
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.errors import UsageError


@contextmanager
def vla_eval() -> Iterator[tuple[Any, str, dict[str, Any]]]:
    server = VlaEvalServer()
    with listening(server.handle) as port:
        yield server, f"vla-eval://127.0.0.1:{port}", {}


@contextmanager
def groot() -> Iterator[tuple[Any, str, dict[str, Any]]]:
    with GrootServer() as server:
        yield server, f"gr00t://127.0.0.1:{server.port}", {}


@contextmanager
def act() -> Iterator[tuple[Any, str, dict[str, Any]]]:
    with ActServer("openvla") as server:
        yield server, f"http://127.0.0.1:{server.port}/act", {"form": "openvla"}


LATE = "did not answer within 0.5 s"
FAULTS: list[tuple[Callable[[], Any], dict[str, Any], type[Exception], str]] = [
    (vla_eval, {"fault": goes_away}, PolicyUnreachable, "went away in the middle of an episode"),
    (vla_eval, {"fault": says_nothing}, PolicyFailed, LATE),
    (vla_eval, {"fault": says_garbage}, PolicyFailed, "a message that this wire does not have"),
    (groot, {"stalls": 3.0}, PolicyFailed, LATE),
    (groot, {"garbage": b"\xc1"}, PolicyFailed, "a message that this wire does not have"),
    (groot, {"garbage": b"\xa3abc"}, PolicyFailed, "where actions were due"),
    (groot, {"error": "Traceback (most recent call last):\nRuntimeError: no memory"}, PolicyFailed, "no memory"),
    (act, {"stalls": 3.0}, PolicyFailed, LATE),
    (act, {"drips": True}, PolicyFailed, LATE),
    (act, {"breaks_off": True}, PolicyUnreachable, "went away in the middle of an episode"),
    (act, {"leaves": True}, PolicyUnreachable, "went away in the middle of an episode"),
    (act, {"content": b"<html>"}, PolicyFailed, "cannot be read"),
    (act, {"status": 500, "content": b"Traceback ...\nKeyError: 'image'"}, PolicyFailed, "HTTP 500.*KeyError"),
    (act, {"content": b'"error"'}, PolicyFailed, "error"),
]


@pytest.mark.parametrize("wire", ["openpi", "vla-eval", "gr00t"])
def test_a_server_that_is_not_there_is_told_at_once(wire: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(UsageError, match=rf"no {wire} server answers .*refused\. Is it running there\?"):
        load_policy(f"{wire}://127.0.0.1:{port}", {}).warm_up()
    assert time.monotonic() - began < 25  # its answers may take 50


@pytest.mark.parametrize(("serving", "fault", "kind", "said"), FAULTS)
def test_a_fault_is_told_in_time_and_the_next_episode_is_another_try(
    serving: Callable[[], Any], fault: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with serving() as (server, address, arguments):
        given = {"timeout": 0.5, **arguments}
        policy = LocalPolicy(lambda: load_policy(address, given), name=address)
        session = policy.open(OFFER, benchmark="libero")
        ours = {name: made_up(0)[name] for name in session.needs.named}
        session.start(instruction="go", seed=0)
        usual = {name: getattr(server, name) for name in fault}
        for name, value in fault.items():
            setattr(server, name, value)
        began = time.monotonic()
        with pytest.raises(kind, match=said):
            session.act(ours, step=0)
        assert time.monotonic() - began < 20  # of a busy machine, whose deadline was half a second
        for name, value in usual.items():
            setattr(server, name, value)
        again = policy if said != LATE else LocalPolicy(lambda: load_policy(address, arguments), name=address)
        session = again.open(OFFER, benchmark="libero")
        for number in (1, 2):  # what the one before was asked is answered to nobody any more
            session.start(instruction="go", seed=number)
            shown = {name: made_up(number)[name] for name in session.needs.named}
            answer = session.act(shown, step=0).actions
            assert np.array_equal(answer[:, :-1], answer_to(server)[: len(answer), :-1])


def answer_to(server: Any) -> Any:
    """What a server has to answer to what it was shown last."""
    seen = server.seen[-1]
    if isinstance(server, VlaEvalServer):
        return server.tell(seen)[None]
    asked = {name: value for name, value in seen.items() if name != "path"}
    return actions_for(asked, size=SIZE, horizon=getattr(server, "horizon", HORIZON))


def test_a_server_of_groot_that_dies_is_no_late_one() -> None:
    """Nor does it wait for the next server at the address."""
    with groot() as (server, address, arguments):
        policy = LocalPolicy(lambda: load_policy(address, {"timeout": 0.5, **arguments}), name=address)
        session = policy.open(OFFER, benchmark="libero")
        session.start(instruction="go", seed=0)
        server.dies = True
        with pytest.raises(PolicyUnreachable, match=r"went away in the middle of an episode \(ConnectionResetError"):
            session.act(made_up(0), step=0)
        with pytest.raises(PolicyUnreachable, match=r"no gr00t server answers .*the episode starts again"):
            session.start(instruction="go", seed=0)


STOPPED = """
import ssl, sys
from bridges.foreign_servers import OpenpiServer, VlaEvalServer
from websockets.sync.server import serve

wire, pair = sys.argv[1], sys.argv[2:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if pair else None
if context:
    context.load_cert_chain(*pair)
handle = (VlaEvalServer() if wire == "vla-eval" else OpenpiServer()).handle
with serve(handle, "127.0.0.1", 0, max_size=None, ssl=context) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
"""


@pytest.mark.parametrize("wire", ["openpi", "openpi+tls", "vla-eval"])
def test_a_server_that_does_not_even_read_is_late(wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped before it is asked: the question is larger than what the kernel holds for it."""
    arguments = {"timeout": 1, "side": 1500}
    program, folder = [sys.executable, "-c", STOPPED, wire], Path(__file__).parent.parent
    if wire.endswith("+tls"):
        files = Certificates.make(tmp_path)
        program += map(str, files.pair())
        monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stdout is not None
        address = f"{wire}://localhost:{server.stdout.readline().strip()}"
        try:
            policy = LocalPolicy(lambda: load_policy(address, arguments), name=address)
            session = policy.open(OFFER, benchmark="libero")
            session.start(instruction="go", seed=0)
            server.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(PolicyFailed, match="did not answer within 1 s"):
                session.act({name: made_up(0)[name] for name in session.needs.named}, step=0)
            assert time.monotonic() - began < 20
        finally:
            server.kill()
