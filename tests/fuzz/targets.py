"""What is fed with bytes: each target takes any at all, and only errors of ours may come out of it.

They are called by `test_targets.py`, with the same few thousand inputs every time, and by `run.py` with millions.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from strangers import STRANGERS

from sparring.orchestrator.coordination.bounds import MAX_SLOTS, OutOfBounds, check_register
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.policy_server.batcher import Answer
from sparring.policy_server.hosted import HostedPolicy, described
from sparring.policy_server.local import _without_waiting
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy
from sparring.policy_server.session_client import SessionClient
from sparring.policy_server.stats import StatsCounter
from sparring.protos import PROTOCOL_VERSION, WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as work_pb
from sparring.protos import policy_pb2 as pb
from sparring.protos.errors import SparringError
from sparring.protos.limits import MAX_HISTORY
from sparring.protos.spec import Offer, PolicySpec, TensorSpec
from sparring.protos.tensor import MAX_TENSOR_BYTES, TensorError, decode, encode
from sparring.protos.wire import ObservationCodec

IMAGE, STATE = "image", "state"
SPEC: Final = PolicySpec(
    {IMAGE: TensorSpec("uint8", (2, -1, 3)), STATE: TensorSpec("float32", None)}, action_dim=2, chunk_length=3
)
OFFER: Final = Offer(
    {IMAGE: TensorSpec("uint8", (2, 2, 3)), STATE: TensorSpec("float32", (2,))},
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
)
HELLO: Final = pb.RolloutRequest(
    hello=pb.Hello(protocol=PROTOCOL_VERSION, client="fuzz", offer=OFFER.to_message())
).SerializeToString()
START: Final = pb.RolloutRequest(
    episode_start=pb.EpisodeStart(number=3, task="t", seed=1, instruction="do it")
).SerializeToString()
OBSERVATION: Final = pb.RolloutRequest(
    observation=pb.Observation(
        episode=3,
        step=0,
        tensors={IMAGE: encode(np.zeros((2, 2, 3), np.uint8)), STATE: encode(np.zeros(2, np.float32))},
    )
).SerializeToString()
CHUNK: Final = pb.RolloutResponse(
    chunk=pb.Chunk(episode=1, step=0, actions=encode(np.zeros((2, 2))), batch_size=1)
).SerializeToString()


class _Nothing(Policy):
    spec = SPEC

    def act(self, observations: Any, states: Any) -> list[Array]:
        return [np.zeros((1, 2))] * len(observations)


class _Runner:
    """Stands where the batcher is, and sees what a policy would: that must be what was settled, to the last axis."""

    async def new_session(self, task: Instruction, seed: int, *, who: object = None) -> None:
        assert 0 <= seed < 2**64

    async def act(self, observation: Observation, state: Any, *, action_dim: int, who: object = None) -> Answer:
        assert observation[IMAGE].dtype == np.uint8
        assert observation[IMAGE].ndim == 3
        assert observation[STATE].dtype == np.float32
        return Answer(np.zeros((1, action_dim)), 0.0, 0.0, 1)


_POLICY: Final = _Nothing()
_HOSTED: Final = HostedPolicy(_POLICY, described(_POLICY, "fuzz", {}), _Runner(), StatsCounter(), logs_warnings=False)


def _answered(session: Any, data: bytes) -> pb.RolloutResponse | None:
    """The answer to a message; None if it is refused, which must be in words."""
    try:
        answer: pb.RolloutResponse = _without_waiting(session.answer_bytes(data))
    except SparringError as refusal:
        _check_words(refusal)
        return None
    return answer


def _check_words(refusal: SparringError) -> None:
    if not refusal.sentence.strip():
        raise AssertionError("a refusal without a word") from refusal


def hello(data: bytes) -> None:
    """The first message of a stream: refused in words, or welcomed with needs that are definite."""
    answer = _answered(_HOSTED.session("fuzz"), data)
    if answer is None:
        return
    needs = PolicySpec.from_message(answer.welcome.needs)
    assert set(needs.named) == {IMAGE, STATE}
    assert all(spec.definite for spec in needs.named.values())
    assert needs.action_dim == 2


def session(data: bytes) -> None:
    """Any message in an episode: no answer but to what is in order."""
    playing = _HOSTED.session("fuzz")
    assert _answered(playing, HELLO)
    assert _answered(playing, START)
    answer = _answered(playing, data)
    if answer is None:
        return
    asked = pb.RolloutRequest.FromString(data)
    if answer.WhichOneof("message") == "chunk":
        assert answer.chunk.episode == asked.observation.episode == 3
        assert answer.chunk.step == asked.observation.step
    else:
        assert answer.episode_started.number == asked.episode_start.number > 3


def codec(data: bytes) -> None:
    """A tensor: what can be read is what its header says, and is written as it was read."""
    try:
        tensor = pb.Tensor.FromString(data)
    except DecodeError:
        return
    try:
        array = decode(tensor)
    except TensorError:
        return
    assert array.shape == tuple(tensor.shape)
    assert array.nbytes == len(tensor.raw) <= MAX_TENSOR_BYTES
    again = encode(array)
    assert (again.dtype, list(again.shape), again.raw) == (tensor.dtype, list(tensor.shape), tensor.raw)


_NEEDS: Final = SPEC.settle(OFFER)
_CODEC: Final = ObservationCodec(_NEEDS)


def wire(data: bytes) -> None:
    """An observation by our own reader, against protobuf's."""
    found = _CODEC.read(data)
    if found is None:
        return
    episode, step, tensors = found
    slow = pb.RolloutRequest.FromString(data).observation
    assert (slow.episode, slow.step, set(slow.tensors)) == (episode, step, set(tensors))
    for name, array in tensors.items():
        np.testing.assert_array_equal(decode(slow.tensors[name]), array)


