"""Servers of other people's wires, written from what is known of them and from nothing of ours.

Each answers with `telling.actions_for`, unless it is told to misbehave.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgpack
import numpy as np
import zmq
from bridges.telling import SIZE, actions_for
from websockets.sync.server import ServerConnection, serve

Answering = Callable[[ServerConnection, Any], None]


def openpi_arrays(found: Any) -> Any:
    if b"__ndarray__" in found:
        return np.frombuffer(found[b"data"], found[b"dtype"]).reshape(found[b"shape"])
    return found


def openpi_packed(value: Any) -> Any:
    assert isinstance(value, np.ndarray), value
    return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}


def pack(message: Any) -> bytes:
    return msgpack.packb(message, default=openpi_packed)


class VlaEvalServer:
    """Speaks vla-eval's wire."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.started: list[dict[str, Any]] = []
        self.refuses_to_start = False
        self.answers_earlier = False
        self.raises = False
        self.says: dict[str, Any] = {}
        self.fault: Answering | None = None

    def handle(self, connection: ServerConnection) -> None:
        def send(kind: str, payload: Any, number: int) -> None:
            message = {"type": kind, "payload": payload, "seq": number, "timestamp": 0.0}
            connection.send(msgpack.packb(message, default=self.packed))

        for data in connection:
            message = msgpack.unpackb(data, object_hook=self.arrays)
            number, payload = message["seq"], message["payload"]
            assert isinstance(message["timestamp"], float)
            if message["type"] == "hello":
                assert payload["protocol_version"] == 1
                send("hello", {"model_server": "Telling", "capabilities": {}, **self.says}, number)
            elif message["type"] == "episode_start":
                self.started.append(payload)
                if self.refuses_to_start:
                    send("error", {"error": "episode_start_failed: ValueError: no such task"}, number)
            elif message["type"] == "observation" and self.fault is not None:
                self.fault(connection, payload)
            elif message["type"] == "observation" and self.raises:
                send("error", {"error": "observation_failed: RuntimeError: out of memory"}, number)
            elif message["type"] == "observation":
                self.seen.append(payload)
                if self.answers_earlier:
                    send("action", {"actions": np.zeros(SIZE, np.float32)}, number - 1)
                send("action", {"actions": self.tell(payload)}, number)

    def tell(self, payload: dict[str, Any]) -> np.ndarray:
        flat = {**payload, **{f"images/{name}": image for name, image in payload["images"].items()}}
        del flat["images"]
        return actions_for(flat, size=SIZE)[0]

    @staticmethod
    def arrays(found: Any) -> Any:
        return np.frombuffer(found["data"], found["dtype"]).reshape(found["shape"]) if "__ndarray__" in found else found

    @staticmethod
    def packed(value: Any) -> Any:
        return {"__ndarray__": True, "data": value.tobytes(), "dtype": value.dtype.str, "shape": list(value.shape)}


class GrootServer:
    """Speaks GR00T's wire with pyzmq and msgpack-numpy's format, in a thread of its own."""

    ACTIONS = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.called: list[str] = []
        self.token = ""
        self.horizon = 16
        self.modalities: dict[str, Any] = {"video": {"modality_keys": ["image", "wrist_image"], "delta_indices": [0]}}
        self.error = ""
        self.stalls = 0.0
        self.dies = False
        self.garbage = b""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REP)
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> GrootServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._socket.close(linger=0)
        self._context.term()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._socket.poll(50):
                request = msgpack.unpackb(self._socket.recv(), object_hook=self.arrays, strict_map_key=False)
                answer = msgpack.packb(self._answer(request), default=self.packed)
                asked = request["endpoint"] == "get_action"
                if asked and self.dies:
                    self._socket.close(linger=0)
                    return
                self._stop.wait(self.stalls if asked else 0)
                self._socket.send(self.garbage if asked and self.garbage else answer)

    def _answer(self, request: dict[str, Any]) -> Any:
        self.called.append(request["endpoint"])
        if self.token and request.get("api_token") != self.token:
            return {"error": "Unauthorized: Invalid API token"}
        if request["endpoint"] == "ping":
            return {"status": "ok", "message": "Server is running"}
        if request["endpoint"] == "get_modality_config":
            return self.modalities
        if request["endpoint"] == "reset":
            return {}
        assert request["endpoint"] == "get_action", request["endpoint"]
        if self.error:
            return {"error": self.error}
        seen = request["data"]["observation"]
        self.seen.append(seen)
        whole = actions_for(seen, size=SIZE, horizon=self.horizon)
        return [{f"action.{name}": whole[None, :, i : i + 1] for i, name in enumerate(self.ACTIONS)}, {}]

    @staticmethod
    def arrays(found: Any) -> Any:
        if b"nd" in found:
            return np.frombuffer(found[b"data"], found[b"type"]).reshape(found[b"shape"])
        return found

    @staticmethod
    def packed(value: Any) -> Any:
        return {b"nd": True, b"type": value.dtype.str, b"kind": b"", b"shape": value.shape, b"data": value.tobytes()}


