"""Round trips per second through each bridge, both ways, against the foreign server itself: two images and a state.

A foreign server is asked by our bridge and by a foreign client, and our server by the same client: they take turns,
round after round. Servers are processes of their own and compute nothing: openpi's as its client package speaks,
vla-eval's own model server, one of pyzmq for GR00T, one of Python's http.server for /act in both forms, and LeRobot's
own policy server.

    python benchmarks/bridges.py [--rounds 5] [--seconds 1] [--wire NAME...]

In the environment of `make test-foreign`. LeRobot has its own, and a folder of tests lets it run on Python 3.11. All in
one run: `PYTHONPATH=src:tests/lerobot:.venvs/foreign/lib/python3.11/site-packages .venvs/lerobot-0.6/bin/python
benchmarks/bridges.py --wire openpi vla-eval gr00t openvla xvla lerobot-async`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Any, Final

import msgpack
import numpy as np
import zmq
from bridges_lerobot import lerobot_client, serve_lerobot
from common import child, conclude, show
from contenders import serve_as_openpi

from sparring.policy_server.bridges.endpoint import Endpoint
from sparring.policy_server.bridges.layout import STATE
from sparring.policy_server.bridges.peer import Peer
from sparring.policy_server.bridges.presets import preset
from sparring.policy_server.bridges.wires import SERVED, WIRES
from sparring.policy_server.policies.base import Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.protos.spec import Offer, spec_of

SIDE: Final = 256
SEEN: Final[dict[str, Any]] = {
    "observation.images.image": np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8),
    "observation.images.image2": np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8),
    "robot0_eef_pos": np.zeros(3),
    "robot0_eef_quat": np.array([0.0, 0.0, 0.0, 1.0]),
    "robot0_gripper_qpos": np.zeros(2),
    "robot0_eef_mat": np.eye(3),
}
SEEN["robot0_eye_in_hand_image"] = SEEN["observation.images.image2"]
CHUNK: Final = np.zeros((10, 7), np.float32)
POSES: Final = {"action": np.tile([0.0, 0, 0, 1, 0, 0, 0, 1, 0, 0], (10, 2)).tolist()}
Ask = Callable[[], Any]


def bridge(wire: str, address: str) -> Ask:
    """Our side of a bridge, as a session uses it."""
    from sparring.policy_server.bridges.clients.groot import GrootPeer
    from sparring.policy_server.bridges.clients.http_act import OpenVlaPeer, XvlaPeer
    from sparring.policy_server.bridges.clients.lerobot_async import LeRobotAsyncPeer
    from sparring.policy_server.bridges.clients.openpi import OpenpiPeer
    from sparring.policy_server.bridges.clients.vla_eval import VlaEvalPeer

    kinds: dict[str, type[Peer]] = {
        "openpi": OpenpiPeer,
        "vla-eval": VlaEvalPeer,
        "gr00t": GrootPeer,
        "openvla": OpenVlaPeer,
        "xvla": XvlaPeer,
        "lerobot-async": LeRobotAsyncPeer,
    }
    layout = preset(wire, "libero").changed({"side": 0})  # as the foreign client sends them: scaling is no part of it
    peer = kinds[wire](Endpoint.parse(f"{WIRES[wire].scheme}://{address}", port=0), layout, timeout=20)
    offer = Offer({name: spec_of(array) for name, array in SEEN.items()}, (-1.0,) * 7, (1.0,) * 7)
    task = Instruction("go", benchmark="libero", offer=offer)
    peer.start(task, 0)
    observation = Observation(SEEN, task)
    return lambda: peer.ask(observation)


def openpi_client(address: str) -> Ask:
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    host, _, port = address.rpartition(":")
    client = WebsocketClientPolicy(host, int(port))
    shown = {**preset("openpi", "libero").changed({"side": 0}).shown(SEEN), "prompt": "go"}
    return lambda: client.infer(shown)


def vla_eval_client(address: str) -> Ask:
    from vla_eval.connection import Connection

    loop = asyncio.new_event_loop()
    connection = Connection(f"ws://{address}", timeout=20)
    loop.run_until_complete(connection.connect())
    loop.run_until_complete(connection.start_episode({"task": {}}))
    shown = preset("vla-eval", "libero").shown(SEEN)
    question = {
        "images": {"agentview": shown["agentview"], "wrist": shown["wrist"]},
        "states": shown["states"],
        "task_description": "go",
    }
    return lambda: loop.run_until_complete(connection.act(question))


def groot_client(address: str) -> Ask:
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.connect(f"tcp://{address}")
    shown = {name: array[None, None] for name, array in preset("gr00t", "libero").shown(SEEN).items()}
    request = {"endpoint": "get_action", "data": {"observation": shown, "options": {}}}

    def ask() -> Any:
        socket.send(msgpack.packb(request, default=_packed))
        return msgpack.unpackb(socket.recv(), object_hook=_array, strict_map_key=False)

    return ask


def act_client(form: str, address: str) -> Ask:
    import requests

    layout = preset(form, "libero").changed({"side": 0})
    session, shown = requests.Session(), layout.shown(SEEN)
    written = (lambda array: json.dumps(_json_numpy(array))) if form == "xvla" else _json_numpy

    def ask() -> Any:
        arrays = {name: written(array) for name, array in shown.items()}
        question = {**arrays, **layout.sentence("go"), **layout.constants}
        return _told(session.post(f"http://{address}/act", json=question, timeout=20).json())

    return ask


def _told(answer: Any) -> Any:
    return answer["action"] if "action" in answer else _of_json_numpy(answer)


def _json_numpy(array: Any) -> dict[str, Any]:
    return {
        "__numpy__": base64.b64encode(array.tobytes()).decode(),
        "dtype": array.dtype.str,
        "shape": list(array.shape),
    }


def _of_json_numpy(found: Any) -> Any:
    return np.frombuffer(base64.b64decode(found["__numpy__"]), found["dtype"]).reshape(found["shape"])


class Acting(BaseHTTPRequestHandler):
    """Reads a question of either form, with its arrays, and answers as that form does: X-VLA's with poses."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        of_xvla = "proprio" in question
        for value in question.values():
            found = json.loads(value) if str(value).startswith("{") and of_xvla else value
            if isinstance(found, dict):
                _of_json_numpy(found)
        content = json.dumps(POSES if of_xvla else _json_numpy(CHUNK[0])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def _packed(value: Any) -> Any:
    return {b"nd": True, b"type": value.dtype.str, b"kind": b"", b"shape": value.shape, b"data": value.tobytes()}


def _array(found: Any) -> Any:
    return np.frombuffer(found[b"data"], found[b"type"]).reshape(found[b"shape"]) if b"nd" in found else found


FOREIGN: Final[dict[str, Callable[[str], Ask]]] = {
    "openpi": openpi_client,
    "vla-eval": vla_eval_client,
    "gr00t": groot_client,
    "openvla": partial(act_client, "openvla"),
    "xvla": partial(act_client, "xvla"),
    "lerobot-async": lambda address: lerobot_client(address, preset("lerobot-async", "libero").shown(SEEN)),
}
_BY_DEFAULT: Final = ("openpi", "vla-eval", "gr00t", "openvla", "xvla")


def serve(wire: str) -> None:
    """Serves a wire until it is ended; says on standard output where."""
    if wire == "openpi":
        asyncio.run(serve_as_openpi(lambda _: CHUNK))
    elif wire == "vla-eval":
        from vla_eval.api import serve_background
        from vla_eval.model_servers.predict import PredictModelServer

        class Nothing(PredictModelServer):  # type: ignore[misc]
            def predict(self, obs: Any, ctx: Any) -> Any:
                return {"actions": CHUNK[0]}

        with serve_background(Nothing()) as served:
            _say(f"{served.host}:{served.port}")
            time.sleep(3600)
    elif wire in ("openvla", "xvla"):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Acting)
        _say(f"127.0.0.1:{server.server_port}")
        server.serve_forever()
    elif wire == "lerobot-async":
        serve_lerobot(_say)
    else:
        socket = zmq.Context.instance().socket(zmq.REP)
        _say(f"127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
        names = [f"action.{name}" for name in ("x", "y", "z", "roll", "pitch", "yaw", "gripper")]
        actions = {name: CHUNK[None, :, i : i + 1] for i, name in enumerate(names)}
        while True:
            request = msgpack.unpackb(socket.recv(), object_hook=_array, strict_map_key=False)
            answer: Any = [actions, {}] if request["endpoint"] == "get_action" else {}
            socket.send(msgpack.packb(answer, default=_packed))


class Nothing(Policy):
    """Answers at once, whatever it sees: our server's policy."""

    instant = True

    def __init__(self, chunk: int, state: str) -> None:
        shown = ("observation.images.image", "observation.images.image2")
        self.spec = PolicySpec(
            {**{name: TensorSpec("uint8", (SIDE, SIDE, 3)) for name in shown}, state: TensorSpec("float32", (8,))},
            action_dim=7,
            chunk_length=chunk,
        )

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> list[Any]:
        return [CHUNK[: self.spec.chunk_length]] * len(observations)


async def serve_ours(wire: str) -> None:
    """Serves our policy to a wire's clients until it is ended; says where."""
    from sparring.policy_server.options import ServerOptions
    from sparring.policy_server.server import PolicyServer

    policy = Nothing(1 if wire == "vla-eval" else len(CHUNK), STATE)
    layout = "" if wire == "lerobot-async" else "/libero"
    server = PolicyServer(policy, ServerOptions(policy="nothing", also=(f"{wire}:0{layout}",)))
    await server.start(["127.0.0.1:0"])
    _say(f"127.0.0.1:{server.also[0].port}")
    await asyncio.Event().wait()


def _say(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


def _rate(ask: Ask, seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        ask()
        count += 1
    return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--wire", nargs="+", choices=tuple(FOREIGN), default=_BY_DEFAULT, help="which are measured")
    parser.add_argument("--serve", choices=tuple(FOREIGN), help="be one of the servers")
    parser.add_argument("--ours", action="store_true", help="and be our own")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve_ours(options.serve)) if options.ours else serve(options.serve)
        return
    rows, ratios = [], {}
    for wire in options.wire:
        with ExitStack() as stack:
            address = _started(stack, "--serve", wire)
            theirs = "foreign client, foreign server"
            asks = {theirs: FOREIGN[wire](address), "bridge": bridge(wire, address)}
            if wire in SERVED:
                asks["our server"] = FOREIGN[wire](_started(stack, "--serve", wire, "--ours"))
            rates: dict[str, list[float]] = {name: [] for name in asks}
            for _ in range(options.rounds):
                for name, ask in asks.items():
                    rates[name].append(_rate(ask, options.seconds))
        found = {name: median(each) for name, each in rates.items()}
        row = [wire, f"{found[theirs]:,.0f}"]
        for name in ("bridge", "our server"):
            if name in found:
                ratios[f"{wire}: {name}"] = ratio = found[name] / found[theirs]
                row += [f"{found[name]:,.0f}", f"{ratio:.2f}"]
        rows.append([*row, *["-"] * (6 - len(row))])
    columns = ["", "foreign client", "bridge", "ratio", "foreign client at our server", "ratio"]
    show("round trips per second (median over rounds)", columns, rows)
    conclude("bridges", target="at least half of the foreign pair's", met=min(ratios.values()) >= 0.5, ratios=ratios)


def _started(stack: ExitStack, *arguments: str) -> str:
    """Starts a server of ours or of theirs; returns its address."""
    server = stack.enter_context(child(__file__, *arguments))
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    if not address:
        raise SystemExit(f"the server of {arguments[1]} did not start; is it installed in this environment?")
    return address


if __name__ == "__main__":
    main()
