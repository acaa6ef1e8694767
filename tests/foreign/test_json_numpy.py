"""`/act` as its servers read and write it: with json-numpy 2.1.1, the codec of OpenVLA's and X-VLA's own servers.

The servers themselves are not on PyPI: what they do around the network is written here after their deploy scripts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Any

import json_numpy
import numpy as np
import pytest
from bridges.telling import OFFER, SIZE, actions_for, made_up

from sparring.policy_server.bridges.layout import scaled
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.spec import Offer, TensorSpec


def test_this_is_the_version() -> None:
    assert version("json-numpy") == "2.1.1"


class OpenVla:
    """As OpenVLA's `deploy.py`: json-numpy stands in for json, in questions and answers; what fails is "error"."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.whole_chunks = False
        self.fails = False

    def answer(self, body: bytes) -> str:
        payload = json.loads(body, object_hook=json_numpy.object_hook)
        if self.fails:
            return json.dumps("error")
        self.seen.append({"image": payload["image"], "instruction": payload["instruction"]})
        assert payload.get("unnorm_key") == "libero_goal"
        actions = self.tell(self.seen[-1])
        # OpenVLA-OFT's has a list of arrays, one for each action.
        return json.dumps(list(actions) if self.whole_chunks else actions[0], default=json_numpy.default)

    @staticmethod
    def tell(seen: dict[str, Any]) -> Any:
        return actions_for(seen, size=SIZE, horizon=4)


class Xvla:
    """As X-VLA's server: arrays are strings of json-numpy's JSON; the answer is lists."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def answer(self, body: bytes) -> str:
        payload = json.loads(body)
        seen = {name: json_numpy.loads(payload[name]) for name in ("image0", "image1")}
        seen["proprio"] = np.asarray(json_numpy.loads(payload["proprio"]))
        seen |= {"language_instruction": payload["language_instruction"], "domain_id": int(payload["domain_id"])}
        self.seen.append(seen)
        return json.dumps({"action": self.tell(seen).tolist()})

    @staticmethod
    def tell(seen: dict[str, Any]) -> Any:
        return actions_for(seen, size=20, horizon=30)


@contextmanager
def serving(answer: Callable[[bytes], str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = answer(self.rfile.read(int(self.headers["Content-Length"]))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/act"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


def opened(address: str, offer: Offer, **arguments: Any) -> Any:
    given = {"timeout": 20, **arguments}
    return LocalPolicy(lambda: load_policy(address, given), name=address).open(offer, benchmark="libero")


@pytest.mark.parametrize("whole_chunks", [False, True])
def test_a_server_of_openvla_is_a_policy_of_ours(whole_chunks: bool) -> None:
    server = OpenVla()
    server.whole_chunks = whole_chunks
    with serving(server.answer) as address:
        more = {"constants": {"unnorm_key": "libero_goal"}, "play": 3}
        session = opened(address, OFFER, form="openvla", **more)
        for episode in range(2):
            session.start(task="libero_goal/1", instruction=f"do {episode}", seed=episode)
            ours = made_up(episode)
            chunk = session.act({name: ours[name] for name in session.needs.named}, step=0)
            (seen,) = server.seen[-1:]
            image = scaled(ours["observation.images.image"], 224)
            assert (seen["image"].dtype, seen["instruction"]) == (np.uint8, f"do {episode}")
            assert np.array_equal(seen["image"], image)
            told = server.tell({"image": image, "instruction": f"do {episode}"})[: 3 if whole_chunks else 1]
            assert np.array_equal(chunk.actions[:, :-1], told[:, :-1])
            assert np.array_equal(chunk.actions[:, -1], -np.sign(2 * told[:, -1] - 1))
        server.fails = True
        with pytest.raises(PolicyFailed, match="error"):
            session.act({name: ours[name] for name in session.needs.named}, step=3)


def test_a_server_of_xvla_is_a_policy_of_ours() -> None:
    server = Xvla()
    ours = {
        **made_up(0),
        "robot0_eye_in_hand_image": made_up(1)["observation.images.image2"],
        "robot0_eef_mat": np.eye(3),
    }
    offered = {name: TensorSpec(array.dtype.name, array.shape) for name, array in ours.items()}
    with serving(server.answer) as address:
        session = opened(address, Offer(offered, (-7.0,) * 7, (7.0,) * 7, control="absolute"), form="xvla")
        session.start(instruction="go", seed=0)
        chunk = session.act({name: ours[name] for name in session.needs.named}, step=0)
    (seen,) = server.seen
    expected = {
        "image0": ours["observation.images.image"],
        "image1": ours["robot0_eye_in_hand_image"],
        "proprio": np.array([*ours["robot0_eef_pos"], 1, 0, 0, 0, 1, 0, *[0.0] * 11]),
        "language_instruction": "go",
        "domain_id": 3,
    }
    assert all(np.array_equal(seen[name], value) for name, value in expected.items())
    assert seen["proprio"].dtype == np.float64
    told = server.tell(expected)
    assert chunk.actions.shape == (30, 7)
    assert np.array_equal(chunk.actions[:, :3], told[:, :3])
    assert np.array_equal(chunk.actions[:, -1], np.where(told[:, 9] > 0.5, 1.0, -1.0))
