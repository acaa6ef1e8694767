"""The asking side of a session: the contract's messages out, their answers in, whatever carries them."""

from __future__ import annotations

import json
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from sparring.policy_server.chunks import checked_chunk
from sparring.policy_server.errors import PolicyFailed, PolicyRefused
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.chunk import Chunk
from sparring.protos.conditions import Conditions
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer, PolicySpec, check_settled, spec_of
from sparring.protos.tensor import Array, TensorError, decode, encode_into
from sparring.protos.wire import ObservationCodec

_MOST_ENTRIES: Final = 2000
_LONGEST_DESCRIPTION: Final = 4 << 20
_SHA256: Final = re.compile("[0-9a-f]{0,64}")
_LONGEST: Final = 1000
"""Entries of what a server tells of its program, and characters of each."""


@dataclass(frozen=True)
class PolicyProgram:
    """What a policy is made of, as its server says; `Program` in policy.proto says what each is."""

    files: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    modified: bool = False
    package: str = ""

    @classmethod
    def from_message(cls, message: pb.Program) -> PolicyProgram:
        """Reads what a server says.

        Raises:
            SparringError: If that is too much, or cannot be shown.
        """
        maps = [dict(found) for found in (message.files, message.packages, message.data, message.machine)]
        texts = [text for found in maps for pair in found.items() for text in pair]
        if sum(map(len, maps)) > _MOST_ENTRIES or any(
            len(text) > _LONGEST or not text.isprintable() for text in (*texts, message.commit, message.package)
        ):
            raise SparringError("its program has too many parts, or parts with names that are too long or no text.")
        files, packages, data, machine = maps
        return cls(files, packages, data, machine, message.commit, message.modified, message.package)


@dataclass(frozen=True)
class Description:
    """What a server hosts."""

    name: str
    arguments: Mapping[str, Any]
    checkpoint_sha256: str
    server_version: str
    needs: PolicySpec
    program_sha256: str = ""
    program: PolicyProgram | None = None
    """None: the server does not say, or was not asked."""
    max_sessions: int = 0
    """The most at once, of everybody; 0: it does not say."""

    @classmethod
    def from_message(cls, message: pb.PolicyDescription) -> Description:
        """Reads the description that a server gives of itself.

        Raises:
            SparringError: If it is none.
        """
        size, most = message.ByteSize(), _LONGEST_DESCRIPTION
        if size > most:
            raise SparringError(f"what a policy server says of itself has {size:,} bytes; {most:,} are the most.")
        if not _SHA256.fullmatch(message.program_sha256):
            raise SparringError(f"a policy server says that {message.program_sha256[:100]!r} is its program's hash.")
        return cls(
            name=message.name,
            arguments={key: _value(key, text) for key, text in message.arguments.items()},
            checkpoint_sha256=message.checkpoint_sha256,
            server_version=message.server_version,
            needs=PolicySpec.from_message(message.needs),
            program_sha256=message.program_sha256,
            program=PolicyProgram.from_message(message.program) if message.HasField("program") else None,
            max_sessions=message.max_sessions,
        )


