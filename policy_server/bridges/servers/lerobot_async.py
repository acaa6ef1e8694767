"""LeRobot's asynchronous wire in front of our policy: its robot clients get our batches.

Their messages are pickles, which are read as data and never unpickled. LeRobot's own server has one client; ours has
any number, each known by its connection. Which observations are answered is decided as there: those that must be, and
those of a new step whose state has moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import numpy as np

from sparring.policy_server.authentication import TokenCheck
from sparring.policy_server.bridges import lerobot_async as wire
from sparring.policy_server.bridges.arrays import BadMessage
from sparring.policy_server.bridges.front import ForeignClient, Front, told
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.policy_server.bridges.pickles.writing import TensorOf, pickled
from sparring.policy_server.bridges.servers.silent_clients import SilentClients
from sparring.policy_server.errors import EpisodeInterrupted, PolicyFailed, PolicyRefused
from sparring.policy_server.limits import ServerFull
from sparring.protos.errors import SparringError
from sparring.protos.net.address import Address, peer_host
from sparring.protos.net.rpc import SERVER_OPTIONS, bind, status_message
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 2.0
"""How long LeRobot's server waits for an observation before it says that there are no actions."""
_STEP_SECONDS: Final = 1 / 30
"""Between two actions, as LeRobot's server has it; its clients only print it."""
_MOVED: Final = 1.0
"""How far a state must be from the last one to be looked at, if it need not be."""
_LARGEST_STEP: Final = 2**63
_MOST_FEATURES: Final = 256
_MOST_NAMES: Final = 4096
"""Of all features of a robot."""
_LONGEST_NAME: Final = 256
_STATE: Final = "observation.state"
_MOST_MESSAGE: Final = 4 << 20
"""Bytes of one message, as at LeRobot's own servers; an observation comes in pieces."""
_MOST_STREAMS: Final = 8
"""Calls of one connection at a time: a robot shows what it sees, and asks for actions meanwhile."""
_CODES: Final[Mapping[type[SparringError], grpc.StatusCode]] = {
    BadMessage: grpc.StatusCode.INVALID_ARGUMENT,
    ServerFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    PolicyFailed: grpc.StatusCode.ABORTED,
    EpisodeInterrupted: grpc.StatusCode.ABORTED,
}

_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass
class _Robot:
    """What is known of a client beside its session."""

    features: Mapping[str, Any] = field(default_factory=dict)
    most: int = 0
    waiting: asyncio.Queue[Mapping[str, Any]] = field(default_factory=lambda: asyncio.Queue(1))
    answered: set[int] = field(default_factory=set)
    state: Array | None = None
    showing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while something comes in, which may be as large as an observation: nothing else is read meanwhile."""

    def forget(self) -> None:
        """Forgets what was seen of an episode."""
        self.answered.clear()
        while not self.waiting.empty():
            self.waiting.get_nowait()

    def is_worth_a_look(self, observation: Mapping[str, Any]) -> bool:
        """Returns whether an observation is to be answered, as LeRobot's server decides it."""
        if observation.get("must_go") or self.state is None:
            return True
        if observation["timestep"] in self.answered:
            return False
        state = self.shown(observation).get(_STATE)
        return state is None or state.shape != self.state.shape or bool(np.linalg.norm(state - self.state) >= _MOVED)

    def shown(self, observation: Mapping[str, Any]) -> dict[str, Array]:
        """Returns a robot's numbers and pictures by the names of LeRobot's data sets."""
        raw = observation["observation"]
        shown: dict[str, Array] = {}
        for name, feature in self.features.items():
            try:
                if feature["dtype"] in ("image", "video"):
                    shown[name] = _checked(raw[name.removeprefix(wire.IMAGES)], np.ndarray)
                elif feature["dtype"] == "float32" and len(feature["shape"]) == 1:
                    names = [_checked(number, str) for number in feature["names"]]
                    shown[name] = np.array([_number(raw[number]) for number in names], np.float32)
            except Exception as error:  # of what somebody made up
                raise BadMessage(
                    f"an observation without what was announced as {name!r:.80} ({error!r:.80})."
                ) from error
        return shown