class ActServer:
    """Has POST /act, in X-VLA's form or in OpenVLA's; ends connections on which nothing comes for `idle` seconds."""

    def __init__(self, form: str, idle: float | None = None) -> None:
        self.seen: list[dict[str, Any]] = []
        self.status = 200
        self.size = SIZE
        self.stalls = 0.0
        self.content = b""
        self.leaves = False
        self.drips = False
        self.breaks_off = False
        self.one_by_one = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = idle

            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                seen = {name: outer.read(value, form) for name, value in sent.items()}
                outer.seen.append({**seen, "path": self.path})
                actions = actions_for(seen, size=outer.size)
                answer: Any = {"action": actions.tolist()} if form == "xvla" else outer.written(actions[0])
                if outer.one_by_one:
                    answer = [outer.written(action) for action in actions]
                if outer.status != 200:
                    answer = {"error": "language_instruction is missing"}
                content = outer.content or json.dumps(answer).encode()
                time.sleep(outer.stalls)
                if outer.leaves:
                    self.close_connection = True
                    return
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if outer.breaks_off:
                    self.wfile.write(content[:9])
                    self.close_connection = True
                    return
                pieces = [content[i : i + 1] for i in range(len(content))] if outer.drips else [content]
                with contextlib.suppress(OSError):  # who has waited long enough has gone
                    for piece in pieces:
                        self.wfile.write(piece)
                        time.sleep(0.2 if outer.drips else 0)
                    return
                self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> ActServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    @staticmethod
    def read(value: Any, form: str) -> Any:
        if form == "xvla" and isinstance(value, str) and value.startswith("{"):
            value = json.loads(value)
        if isinstance(value, dict):
            return np.frombuffer(base64.b64decode(value["__numpy__"]), value["dtype"]).reshape(value["shape"])
        return value

    @staticmethod
    def written(array: np.ndarray) -> Any:
        return {
            "__numpy__": base64.b64encode(array.tobytes()).decode(),
            "dtype": array.dtype.str,
            "shape": list(array.shape),
        }