class _Asking(SessionClient):
    """A client whose server answers with whatever is to be said next."""

    def __init__(self, answers: list[bytes]) -> None:
        super().__init__("the server")
        self._answers = answers

    def _answer(self, request: pb.RolloutRequest | bytes, seconds: float | None) -> pb.RolloutResponse:
        try:
            return pb.RolloutResponse.FromString(self._answers.pop(0))
        except DecodeError as error:  # gRPC does that
            raise SparringError("no message.") from error


_WELCOME: Final = pb.RolloutResponse(
    welcome=pb.Welcome(policy=_HOSTED.description, needs=_NEEDS.to_message(), session="s")
).SerializeToString()
_STARTED: Final = pb.RolloutResponse(episode_started=pb.EpisodeStarted(number=1)).SerializeToString()
_SEEN: Final = {IMAGE: np.zeros((2, 2, 3), np.uint8), STATE: np.zeros(2, np.float32)}


def welcome(data: bytes) -> None:
    """A server's answer to the hello: refused, or what can be gone along with."""
    client = _Asking([data])
    try:
        client._greet(OFFER, benchmark="", client="")
    except SparringError:
        return
    assert client.needs.action_dim == 2
    assert client.needs.named.items() <= OFFER.observations.items()
    assert 1 <= client.needs.history <= MAX_HISTORY


def chunk(data: bytes) -> None:
    """A server's answer to an observation: refused, or what can be played."""
    client = _Asking([_WELCOME, _STARTED, data])
    client._greet(OFFER, benchmark="", client="")
    client.start()
    try:
        answer = client.act(_SEEN, step=0)
    except SparringError:
        return
    assert answer.actions.ndim == 2
    assert 1 <= len(answer.actions) <= 3
    assert answer.actions.shape[1] == 2
    assert np.isfinite(answer.actions).all()
    assert math.isfinite(answer.policy_seconds + answer.transport_seconds)