class LeRobotAsyncFront(Front):
    """Serves LeRobot's robot clients."""

    async def listen(self) -> Address:
        self._clients: SilentClients[str] = SilentClients(self._rollouts, self._client)
        self._robots: weakref.WeakKeyDictionary[ForeignClient, _Robot] = weakref.WeakKeyDictionary()
        limits = {"grpc.max_receive_message_length": _MOST_MESSAGE, "grpc.max_concurrent_streams": _MOST_STREAMS}
        own = [*(dict(self._rollouts.limits.channel_options()) | limits).items()]
        self._server = grpc.aio.server(
            options=[*(option for option in SERVER_OPTIONS if option[0] not in dict(own)), *own],
            interceptors=[TokenCheck(self._token)] if self._token else [],
        )
        answers = {
            wire.READY: self._ready,
            wire.INSTRUCTIONS: self._instructed,
            wire.OBSERVATIONS: self._observed,
            wire.ACTIONS: self._actions,
        }
        # All as streams: of others gRPC reads the request whole before anybody can refuse it.
        methods: dict[str, Any] = {
            name: grpc.stream_unary_rpc_method_handler(self._guarded(answer)) for name, answer in answers.items()
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(wire.SERVICE, methods)])
        bound = bind(self._server, self._settings.address)
        await self._server.start()
        self._sweeping = asyncio.create_task(self._clients.sweep())
        return bound

    async def close(self) -> None:
        self._sweeping.cancel()
        await self._server.stop(None)
        self._clients.close()

    def _guarded(self, answer: Callable[[Any, str, ForeignClient, _Robot], Awaitable[bytes]]) -> Any:
        async def guarded(request: Any, context: _Context) -> bytes:
            who = context.peer()
            self._clients.asks(who)
            try:
                client = await self._clients.get(who, peer_host(who), begins=answer == self._ready)
                return await answer(request, who, client, self._robots.setdefault(client, _Robot()))
            except SparringError as error:
                said = told(error)
                log.warning("a client of LeRobot's wire at %s: %s", who, said)
                await context.abort(_code(error), status_message(said))
            except TimeoutError:
                log.warning("a client of LeRobot's wire at %s was too slow to send what it has to say", who)
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the observation did not come in time.")
            finally:
                self._clients.has_answer(who)
            raise AssertionError("abort() raises")

        return guarded

    async def _ready(self, request: AsyncIterator[bytes], who: str, client: ForeignClient, robot: _Robot) -> bytes:
        robot.forget()
        client.reset()
        return wire.NOTHING

    async def _instructed(self, request: AsyncIterator[bytes], who: str, client: ForeignClient, robot: _Robot) -> bytes:
        async with asyncio.timeout(self._rollouts.limits.taking_seconds), robot.showing:
            message = await anext(request, b"")
        with _made_up():
            asked = wire.made(wire.READER.read(wire.carried(message)), wire.POLICY)
            features = _checked_features(asked.get("lerobot_features"))
        most = asked.get("actions_per_chunk")
        if not isinstance(most, int) or most < 1:
            raise BadMessage("instructions without the number of actions in a chunk.")
        wanted, served = asked.get("pretrained_name_or_path"), client.policy
        if not isinstance(wanted, str):
            raise BadMessage("instructions without the name of a policy.")
        if wanted not in (served, served.removeprefix("lerobot:")):
            # What it would get are another policy's actions, and nothing would say so.
            raise PolicyRefused(
                f"this server has the policy {served!r}, and loads no other: give it as pretrained_name_or_path, in "
                f"the place of {wanted[:200]!r}."
            )
        robot.features, robot.most = features, most
        return wire.NOTHING

    async def _observed(self, request: AsyncIterator[bytes], who: str, client: ForeignClient, robot: _Robot) -> bytes:
        pieces = wire.Pieces(self._most_bytes)
        if not robot.most:
            raise PolicyRefused("an observation came before its instructions, which say what is in it: start again.")
        async with asyncio.timeout(self._rollouts.limits.taking_seconds), robot.showing:
            async for message in request:
                with _made_up():
                    if (whole := pieces.add(message)) is not None:
                        self._look(wire.made(wire.READER.read(whole), wire.OBSERVATION), robot)
                        break
        return wire.NOTHING

    def _look(self, observation: Mapping[str, Any], robot: _Robot) -> None:
        step, moment, raw = (observation.get(name) for name in ("timestep", "timestamp", "observation"))
        if not isinstance(step, int) or not isinstance(moment, float) or not isinstance(raw, dict):
            raise BadMessage("an observation without its moment, its step or anything to see.")
        if abs(step) >= _LARGEST_STEP or not isinstance(raw.get(wire.TASK, ""), str):
            raise BadMessage("an observation of a step that nobody reaches, or with a task that is no sentence.")
        if robot.is_worth_a_look(observation):
            while not robot.waiting.empty():
                robot.waiting.get_nowait()
            robot.waiting.put_nowait(observation)

    async def _actions(self, request: AsyncIterator[bytes], who: str, client: ForeignClient, robot: _Robot) -> bytes:
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                observation = await robot.waiting.get()
        except TimeoutError:
            return wire.NOTHING
        with _made_up():
            shown = robot.shown(observation)
            scaled = _scaled(shown, client)
        robot.answered.add(observation["timestep"])
        robot.state = shown.get(_STATE)
        chunk = await client.act(scaled, observation["observation"].get(wire.TASK, ""))
        actions = [
            Made(
                wire.ACTION,
                {
                    "timestamp": observation["timestamp"] + number * _STEP_SECONDS,
                    "timestep": observation["timestep"] + number,
                    "action": TensorOf(np.ascontiguousarray(action, np.float32)),
                },
            )
            for number, action in enumerate(chunk[: robot.most or None])
        ]
        return wire.carrying(pickled(actions))


