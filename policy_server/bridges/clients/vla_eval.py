"""vla-eval's wire: `--policy vla-eval://HOST:8000`. A web socket, msgpack, a number for each question.

The start of an episode is not answered, unless it fails; so that answer may come before the first action's.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Iterator, Mapping, Set
from typing import Any, ClassVar, Final

from sparring.policy_server.bridges import vla_eval_asks
from sparring.policy_server.bridges.arrays import VLA_EVAL, BadMessage
from sparring.policy_server.bridges.layout import BridgeLayout
from sparring.policy_server.bridges.peer import Peer, said_plainly
from sparring.policy_server.bridges.websocket import LOST, NOT_THERE, WebSocket
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos.errors import SparringError
from sparring.protos.tensor import Array

WIRE_VERSION: Final = 1


class VlaEvalPeer(Peer):
    """A connection to a model server of vla-eval; raises PeerUnreachable if there is none."""

    default_port = 8000
    says_what_it_wants: ClassVar[bool] = True

    @classmethod
    def as_asked(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any]) -> BridgeLayout:
        return vla_eval_asks.as_asked(layout, benchmark, said)

    @classmethod
    def not_met(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any], given: Set[str]) -> Iterator[str]:
        return vla_eval_asks.not_met(benchmark, said, given)

    def _connect(self) -> None:
        self._numbers = itertools.count(1)
        self._started = 0
        try:
            # The wire has no word for a secret; what stands before a host in an address comes as this header.
            secret = base64.b64encode(f":{self._key}".encode()).decode()
            headers = {"Authorization": f"Basic {secret}"} if self._key else None
            self._socket = WebSocket(self._endpoint.websocket, timeout=self._timeout, headers=headers)
        except NOT_THERE as error:
            raise self._unreachable(error) from error
        try:
            hello = {"harness_version": "sparring", "protocol_version": WIRE_VERSION}
            greeting = self._answer(self._send("hello", hello), "hello")
            self._metadata: Mapping[str, Any] = said_plainly(greeting)
        except (SparringError, *NOT_THERE) as error:
            self._socket.close()
            raise self._unreachable(error) from error

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    def start(self, task: Instruction, seed: int) -> None:
        about = {"name": str(task), "suite": task.benchmark, "task": task.name, "episode_idx": task.episode}
        try:
            self._started = self._send("episode_start", {"task": about, "seed": seed})
        except LOST as error:
            raise self._gone(error) from error

    def ask(self, observation: Observation) -> Array:
        shown = self._layout.shown(observation)
        question: dict[str, Any] = {name: shown[name] for name in self._layout.states}
        question["images"] = {name: shown[name] for name in self._layout.images}
        question |= self._layout.sentence(str(observation.task))
        try:
            answer = self._answer(self._send("observation", question), "action")
        except TimeoutError as error:
            raise self._late() from error
        except LOST as error:
            raise self._gone(error) from error
        found = answer.get("actions", answer.get("action"))
        if found is None:
            raise self._nonsense(f"a map without actions: {sorted(map(str, answer))}")
        return self._played(found)

    def _send(self, kind: str, payload: Mapping[str, Any]) -> int:
        number = next(self._numbers)
        message = {"type": kind, "payload": payload, "seq": number, "timestamp": time.time()}
        self._socket.send(VLA_EVAL.write(message))
        return number

    def _answer(self, number: int, kind: str) -> dict[str, Any]:
        """Returns what a question was answered with; answers to earlier ones are not taken for it."""
        deadline = time.monotonic() + self._timeout
        while True:
            received = self._socket.receive(max(0.0, deadline - time.monotonic()))
            try:
                message = VLA_EVAL.read(received) if isinstance(received, bytes) else None
            except BadMessage as error:
                raise self._nonsense(error.sentence.removesuffix(".")) from error
            if not isinstance(message, dict) or not isinstance(message.get("payload"), dict):
                raise self._nonsense("what is no message of this wire")
            if message.get("type") == "error" and message.get("seq") in (number, self._started):
                raise self._said(message["payload"])
            if message.get("seq") == number:
                if message.get("type") != kind:
                    raise self._nonsense(f"a message of the type {message.get('type')!r}, where {kind!r} was due")
                payload: dict[str, Any] = message["payload"]
                return payload

    def _said(self, payload: Mapping[str, Any]) -> PolicyFailed:
        return self._failed(str(payload.get("error") or payload.get("message") or payload))

    def close(self) -> None:
        self._socket.close()
