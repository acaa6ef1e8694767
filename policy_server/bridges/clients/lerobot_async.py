"""LeRobot's policy server: `--policy lerobot-async://HOST:8080`. gRPC whose messages are pickles.

The server loads the checkpoint that its client names, and knows one client at a time. It drops observations that look
like the last one unless they say that they must be answered: ours do.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import grpc
import numpy as np

from sparring.policy_server.bridges import lerobot_async as wire
from sparring.policy_server.bridges.arrays import MOST_BYTES, BadMessage
from sparring.policy_server.bridges.peer import Peer
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.policy_server.bridges.pickles.writing import pickled
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.tensor import Array

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # a policy server is on the own network
)
_LONGEST_ACTION: Final = 1024
"""Numbers of an action whose rotation is another than the simulator's, so that the simulator does not say how many."""


class LeRobotAsyncPeer(Peer):
    """A connection to LeRobot's policy server; raises PeerUnreachable if there is none."""

    default_port = 8080
    most_clients: ClassVar[int | None] = 1
    keeps_connection: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {
        "checkpoint": "",
        "policy_type": "",
        "device": "cpu",
        "load_timeout": 600.0,
        "unpickle": False,
    }

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        super().check(options)
        if not options.get("unpickle"):
            raise UsageError(
                "LeRobot's asynchronous wire consists of pickles, which can be made to run code. Sparring reads "
                "them without Python's unpickler, by a list of the few classes that the wire has, and calls "
                f"nothing that they name; to let it do so, give {Hint('policy_arg', 'unpickle', True)}."
            )
        for name, example in (("checkpoint", "outputs/train/pretrained_model"), ("policy_type", "act")):
            if not options.get(name):
                raise UsageError(
                    f"LeRobot's policy server has no policy before a client names one: give "
                    f"{Hint('policy_arg', name, example)}, as the server is to load it."
                )

    def _connect(self) -> None:
        self._numbers = itertools.count()
        self._instructed: dict[str, Any] | None = None
        target = self._endpoint.netloc
        self._channel = (
            grpc.secure_channel(target, grpc.ssl_channel_credentials(), options=_OPTIONS)
            if self._endpoint.encrypted
            else grpc.insecure_channel(target, options=_OPTIONS)
        )
        try:
            # Also tells whether it is such a server; whatever it has kept of another client is gone with that.
            self._call(wire.READY, wire.NOTHING)
        except SparringError as error:
            self.close()
            raise self._unreachable(error) from error

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {}

    def start(self, task: Instruction, seed: int) -> None:
        self._call(wire.READY, wire.NOTHING)
        shown = self._layout.shown(_blank(task, self._layout.spec.named))
        features = self._features(shown)
        if features != self._instructed:
            instructions = Made(
                wire.POLICY,
                {
                    "policy_type": self._options["policy_type"],
                    "pretrained_name_or_path": self._options["checkpoint"],
                    "lerobot_features": features,
                    "actions_per_chunk": self._layout.play,
                    "device": self._options["device"],
                    "rename_map": {},
                },
            )
            self._call(wire.INSTRUCTIONS, wire.carrying(pickled(instructions)), seconds=self._options["load_timeout"])
            self._instructed = features

    def _features(self, shown: Mapping[str, Array]) -> dict[str, Any]:
        """Returns what the server makes its policy's observations of: a state of named numbers, and images."""
        states = {
            name: {"dtype": "float32", "shape": shown[name].shape, "names": _names(name, shown[name])}
            for name in self._layout.states
        }
        axes = ["height", "width", "channels"]
        images = {name: {"dtype": "image", "shape": shown[name].shape, "names": axes} for name in self._layout.images}
        return {**states, **images}

    def ask(self, observation: Observation) -> Array:
        shown = self._layout.shown(observation)
        raw: dict[str, Any] = {
            number: float(value)
            for name in self._layout.states
            for number, value in zip(_names(name, shown[name]), shown[name], strict=True)
        }
        raw |= {name.removeprefix(wire.IMAGES): shown[name] for name in self._layout.images}
        raw |= self._layout.sentence(str(observation.task))
        number, moment = next(self._numbers), time.time()
        question = {"timestamp": moment, "timestep": number, "observation": raw, "must_go": True}
        deadline = time.monotonic() + self._timeout
        self._send(pickled(Made(wire.OBSERVATION, question)))
        while True:
            answer = self._call(wire.ACTIONS, wire.NOTHING, seconds=max(0.0, deadline - time.monotonic()))
            found = self._actions(answer)
            # Each action says which observation it is for: one that was asked before, by anybody, is not played.
            if (found[0].get("timestep"), found[0].get("timestamp")) == (number, moment):
                return self._played(self._chunk(found, number, observation.task.offer.action_dim))

    def _actions(self, answer: bytes) -> list[Mapping[str, Any]]:
        try:
            data = wire.carried(answer)
            found = wire.READER.read(data) if data else []
            if not isinstance(found, list):
                raise BadMessage(f"{type(found).__name__}, where actions were due.")
            if not found:
                # It had the observation before it was asked for actions, so it is not waiting for one.
                raise self._failed(
                    "it gave no actions. Its policy may have raised (its own log says what), or another client has "
                    "taken them: it serves one at a time"
                )
            actions = [wire.made(action, wire.ACTION) for action in found]
            for name in ("timestep", "timestamp"):
                if not all(isinstance(action.get(name), (int, float)) for action in actions):
                    raise BadMessage(f"actions with a {name} that is no number.")
            return actions
        except BadMessage as error:
            raise self._nonsense(error.sentence.removesuffix(".")) from error

    def _chunk(self, found: list[Mapping[str, Any]], number: int, size: int) -> Array:
        # Before anything is put together: a short message may name one large array thousands of times.
        if len(found) > self._layout.play:
            raise self._nonsense(f"{len(found)} actions, where at most {self._layout.play} were asked for")
        if [action["timestep"] for action in found] != list(range(number, number + len(found))):
            raise self._nonsense("actions that do not follow each other")
        actions: list[Any] = [action.get("action") for action in found]
        for action in actions:
            if not isinstance(action, (np.ndarray, np.number, int, float)):
                raise self._nonsense(f"{type(action).__name__}, where the numbers of an action were due")
        due = size if self._layout.rotation == "as-given" else min(np.size(actions[0]), _LONGEST_ACTION)
        for action in actions:
            if np.size(action) != due:
                raise self._nonsense(f"an action of {np.size(action)} numbers, where {due} were due")
        try:
            return np.stack([np.ravel(action) for action in actions])
        except (ValueError, TypeError, OverflowError) as error:
            raise self._nonsense(f"actions that do not fit together ({error})") from error

    def _send(self, data: bytes) -> None:
        call: Any = self._channel.stream_unary(f"/{wire.SERVICE}/{wire.OBSERVATIONS}")
        self._answered(lambda: call(wire.pieces(data), timeout=self._timeout, metadata=self._secret))

    def _call(self, method: str, message: bytes, *, seconds: float | None = None) -> bytes:
        call: Any = self._channel.unary_unary(f"/{wire.SERVICE}/{method}")
        return self._answered(
            lambda: call(message, timeout=self._timeout if seconds is None else seconds, metadata=self._secret)
        )

    def _answered(self, call: Any) -> bytes:
        try:
            answer: bytes = call()
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise self._late() from error
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise self._gone(details) from error
            raise self._failed(f"{code.name}: {details}") from error
        return answer

    @property
    def _secret(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._key}"),) if self._key else ()

    def close(self) -> None:
        self._channel.close()


def _names(state: str, array: Array) -> list[str]:
    """Returns names for the numbers of a state, which robots have there and simulators have not."""
    return [f"{state}.{number}" for number in range(array.size)]


def _blank(task: Instruction, names: Iterable[str]) -> dict[str, Array]:
    """Returns observations of the simulator's types and shapes, of zeros."""
    offered = {name: task.offer.observations[name] for name in names}
    return {name: np.zeros(spec.shape or (), spec.dtype) for name, spec in offered.items()}