@contextlib.contextmanager
def _made_up() -> Iterator[None]:
    """Whatever a message that somebody made up leads to is its sender's mistake, and said in a sentence."""
    try:
        yield
    except SparringError:
        raise
    except Exception as error:
        raise BadMessage(f"a message that this wire does not have ({type(error).__name__}).") from error


def _checked_features(features: Any) -> Mapping[str, Any]:
    """Returns a robot's features, all of whose names are looked up in each observation.

    Raises:
        BadMessage: If no robot has them.
    """
    if not isinstance(features, dict) or not all(
        isinstance(name, str) and isinstance(feature, dict) for name, feature in features.items()
    ):
        raise BadMessage("instructions without the features of the robot.")
    if len(features) > _MOST_FEATURES or any(len(name) > _LONGEST_NAME for name in features):
        raise BadMessage(f"instructions of more than {_MOST_FEATURES} features, or with names that are too long.")
    count = 0
    for name, feature in features.items():
        names, shape = feature.get("names"), feature.get("shape")
        if names is None:
            continue
        if not isinstance(names, (list, tuple)):
            raise BadMessage(f"the feature {name!r:.80}, whose names are no list.")
        count += len(names)
        if count > _MOST_NAMES:
            raise BadMessage(f"instructions of more than {_MOST_NAMES} names in the features.")
        if not all(isinstance(number, str) and len(number) <= _LONGEST_NAME for number in names):
            raise BadMessage(f"the feature {name!r:.80}, whose names are no names.")
        # Of pictures the names are those of the axes.
        if isinstance(shape, (list, tuple)) and len(shape) == 1 and shape[0] != len(names):
            raise BadMessage(f"the feature {name!r:.80} of the shape {shape!r:.80}, with {len(names)} names.")
    return features


def _checked(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"{type(value).__name__}, where {kinds[0].__name__} was due")
    return value


def _number(value: Any) -> float:
    # Text would be read as a number, too, and as long as it is.
    return float(np.asarray(_checked(value, float, int, np.number, np.ndarray)).item())


def _code(error: SparringError) -> grpc.StatusCode:
    codes = [code for kind, code in _CODES.items() if isinstance(error, kind)]
    return codes[0] if codes else grpc.StatusCode.FAILED_PRECONDITION


def _scaled(shown: Mapping[str, Array], client: ForeignClient) -> dict[str, Array]:
    """Returns pictures of the size that the policy looks at, scaled as LeRobot's server does it if torch is there."""
    scaled = dict(shown)
    for name, spec in client.wanted.items():
        picture = scaled.get(name)
        if picture is None or picture.ndim != 3 or spec.shape is None or len(spec.shape) != 3:
            continue
        height, width = spec.shape[:2]
        if min(height, width) < 1 or picture.shape[:2] == (height, width):
            continue
        try:
            import torch
        except ModuleNotFoundError:
            continue  # then it is refused, with both sizes
        batch = torch.tensor(picture).permute(2, 0, 1)[None]
        small = torch.nn.functional.interpolate(batch, size=(height, width), mode="bilinear", align_corners=False)
        scaled[name] = small[0].permute(1, 2, 0).contiguous().numpy()
    return scaled