class _Working:
    """A coordinator with its journal, and two workers: one of them says what is made up.

    Leases have small numbers here, so that somebody who makes up bytes can hit them: 1 and 2 are its own, 3 is not.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        where = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a journal there costs a tenth
        self._folder = tempfile.TemporaryDirectory(prefix="sparring-fuzz-", dir=where)
        self._count = 0
        self._runner.run(self._begin())

    async def _begin(self) -> None:
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        self.journal = Journal(folder)
        listener, rules = RunListener(), RetryRules(retries=1, losses=2)
        self.coordinator = Coordinator(_PLAN(), _SETTINGS(), self.journal, folder, listener, rules)
        self.coordinator._scheduler._new_number = itertools.count(1).__next__  # type: ignore[method-assign]
        for worker, slots in (("w", 2), ("v", 1)):
            assignment = work_pb.Assignment(benchmark="toy", slots=slots)
            self.coordinator.join(work_pb.Register(worker=worker), assignment, lambda message: None)
            for slot in range(slots):
                self.coordinator.handle(worker, work_pb.WorkerMessage(ready=work_pb.Ready(slot=slot)))
        self.own = {lease.episode for lease in self.coordinator._scheduler.leases_of("w")}

    def say(self, message: work_pb.WorkerMessage) -> None:
        """Has the first worker say something, and checks what came of it."""
        self._runner.run(self._say(message))

    async def _say(self, message: work_pb.WorkerMessage) -> None:
        coordinator, scheduler = self.coordinator, self.coordinator._scheduler
        before = scheduler.in_flight()
        try:
            coordinator.handle("w", message)
        except OutOfBounds as error:
            _check_words(error)
        rows = [row.id for row in self.journal.rows()] if scheduler.in_flight() != before else []
        assert len(rows) == len(set(rows)), "an episode has two rows"
        assert set(rows) <= self.own, "a worker has ended what it did not have"
        assert scheduler.holder(3) is not None, "a worker has ended what another had"
        if coordinator.ended.done():
            sentence = str(coordinator.ended.exception())
            assert message.WhichOneof("message") in ("refused", "lost"), sentence
            assert "mistake" not in sentence, sentence
        if coordinator.ended.done() or scheduler.in_flight() != before:
            self.journal.close()
            shutil.rmtree(self.journal.path.parent)
            await self._begin()


_SETTINGS: Final = cache(
    lambda: read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "episodes": 9, "seed": 1})
)
_PLAN: Final = cache(lambda: make_plan(_SETTINGS()))
_WORKING: Final = cache(_Working)


def work(data: bytes) -> None:
    """What a worker says after it was let in: only leases of its own can end by it, each with one row at most."""
    try:
        message = work_pb.WorkerMessage.FromString(data)
    except DecodeError:
        return
    _WORKING().say(message)


def register(data: bytes) -> None:
    """What a worker says of itself: refused in words, or what can be shown and kept."""
    try:
        message = work_pb.Register.FromString(data)
    except DecodeError:
        return
    try:
        check_register(message)
    except OutOfBounds as error:
        _check_words(error)
        return
    assert message.slots <= MAX_SLOTS
    texts = [message.worker, message.host, *message.benchmarks, *message.versions, *message.versions.values()]
    assert all(text.isprintable() and len(text) <= 200 for text in texts)


RESULT: Final = work_pb.Result(
    lease=1, outcome=work_pb.OUTCOME_SUCCESS, reward_sum=1.5, steps=3, metrics={"distance": 0.5}
)
REGISTER: Final = work_pb.Register(
    protocol=WORK_PROTOCOL_VERSION, worker="w", slots=2, benchmarks=["toy"], versions={"numpy": "1"}, host="h"
)

TARGETS: Final[dict[str, tuple[Callable[[bytes], None], list[bytes]]]] = {
    "hello": (hello, [HELLO]),
    "session": (session, [OBSERVATION, START, HELLO]),
    "codec": (codec, [encode(np.zeros((2, 3), np.float32)).SerializeToString()]),
    "wire": (wire, [OBSERVATION]),
    "welcome": (welcome, [_WELCOME]),
    "chunk": (chunk, [CHUNK]),
    "register": (register, [REGISTER.SerializeToString()]),
    "work": (
        work,
        [
            message.SerializeToString()
            for message in (
                work_pb.WorkerMessage(result=RESULT),
                work_pb.WorkerMessage(lost=work_pb.Lost(lease=2, reason="it was.", policy_gone=True)),
                work_pb.WorkerMessage(ready=work_pb.Ready(slot=1)),
                work_pb.WorkerMessage(heartbeat=work_pb.Heartbeat(slots=[work_pb.SlotActivity(task="short")])),
                work_pb.WorkerMessage(refused=work_pb.Refused(lease=3, reason="no.")),
                work_pb.WorkerMessage(piece=work_pb.Piece(lease=1, what=work_pb.ATTACHMENT_VIDEO, content=b"film")),
            )
        ],
    ),
    **STRANGERS,
}
"""Each target, and what a well-meant input of it looks like: what others are made from."""
