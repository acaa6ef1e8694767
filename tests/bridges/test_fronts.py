"""`sparring serve --also`: other people's clients at our server; those that misbehave, too."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgpack
import numpy as np
import pytest
import zmq
from bridges.foreign_servers import GrootServer, openpi_arrays, pack
from bridges.served import Telling, serving
from bridges.telling import made_up
from certificates import Certificates
from PIL import Image
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect
from zmq.utils.monitor import recv_monitor_message

from sparring.policy_server.bridges.arrays import GROOT, VLA_EVAL, BadMessage, numbers_of
from sparring.policy_server.bridges.front import FrontSettings
from sparring.policy_server.bridges.servers import silent_clients
from sparring.policy_server.bridges.wires import SERVED, Wire
from sparring.policy_server.limits import Limits
from sparring.policy_server.options import ServerOptions
from sparring.policy_server.server import PolicyServer
from sparring.protos.errors import UsageError
from sparring.protos.spec import TensorSpec


@contextmanager
def asking(port: int) -> Iterator[Any]:
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 10_000)
    socket.connect(f"tcp://127.0.0.1:{port}")

    def ask(endpoint: str, data: Any = None, **more: Any) -> Any:
        request = {"endpoint": endpoint, **({} if data is None else {"data": data}), **more}
        socket.send(msgpack.packb(request, default=GrootServer.packed))
        return msgpack.unpackb(socket.recv(), object_hook=GrootServer.arrays, strict_map_key=False)

    try:
        yield ask
    finally:
        socket.close()
        context.term()


def groot_observation(seed: int) -> dict[str, Any]:
    ours = made_up(seed)
    numbers = np.random.default_rng(seed).normal(size=8).astype(np.float32)
    names = ["x", "y", "z", "roll", "pitch", "yaw"]
    states = {f"state.{name}": numbers[i : i + 1][None, None] for i, name in enumerate(names)}
    return {
        "video.image": ours["observation.images.image"][None, None],
        "video.wrist_image": ours["observation.images.image2"][None, None],
        **states,
        "state.gripper": numbers[6:][None, None],
        "annotation.human.action.task_description": ["go"],
    }


def test_a_client_of_groots_wire_gets_parts_of_actions_with_its_own_gripper() -> None:
    policy = Telling(horizon=3)
    with serving(policy, "gr00t:0/libero") as (port,), asking(port) as ask:
        assert ask("ping")["status"] == "ok"
        assert ask("get_modality_config")["video"]["modality_keys"] == ["image", "wrist_image"]
        for times in (1, 2):
            observation = groot_observation(times)
            action, _ = ask("get_action", {"observation": observation, "options": {}})
            ours = {
                "observation.images.image": observation["video.image"][0, 0],
                "observation.images.image2": observation["video.wrist_image"][0, 0],
                "observation.state": np.concatenate(
                    [np.ravel(value) for name, value in observation.items() if name.startswith("state.")]
                ),
            }
            whole = policy.tell(ours, "go", times)
            for i, name in enumerate(("x", "y", "z", "roll", "pitch", "yaw")):
                assert np.array_equal(action[f"action.{name}"][0, :, 0], whole[:, i])
            # What its client then does gives our gripper back: scaled to -1..1, and turned round.
            gripper = -(2 * action["action.gripper"][0, :, 0] - 1)
            np.testing.assert_allclose(gripper, whole[:, 6], atol=1e-6)
        ask("reset", {"options": {}})
        assert (
            policy.tell(ours, "go", 1)[0, 0] == ask("get_action", {"observation": observation})[0]["action.x"][0, 0, 0]
        )


def test_nobody_can_kill_the_server_and_garbage_is_answered_with_a_sentence() -> None:
    with serving(Telling(), "gr00t:0/libero") as (port,), asking(port) as ask:
        assert "no endpoint 'kill'" in ask("kill")["error"]
        assert "without an observation" in ask("get_action", {})["error"]
        assert "batches of one" in ask("get_action", {"observation": {"state.x": np.zeros((2, 1, 1), "f4")}})["error"]
        assert ask("ping")["status"] == "ok"


def test_groots_clients_bring_the_token_in_each_request() -> None:
    token = "a-token-of-more-than-16-characters"
    with serving(Telling(), "gr00t:0/libero", token=token) as (port,), asking(port) as ask:
        assert "wants its token" in ask("get_action", {"observation": groot_observation(0)})["error"]
        assert "wants its token" in ask("ping", api_token="another")["error"]
        assert ask("ping", api_token=token)["status"] == "ok"


@contextmanager
def openpi_client(port: int, **more: Any) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, **more) as connection:
        assert "server" in msgpack.unpackb(connection.recv(10), object_hook=openpi_arrays)
        yield connection


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xc1", "a message that this wire does not have"),
        ("text", "a message of text"),
        (msgpack.packb([1, 2]), "an observation that is no map"),
        (pack({"prompt": "go"}), "not offered"),
        (pack({"observation/image": np.zeros(3, np.float32), "prompt": "go"}), "differs"),
        (
            msgpack.packb({"x": {b"__ndarray__": True, b"data": b"", b"dtype": "|O", b"shape": []}}),
            "which is not of numbers",
        ),
    ],
)
def test_openpis_clients_that_send_garbage_are_told_and_let_go(sent: bytes | str, said: str) -> None:
    with serving(Telling(), "openpi:0/libero") as (port,):
        with openpi_client(port) as connection:
            connection.send(sent)
            assert said in str(connection.recv(10))
            with pytest.raises(ConnectionClosed):
                connection.recv(10)
        with openpi_client(port):  # and others are served
            pass


@pytest.mark.parametrize("wire", ["openpi", "vla-eval"])
def test_a_message_over_the_limit_ends_its_connection_unread(wire: str) -> None:
    with serving(Telling(), f"{wire}:0/libero", max_observation=1) as (port,):
        with connect(f"ws://127.0.0.1:{port}") as connection:
            if wire == "openpi":
                connection.recv(10)  # its greeting
            connection.send(b"\0" * (3 << 20))
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009, "too large: nobody has read it"


def test_a_message_of_groots_wire_over_the_limit_ends_its_connection_and_others_are_served() -> None:
    with serving(Telling(), "gr00t:0/libero", max_observation=1) as (port,):
        with zmq.Context() as context, context.socket(zmq.REQ) as socket, socket.get_monitor_socket() as events:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(f"tcp://127.0.0.1:{port}")
            socket.send(b"\0" * (3 << 20))
            while recv_monitor_message(events)["event"] != zmq.EVENT_DISCONNECTED:
                assert events.poll(20_000), "it was not let go"
            socket.disable_monitor()
        with asking(port) as ask:
            assert ask("ping")["status"] == "ok"


def test_places_are_the_servers_own() -> None:
    with serving(Telling(), "openpi:0/libero", max_sessions=2) as (port,):
        with openpi_client(port), openpi_client(port), connect(f"ws://127.0.0.1:{port}") as third:  # noqa: SIM117
            with pytest.raises(ConnectionClosed, match="takes no more"):
                third.recv(10)
        with openpi_client(port):
            pass


def test_roboarenas_reset_begins_another_episode() -> None:
    policy = Telling()
    seen = {
        "observation/image": np.zeros((4, 4, 3), np.uint8),
        "observation/wrist_image": np.zeros((4, 4, 3), np.uint8),
        "observation/state": np.zeros(8),
        "prompt": "go",
    }
    with serving(policy, "openpi:0/libero") as (port,), openpi_client(port) as connection:

        def ask() -> Any:
            connection.send(pack(seen))
            return msgpack.unpackb(connection.recv(10), object_hook=openpi_arrays, strict_map_key=False)["actions"]

        first, second = ask(), ask()
        assert not np.array_equal(first, second)
        connection.send(msgpack.packb({"endpoint": "reset"}))
        assert connection.recv(10) == "reset successful"
        assert np.array_equal(ask(), first)


@pytest.mark.parametrize("wire", ["openpi", "vla-eval"])
@pytest.mark.parametrize("who", ["", "any:another-of-more-than-16-characters@", "any:@"])
def test_whoever_has_not_the_token_is_refused(wire: str, who: str) -> None:
    with serving(Telling(), f"{wire}:0", token="a-token-of-more-than-16-characters") as (port,):
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://{who}127.0.0.1:{port}"):
            pass
        assert refused.value.response.status_code == 401
        assert b"wants its token" in (refused.value.response.body or b"")


def test_health_needs_no_token() -> None:
    with serving(Telling(), "openpi:0", "vla-eval:0", token="a-token-of-more-than-16-characters") as (one, other):
        assert urlopen(f"http://127.0.0.1:{one}/healthz", timeout=60).read() == b"OK\n"
        assert json.loads(urlopen(f"http://127.0.0.1:{other}/health", timeout=60).read()) == {"status": "ok"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("openpy:8000", "openpy.*openpi"),
        ("openpi:8000/liberoo", "liberoo.*libero"),
        ("openpi", "has no port.*openpi:8000"),
        ("openpi:x", "HOST:PORT"),
    ],
)
def test_what_is_no_wire_and_port_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        FrontSettings.parse(text)


def test_beyond_this_machine_it_wants_a_token() -> None:
    server = PolicyServer(Telling(), ServerOptions(policy="telling", also=("openpi:0.0.0.0:0",)))
    with pytest.raises(UsageError, match="let in everybody"):
        asyncio.run(server.start(["127.0.0.1:0"]))


def test_a_clients_certificate_for_grpc_is_no_token_for_another_wire(tmp_path: Path) -> None:
    files = Certificates.make(tmp_path)
    cert, key = files.pair()
    options = ServerOptions(also=("openpi:0.0.0.0:0",), tls_cert=cert, tls_key=key, client_ca=files.ca)
    server = PolicyServer(Telling(), options)
    with pytest.raises(UsageError, match=r"openpi's wire would listen at 0\.0\.0\.0:0 and let in everybody"):
        asyncio.run(server.start(["127.0.0.1:0"]))


@pytest.mark.parametrize("wire", sorted(SERVED))
def test_a_wire_that_does_not_refuse_strangers_is_not_for_them_even_with_a_token(wire: str) -> None:
    server = PolicyServer(Telling(), ServerOptions(policy="telling", also=(f"{wire}:0.0.0.0:0",)), token="x" * 20)

    async def start_and_stop() -> None:
        await server.start(["127.0.0.1:0"])
        await server.drain(grace=0.0, rest=10.0)

    refused = wire in ("gr00t", "lerobot-async")
    with pytest.raises(UsageError, match="it has no limits for strangers") if refused else contextlib.nullcontext():
        asyncio.run(start_and_stop())


def test_a_new_wire_is_for_this_machine_until_it_says_that_it_refuses_strangers() -> None:
    assert not Wire("new", "of somebody", server="new:NewFront").refuses_strangers


def test_with_a_certificate_web_sockets_are_encrypted(tmp_path: Path) -> None:
    files = Certificates.make(tmp_path)
    context = ssl.create_default_context(cafile=str(files.ca))
    cert, key = files.pair()
    with serving(Telling(), "openpi:0/libero", tls_cert=cert, tls_key=key) as (port,):
        with connect(f"wss://localhost:{port}", ssl=context) as connection:
            assert "server" in msgpack.unpackb(connection.recv(10))
        with pytest.raises((OSError, EOFError, WebSocketException)), connect(f"ws://127.0.0.1:{port}"):
            pass


def test_pages_of_other_sites_are_refused() -> None:
    with serving(Telling(), "openpi:0/libero") as (port,), pytest.raises(InvalidStatus):
        connect(f"ws://127.0.0.1:{port}", origin="https://evil.example").__enter__()


def test_a_client_that_does_not_take_its_answers_gives_its_place_back() -> None:
    policy = Telling(horizon=4000)  # answers that soon fill what the kernel holds for a client
    seen = {
        "observation/image": np.zeros((4, 4, 3), np.uint8),
        "observation/wrist_image": np.zeros((4, 4, 3), np.uint8),
        "observation/state": np.zeros(8),
        "prompt": "go",
    }

    def ask_on_and_on(stuck: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed, OSError):
            while True:
                stuck.send(pack(seen))

    limits = Limits(sessions=1, taking_seconds=0.3)
    with serving(policy, "openpi:0/libero", limits=limits) as (port,):
        stuck = connect(f"ws://127.0.0.1:{port}", compression=None, max_queue=1, close_timeout=0.1)
        with stuck as connection:
            threading.Thread(target=ask_on_and_on, args=(connection,), daemon=True).start()
            deadline = time.monotonic() + 60
            while True:
                try:
                    with openpi_client(port):
                        break
                except ConnectionClosed:
                    assert time.monotonic() < deadline, "it still has its place"
                    time.sleep(0.1)


def test_clients_of_groot_that_have_gone_leave_their_place_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_clients, "_GONE_SECONDS", 0.0)
    with serving(Telling(), "gr00t:0/libero", max_sessions=2) as (port,):
        for _ in range(5):
            with asking(port) as ask:
                assert ask("reset", {"options": {}}) == {}


@pytest.mark.parametrize("bomb", ["lists", "maps", "pictures", "npy"])
def test_a_small_message_does_not_become_a_large_one(bomb: str) -> None:
    if bomb == "lists":
        data = msgpack.packb([[[] for _ in range(1000)] for _ in range(1000)])
    elif bomb == "maps":
        data = msgpack.packb([{"a": {}} for _ in range(4000)])
    elif bomb == "pictures":
        file = io.BytesIO()
        Image.new("1", (4096, 4096)).save(file, "PNG")
        picture = {"__image__": True, "format": "png", "data": file.getvalue(), "shape": [4096, 4096]}
        data = msgpack.packb([picture] * 20)
    else:
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
        data = msgpack.packb({"__ndarray_class__": True, "as_npy": file.getvalue()})
    assert len(data) < 2 << 20
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage):
            (VLA_EVAL if bomb == "pictures" else GROOT).read(data)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("where", ["a number", "a state"])
def test_texts_in_a_list_do_not_all_become_as_long_as_the_longest(where: str) -> None:
    texts = ["a" * 20_000] + [""] * 4000
    with serving(Telling(), "openpi:0/libero") as (port,), openpi_client(port) as connection:
        number = {b"__npgeneric__": True, b"data": texts, b"dtype": "<f4"}
        tracemalloc.start()
        connection.send(msgpack.packb({"observation/state": number if where == "a number" else texts, "prompt": "go"}))
        try:
            assert ("a number that is none" if where == "a number" else "not offered") in str(connection.recv(20))
            assert tracemalloc.get_traced_memory()[1] < 50 << 20
        finally:
            tracemalloc.stop()


def test_lists_of_numbers_are_arrays_and_others_are_not() -> None:
    assert np.array_equal(numbers_of([[1, 2.5], [True, np.float32(3)]]), [[1, 2.5], [1, 3]])
    assert np.array_equal(numbers_of(2), 2)
    for other in ([1, "2"], [[1], [1, 2]], "1", None, {"a": 1}, np.array(["a"])):
        assert numbers_of(other) is None


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_read_as_numpy_reads_them(order: Any) -> None:
    array = np.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), order=order)
    file = io.BytesIO()
    np.save(file, array)
    read = GROOT.read(msgpack.packb({"__ndarray_class__": True, "as_npy": file.getvalue()}))
    assert np.array_equal(read, array)


def test_a_server_ends_although_a_foreign_client_waits_for_an_answer_that_never_comes() -> None:
    policy = Telling()
    never = threading.Event()
    policy.tell = lambda *_: never.wait(30)  # type: ignore[assignment,method-assign]
    seen = {"observation.state": np.zeros(8, np.float32), "prompt": "go"}
    policy.spec = replace(policy.spec, observations={"observation.state": TensorSpec("float32", (8,))})
    with serving(policy, "openpi:0") as (port,), openpi_client(port) as connection:
        connection.send(pack(seen))
        time.sleep(0.3)
        # leaving ends the server, within the seconds that `serving` allows
    never.set()