class OpenpiServer:
    """Speaks openpi's wire; `answer` may be replaced by what misbehaves."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.connections = 0
        self.metadata: Any = {"model": "telling"}
        self.answer: Answering = self.tell
        self.horizon = 7

    def tell(self, connection: ServerConnection, seen: dict[str, Any]) -> None:
        connection.send(pack({"actions": actions_for(seen, size=SIZE, horizon=self.horizon)}))

    def handle(self, connection: ServerConnection) -> None:
        self.connections += 1
        connection.send(pack(self.metadata))
        for message in connection:
            seen = msgpack.unpackb(message, object_hook=openpi_arrays, strict_map_key=False)
            self.seen.append(seen)
            self.answer(connection, seen)


@contextmanager
def listening(handle: Callable[[ServerConnection], None], port: int = 0) -> Iterator[int]:
    """A web socket server in a thread; its port."""
    with serve(handle, "127.0.0.1", port, compression=None, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join(10)


def says_a_traceback(connection: ServerConnection, seen: Any) -> None:
    connection.send(
        'Traceback (most recent call last):\n  File "serve.py", line 1\nRuntimeError: out of memory on cuda:0'
    )
    connection.close(1011)


def goes_away(connection: ServerConnection, seen: Any) -> None:
    connection.close(1011)


def says_nothing(connection: ServerConnection, seen: Any) -> None:
    time.sleep(3)


def says_garbage(connection: ServerConnection, seen: Any) -> None:
    connection.send(b"\xc1 this is no msgpack")


def says_no_actions(connection: ServerConnection, seen: Any) -> None:
    connection.send(pack({"logits": np.zeros(3, np.float32)}))


def says_objects(connection: ServerConnection, seen: Any) -> None:
    array = {b"__ndarray__": True, b"data": b"cos\nsystem\n", b"dtype": "|O", b"shape": [1]}
    connection.send(msgpack.packb({"actions": array}))


def says_too_few_bytes(connection: ServerConnection, seen: Any) -> None:
    array = {b"__ndarray__": True, b"data": b"\0" * 8, b"dtype": "<f4", b"shape": [1 << 30, 1 << 30]}
    connection.send(msgpack.packb({"actions": array}))


def says_nan(connection: ServerConnection, seen: Any) -> None:
    connection.send(pack({"actions": np.full((3, SIZE), np.nan, np.float32)}))


class RoboArenaServer:
    """Speaks openpi's wire as RoboArena does."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.resets = 0
        self.said: dict[str, Any] = {
            "image_resolution": [180, 320], "n_external_cameras": 1, "needs_wrist_camera": True,
            "needs_stereo_camera": False, "needs_session_id": True, "action_space": "cartesian_velocity",
        }  # fmt: skip

    def handle(self, connection: ServerConnection) -> None:
        connection.send(msgpack.packb(self.said))
        for message in connection:
            seen = msgpack.unpackb(message, object_hook=openpi_arrays, strict_map_key=False)
            endpoint = seen.pop("endpoint")
            if endpoint == "reset":
                self.resets += 1
                connection.send("reset successful")
                continue
            assert endpoint == "infer"
            self.seen.append(seen)
            connection.send(pack(actions_for(seen, size=SIZE, horizon=24)))


class VllmOmniServer:
    """Speaks openpi's wire as vLLM-Omni does: maps where RoboArena has text, and batches of one."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.resets = 0
        self.said: dict[str, Any] = {"image_resolution": [180, 320], "action_horizon": 16}
        self.reset_answer: Any = {"status": "reset successful"}
        self.parts: dict[str, slice] = {}
        self.fails_at = ""

    def handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.paths.append(connection.request.path)
        connection.send(msgpack.packb(self.said))
        for message in connection:
            seen = msgpack.unpackb(message, object_hook=openpi_arrays, strict_map_key=False)
            endpoint = seen.pop("endpoint", "infer")
            if endpoint == self.fails_at:
                connection.send(msgpack.packb({"type": "error", "message": "Internal inference error"}))
            elif endpoint == "reset":
                self.resets += 1
                connection.send(msgpack.packb(self.reset_answer))
            else:
                self.seen.append(seen)
                actions = actions_for(seen, size=SIZE, horizon=16)[None]
                parts = {name: actions[..., numbers] for name, numbers in self.parts.items()}
                connection.send(pack(parts or actions))


class StarVlaServer:
    """Speaks openpi's wire as starVLA does."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.fault = ""
        self.said: dict[str, Any] = {"env": "starvla_policy_server"}

    def handle(self, connection: ServerConnection) -> None:
        connection.send(msgpack.packb(self.said))
        for message in connection:
            request = msgpack.unpackb(message, object_hook=openpi_arrays, strict_map_key=False)
            assert request["type"] == "infer"
            self.seen.append(request["payload"])
            answer = {"status": "ok", "ok": True, "type": "inference_result", "request_id": request["request_id"]}
            if self.fault == "error":
                answer |= {"status": "error", "ok": False, "error": {"message": "unnorm_key franka is not known"}}
            elif self.fault == "earlier":
                answer["request_id"] = "another"
            connection.send(pack({**answer, "data": {"actions": self.tell(request["payload"])[None]}}))

    @staticmethod
    def tell(payload: dict[str, Any]) -> np.ndarray:
        (example,) = payload["examples"]
        flat = {f"image{number}": image for number, image in enumerate(example["image"])}
        return actions_for({**flat, "lang": example["lang"]}, size=SIZE, horizon=10)
