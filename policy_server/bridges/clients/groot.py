"""GR00T's wire: `--policy gr00t://HOST:5555`. ZeroMQ, msgpack, one answer for each request.

Of its endpoints, `kill` is never sent.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

from sparring.policy_server.bridges.arrays import GROOT, BadMessage
from sparring.policy_server.bridges.clients.zeromq import ZeroMqConnection
from sparring.policy_server.bridges.layout import BridgeLayout
from sparring.policy_server.bridges.peer import Peer, said_plainly
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos.errors import SparringError
from sparring.protos.tensor import Array


class GrootPeer(Peer):
    """A connection to a GR00T server; raises PeerUnreachable if none answers."""

    default_port = 5555

    @classmethod
    def not_met(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any], given: Set[str]) -> Iterator[str]:
        shown = {*layout.images, *layout.states, layout.instruction}
        for kind in ("video", "state", "language"):
            about = _modality(said, kind)
            keys = _texts(about.get("modality_keys"))
            wanted = keys if kind == "language" else [f"{kind}.{name}" for name in keys]
            if layout.instruction == "annotation.human.coarse_action":  # which it takes for "task", too
                wanted = [name for name in wanted if name != "task"]
            if missing := [name for name in wanted if name not in shown]:
                yield f"looks at {', '.join(missing)}, by its modality config, and is not shown that"
            moments = about.get("delta_indices")
            if isinstance(moments, list) and len(moments) > 1:
                yield f"looks at {len(moments)} moments of {kind} at once, by its modality config, and is shown one"
        answered = [f"action.{name}" for name in _texts(_modality(said, "action").get("modality_keys"))]
        if answered and (missing := [name for name in layout.actions if name not in answered]):
            yield f"answers without {', '.join(missing)}, by its modality config, which an action here is made of"

    def _connect(self) -> None:
        try:
            self._connection = ZeroMqConnection(self._endpoint.host, self._endpoint.port, self._timeout)
        except (OSError, BadMessage) as error:
            raise self._unreachable(error) from error
        try:
            self._call("ping")
            said = self._call("get_modality_config")
            self._metadata: Mapping[str, Any] = said_plainly(said)
        except SparringError as error:
            self.close()
            raise self._unreachable(error) from error

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    def start(self, task: Instruction, seed: int) -> None:
        self._call("reset", {"options": {}})

    def ask(self, observation: Observation) -> Array:
        # A batch of one, of one moment: what else has axes for it.
        shown: dict[str, Any] = {name: array[None, None] for name, array in self._layout.shown(observation).items()}
        shown |= {name: [said] for name, said in self._layout.sentence(str(observation.task)).items()}
        answer = self._call("get_action", {"observation": shown, "options": {}})
        found = answer[0] if isinstance(answer, list) and answer else answer
        if not isinstance(found, dict):
            raise self._nonsense(f"{type(found).__name__}, where actions were due")
        missing = [name for name in self._layout.actions if name not in found]
        if missing:
            raise self._nonsense(f"actions without {', '.join(missing)}; it has {', '.join(map(str, found))}")
        try:
            parts = [np.asarray(found[name], np.float32) for name in self._layout.actions]
            return self._played(np.concatenate([part.reshape(*part.shape[1:2], -1) for part in parts], axis=1))
        except (ValueError, TypeError) as error:
            raise self._nonsense(f"parts of actions that do not fit together ({error})") from error

    def _call(self, name: str, data: Any = None) -> Any:
        request = {"endpoint": name, **({} if data is None else {"data": data})}
        if self._key:
            request["api_token"] = self._key
        try:
            answer = GROOT.read(self._connection.ask(GROOT.write(request)))
        except TimeoutError as error:
            raise self._late() from error
        except OSError as error:
            raise self._gone(error) from error
        except BadMessage as error:
            raise self._nonsense(error.sentence.removesuffix(".")) from error
        if isinstance(answer, dict) and "error" in answer:
            raise self._failed(str(answer["error"]))
        return answer

    def close(self) -> None:
        self._connection.close()


def _modality(said: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Returns what a server says of a kind of its inputs or outputs: a map, or JSON of one, in an envelope or bare."""
    found = said.get(kind)
    if isinstance(found, dict) and "as_json" in found:
        found = found["as_json"]
    if isinstance(found, str):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(found)
    return found if isinstance(found, dict) else {}


def _texts(found: Any) -> list[str]:
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
