"""openpi's wire: `--policy openpi://HOST:8000`. A web socket, msgpack, no numbers that tell which answer is whose.

The server greets with what it is; then each observation has one answer. Nothing is said at an episode's beginning, so a
server that remembers something does so for its connection: each episode gets a new one. Others have written more around
it: `form=roboarena`, `form=starvla`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparring.policy_server.bridges.arrays import OPENPI, BadMessage
from sparring.policy_server.bridges.layout import fitted
from sparring.policy_server.bridges.peer import Peer, said_plainly
from sparring.policy_server.bridges.websocket import LOST, NOT_THERE, WebSocket
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos.tensor import Array


class OpenpiPeer(Peer):
    """A connection to a server of openpi's wire; raises PeerUnreachable if there is none."""

    default_port = 8000

    def _connect(self) -> None:
        try:
            self._socket = WebSocket(
                self._endpoint.websocket,
                timeout=self._timeout,
                headers={"Authorization": f"Api-Key {self._key}"} if self._key else None,
            )
        except NOT_THERE as error:
            raise self._unreachable(error) from error
        try:
            greeting = self._socket.receive(self._timeout)
            found = OPENPI.read(greeting) if isinstance(greeting, bytes) else None
        except (BadMessage, *NOT_THERE) as error:
            self._socket.close()
            raise self._unreachable(error) from error
        if not isinstance(found, dict):
            self._socket.close()
            raise self._unreachable(ValueError("it does not greet with what it is"))
        self._metadata: Mapping[str, Any] = said_plainly(found)

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    def start(self, task: Instruction, seed: int) -> None:
        pass

    def ask(self, observation: Observation) -> Array:
        question = {**self._layout.shown(observation), self._layout.instruction: str(observation.task)}
        return self._played(self._actions(self._answer({**question, **self._layout.constants})))

    def _answer(self, question: Mapping[str, Any]) -> bytes | str:
        """Returns what a question was answered with: the next message, for there are no numbers."""
        try:
            if self._socket.has_unasked():
                # From here on, no answer could be told from the one before.
                raise self._nonsense("a message that nobody had asked for")
            self._socket.send(OPENPI.write(question))
            return self._socket.receive(self._timeout)
        except TimeoutError as error:
            raise self._late() from error
        except LOST as error:
            raise self._gone(error) from error

    def _actions(self, answer: bytes | str) -> Any:
        found = self._read(answer)
        if isinstance(found, dict) and found.get("type") == "error":  # vLLM-Omni's way
            raise self._failed(str(found.get("message", "")))
        if isinstance(found, dict):
            if "actions" not in found and "action" not in found:
                raise self._nonsense(f"a map without actions: {sorted(map(str, found))}")
            return found.get("actions", found.get("action"))
        return found

    def _read(self, answer: bytes | str) -> Any:
        if isinstance(answer, str):
            raise self._failed(answer)
        try:
            return OPENPI.read(answer)
        except BadMessage as error:
            raise self._nonsense(error.sentence.removesuffix(".")) from error

    def close(self) -> None:
        self._socket.close()


class RoboArenaPeer(OpenpiPeer):
    """RoboArena's form: a word for an episode's beginning, a name for each session, and a server that says more."""

    def _connect(self) -> None:
        super()._connect()
        self._name = uuid.uuid4().hex

    def start(self, task: Instruction, seed: int) -> None:
        answer = self._answer({"endpoint": "reset"})
        if not isinstance(answer, str) or "success" not in answer:
            raise self._failed(answer) if isinstance(answer, str) else self._nonsense("bytes, where text was due")

    def ask(self, observation: Observation) -> Array:
        shown: dict[str, Any] = self._layout.shown(observation)
        sides = self.metadata.get("image_resolution")
        if isinstance(sides, list) and len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides):
            shown |= {name: fitted(shown[name], sides[0], sides[1]) for name in self._layout.images}
        if self.metadata.get("needs_session_id"):
            shown["session_id"] = self._name
        question = {**shown, self._layout.instruction: str(observation.task), "endpoint": "infer"}
        return self._played(self._actions(self._answer({**question, **self._layout.constants})))


class StarVlaPeer(OpenpiPeer):
    """starVLA's form: examples in an envelope with a number, so that answers can be told apart."""

    default_port = 10093

    def ask(self, observation: Observation) -> Array:
        shown = self._layout.shown(observation)
        example: dict[str, Any] = {name: shown[name] for name in self._layout.states}
        example["image"] = [shown[name] for name in self._layout.images]
        example[self._layout.instruction] = str(observation.task)
        number = uuid.uuid4().hex
        payload = {"examples": [example], **self._layout.constants}
        answer = self._read(self._answer({"type": "infer", "request_id": number, "payload": payload}))
        if not isinstance(answer, dict) or answer.get("request_id") != number:
            raise self._nonsense("what is no answer to the question that it was asked")
        if not answer.get("ok", False):
            error = answer.get("error")
            raise self._failed(str(error.get("message", error) if isinstance(error, dict) else error))
        data = answer.get("data")
        actions = data.get("actions") if isinstance(data, dict) else None
        if not isinstance(actions, np.ndarray) or actions.ndim != 3 or len(actions) != 1:
            raise self._nonsense("data without the actions of one example")
        return self._played(actions[0])
