"""openpi's wire: `--policy openpi://HOST:8000`. A web socket, msgpack, no numbers that tell which answer is whose.

The server greets with what it is; then each observation has one answer. Nothing is said at an episode's beginning, so a
server that remembers something does so for its connection: each episode gets a new one. Others have written more around
it: `form=roboarena`, `form=starvla`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from sparring.policy_server.bridges.arrays import OPENPI, BadMessage
from sparring.policy_server.bridges.layout import BridgeLayout, fitted
from sparring.policy_server.bridges.peer import Peer, said_plainly
from sparring.policy_server.bridges.websocket import LOST, NOT_THERE, WebSocket
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos.advice import Hint, shortened
from sparring.protos.tensor import Array

_LONGEST_CHUNK: Final = 1000
"""Actions that a server may say it answers with."""
_VLLM_OMNI: Final = "/realtime/robot/openpi"
"""The end of the path of its servers, which keep what they remember by the session's name, asked for or not."""
_SPACES: Final[Mapping[str, str]] = {"libero": "cartesian_velocity"}
"""What RoboArena calls actions as a benchmark takes them."""
_LONGEST_NAMES: Final = 100


class OpenpiPeer(Peer):
    """A connection to a server of openpi's wire; raises PeerUnreachable if there is none."""

    default_port = 8000
    has_nested_maps: ClassVar[bool] = True

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
        shown = self._layout.folded(self._layout.shown(observation))
        question = {**shown, **self._layout.sentence(str(observation.task)), **self._layout.constants}
        return self._played(self._actions(self._answer(question)))

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
        if isinstance(found, dict) and self._layout.actions:
            return self._joined(found)
        if isinstance(found, dict):
            if "actions" not in found and "action" not in found:
                raise self._nonsense(
                    f"a map without actions: {sorted(map(str, found))}. If these are parts of one, the policy's "
                    "argument `actions` names them in their order"
                )
            found = found.get("actions", found.get("action"))
        return _one_chunk(found)

    def _joined(self, found: Mapping[Any, Any]) -> Array:
        """Returns an action's parts, each of which has an array of its own, in the layout's order."""
        if missing := [name for name in self._layout.actions if name not in found]:
            raise self._nonsense(f"actions without {', '.join(missing)}; it has {', '.join(map(str, found))}")
        try:
            return np.concatenate([np.asarray(_one_chunk(found[name])) for name in self._layout.actions], axis=-1)
        except (ValueError, TypeError) as error:
            raise self._nonsense(f"parts of actions that do not fit together ({error})") from error

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

    says_what_it_wants: ClassVar[bool] = True

    @classmethod
    def as_asked(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any]) -> BridgeLayout:
        wrist, others = said.get("needs_wrist_camera") is not False, said.get("n_external_cameras") != 0
        images = {name: ours for name, ours in layout.images.items() if (wrist if _is_wrists(name) else others)}
        return replace(layout, images=images)

    @classmethod
    def not_met(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any], given: Set[str]) -> Iterator[str]:
        wanted, shown = said.get("n_external_cameras"), [name for name in layout.images if not _is_wrists(name)]
        if isinstance(wanted, int) and wanted > len(shown):
            yield f"looks at {wanted} cameras beside the wrist's, and is shown {len(shown)}"
        if said.get("needs_stereo_camera") is True:
            yield "looks at both images of stereo cameras, and is shown one"
        space = said.get("action_space")
        if isinstance(space, str) and benchmark in _SPACES and space != _SPACES[benchmark]:
            yield (
                f"says that its actions are {_in_short(space)}, and {benchmark} takes what RoboArena calls "
                f"{_SPACES[benchmark]}: with others every episode fails, or ends in an error"
            )
        parts = said.get("action_keys")
        if isinstance(parts, list) and parts and not layout.actions:
            yield (
                f"answers with {_in_short(', '.join(map(str, parts)))}, each by itself: the policy's argument "
                "`actions` names what an action is made of, in its order"
            )

    def _connect(self) -> None:
        super()._connect()
        self._name = uuid.uuid4().hex
        self._is_named = bool(self.metadata.get("needs_session_id")) or self._endpoint.path.endswith(_VLLM_OMNI)

    def start(self, task: Instruction, seed: int) -> None:
        answer = self._answer({"endpoint": "reset"})
        # RoboArena's servers say it as text, and by text what went wrong; vLLM-Omni's in a map.
        found = answer if isinstance(answer, str) else self._read(answer)
        if isinstance(found, dict):
            found = found.get("message", "") if found.get("type") == "error" else found.get("status")
        if not isinstance(found, str):
            raise self._nonsense("something else than what became of its reset")
        if "success" not in found:
            raise self._failed(found)

    def ask(self, observation: Observation) -> Array:
        shown: dict[str, Any] = replace(self._layout, channels="last").shown(observation)
        sides = self.metadata.get("image_resolution")
        if isinstance(sides, list) and len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides):
            shown |= {name: fitted(shown[name], sides[0], sides[1]) for name in self._layout.images}
        shown |= {name: self._layout.placed(shown[name]) for name in self._layout.images}
        if self._is_named:
            shown["session_id"] = self._name
        question = {**self._layout.folded(shown), **self._layout.sentence(str(observation.task)), "endpoint": "infer"}
        return self._played(self._actions(self._answer({**question, **self._layout.constants})))


class StarVlaPeer(OpenpiPeer):
    """starVLA's form: examples in an envelope with a number, so that answers can be told apart."""

    default_port = 10093
    has_nested_maps: ClassVar[bool] = False
    says_what_it_wants: ClassVar[bool] = True

    @classmethod
    def as_asked(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any]) -> BridgeLayout:
        chunk = said.get("action_chunk_size")
        # Its own clients play all of it before they look again.
        return replace(layout, play=chunk) if type(chunk) is int and 1 <= chunk <= _LONGEST_CHUNK else layout

    @classmethod
    def not_met(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any], given: Set[str]) -> Iterator[str]:
        known, chosen = said.get("available_unnorm_keys"), layout.constants.get("unnorm_key")
        if not isinstance(known, list) or not known:
            return
        names = _in_short(", ".join(map(str, known)))
        if chosen is None and said.get("default_unnorm_key") is None and len(known) > 1:
            yield (
                f"has the statistics of several data sets ({names}), and is not told whose to use: give "
                f"{Hint('policy_arg', 'constants', {'unnorm_key': str(known[0])})}, or another of them"
            )
        if chosen is not None and chosen not in known:
            yield f"has no statistics of {chosen!r}, which `constants` names, but of {names}"

    def ask(self, observation: Observation) -> Array:
        shown = self._layout.shown(observation)
        example: dict[str, Any] = {name: shown[name] for name in self._layout.states}
        example["image"] = [shown[name] for name in self._layout.images]
        example |= self._layout.sentence(str(observation.task))
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


def _is_wrists(image: str) -> bool:
    return "wrist" in image


def _one_chunk(found: Any) -> Any:
    """Returns the one chunk of a batch of one; anything else as it is."""
    return found[0] if isinstance(found, np.ndarray) and found.ndim == 3 and len(found) == 1 else found


def _in_short(said: str) -> str:
    return said if len(said) <= _LONGEST_NAMES else f"{shortened(said, _LONGEST_NAMES)} ..."