def _value(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SparringError(f"the argument {key!r} is said to be {text[:100]!r}, which is not JSON.") from error


class SessionClient(ABC):
    """One session with a policy, over one episode after the other. After any error it is over: open a new one."""

    needs: PolicySpec
    """What the policy looks at, settled against the offer: send exactly these names, types and shapes."""
    policy: Description

    def __init__(self, server: str) -> None:
        self._server = server
        self._episode = 0

    def start(self, *, task: str = "", instruction: str = "", seed: int = 0, index: int = 0) -> None:
        """Starts an episode; the policy forgets the one before.

        Raises:
            PolicyFailed: If the policy cannot start it.
            PolicyUnreachable: If the server went away.
        """
        number = self._episode + 1
        start = pb.EpisodeStart(number=number, task=task, index=index, seed=seed, instruction=instruction)
        answer = self._exchange(pb.RolloutRequest(episode_start=start), "episode_started")
        if answer.episode_started.number != number:
            raise PolicyRefused(f"{self._server} acknowledged another episode than the one started.")
        self._episode = number

    def act(self, tensors: Mapping[str, Array], *, step: int) -> Chunk:
        """Asks what to do.

        Args:
            tensors: What `needs` names.
            step: Actions executed so far in this episode.

        Raises:
            PolicyFailed: If the policy raised or answered nonsense.
            PolicyUnreachable: If the server went away or did not answer in time.
            PolicyRefused: If the observation is not what was asked for.
        """
        began = time.perf_counter()
        request: bytes | pb.RolloutRequest | None = self._codec.write(self._episode, step, tensors)
        if request is None:  # not what was asked for; the server says what is wrong with it
            request = pb.RolloutRequest()
            request.observation.episode, request.observation.step = self._episode, step
            for name, array in tensors.items():
                encode_into(request.observation.tensors[name], array)
            if request.ByteSize() > self._codec.longest:  # of which the server would say no more than that
                given = {name: str(spec_of(array)) for name, array in tensors.items()}
                asked = {
                    name: f"{spec.dtype} {self.needs.batched_shape(name)}" for name, spec in self.needs.named.items()
                }
                raise PolicyRefused(f"the observation has {given}, the policy asked for {asked}.")
        chunk = self._exchange(request, "chunk").chunk
        if (chunk.episode, chunk.step) != (self._episode, step):
            raise PolicyRefused(f"{self._server} answered another observation than the one sent.")
        in_server = chunk.queue_seconds + chunk.inference_seconds
        if not math.isfinite(in_server):
            raise PolicyFailed(f"{self._server} says that an answer took it {in_server} seconds: not a finite number.")
        waited = time.perf_counter() - began
        in_server = min(max(0.0, in_server), waited)  # it cannot have been longer than all of it was
        return Chunk(self._actions(chunk), in_server, waited - in_server, chunk.batch_size)

    def _actions(self, chunk: pb.Chunk) -> Array:
        """Returns the actions of a chunk, if they are what was said at the hello and fit the space they are for."""
        try:
            actions = decode(chunk.actions)
        except TensorError as error:
            raise PolicyFailed(f"{self._server} answered with what is no chunk of actions: {error.sentence}") from error
        assert self.needs.action_dim is not None, "as was checked at the hello"
        try:
            return checked_chunk(actions, self.needs.action_dim, self.needs.chunk_length)
        except PolicyFailed as failure:
            raise PolicyFailed(f"{self._server} broke its word: {failure.sentence}") from failure

    def _greet(
        self,
        offer: Offer,
        *,
        benchmark: str,
        client: str,
        seconds: float | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        hello = pb.Hello(protocol=PROTOCOL_VERSION, client=client, benchmark=benchmark, offer=offer.to_message())
        if conditions is not None:
            hello.conditions.CopyFrom(conditions.to_message())
        welcome = self._exchange(pb.RolloutRequest(hello=hello), "welcome", seconds).welcome
        try:
            self.needs = PolicySpec.from_message(welcome.needs)
            check_settled(self.needs, offer)
            self.policy = Description.from_message(welcome.policy)
        except SparringError as error:
            raise PolicyRefused(f"{self._server} answered the hello with what cannot be: {error.sentence}") from error
        self._codec = ObservationCodec(self.needs)

    def _exchange(
        self, request: pb.RolloutRequest | bytes, expected: str, seconds: float | None = None
    ) -> pb.RolloutResponse:
        """Sends a message and returns the answer, if it is of the kind that is due.

        Args:
            request: A message, or its bytes.
            expected: The kind of its answer.
            seconds: To wait for it; None: as long as for any.
        """
        answer = self._answer(request, seconds)
        kind = answer.WhichOneof("message")
        if kind != expected:
            raise PolicyRefused(f"{self._server} answered with {kind!r} where {expected!r} was due.")
        return answer

    @abstractmethod
    def _answer(self, request: pb.RolloutRequest | bytes, seconds: float | None) -> pb.RolloutResponse:
        """Carries a message there and its answer back.

        Raises:
            PolicyRefused, PolicyFailed, PolicyUnreachable: As it was answered.
        """


class RemoteSession(SessionClient):
    """A session over a stream to a server; the policy's memory of this caller lives at its other end.

    Made by `PolicyClient.open`. After any error the session is over: open a new one.
    """

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the stream has ended, whoever ended it, as far as this side has heard."""

    @abstractmethod
    def close(self) -> None:
        """Ends the stream."""

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serialized(request: pb.RolloutRequest | bytes) -> bytes:
    """Returns a message as it goes over the wire; an observation is written already."""
    return request if isinstance(request, bytes) else request.SerializeToString()
