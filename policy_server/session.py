"""One slot's stream: the rules of order, and the policy's memory of the running episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from sparring.policy_server.batcher import Answer
from sparring.policy_server.calls import in_short
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.conditions import Conditions
from sparring.protos.errors import SparringError
from sparring.protos.limits import MAX_HELLO_BYTES, MAX_NAME
from sparring.protos.spec import Offer, PolicySpec, SpecMismatch
from sparring.protos.tensor import Array, TensorError, decode, encode
from sparring.protos.tracebacks import Tracebacks, traceback_of
from sparring.protos.wire import ObservationCodec


class OutOfOrder(SparringError):
    """A message that the contract does not allow at this point of the stream."""


class Draining(SparringError):
    """The server is about to end and starts nothing new."""


class PolicyRunner(Protocol):
    """What runs the policy for a session: a batcher, or whatever else has the policy's answers."""

    async def new_session(self, task: Instruction, seed: int, *, who: object = None) -> Any:
        """Makes the policy's memory of a new episode."""

    async def act(self, observation: Observation, state: Any, *, action_dim: int, who: object = None) -> Answer:
        """Returns the policy's answer to one observation."""


class SessionHandler:
    """Answers the messages of one stream, one after the other.

    A message that breaks the rules raises, and the stream ends with it: a mixed-up action must be
    impossible, not unlikely.
    """

    def __init__(
        self,
        name: str,
        description: pb.PolicyDescription,
        spec_for: Callable[[str], PolicySpec],
        runner: PolicyRunner,
        *,
        on_episode: Callable[[], None] = lambda: None,
        on_warning: Callable[[str], None] = lambda sentence: None,
        on_welcome: Callable[[], None] = lambda: None,
        check_conditions: Callable[[str, Conditions], None] = lambda benchmark, conditions: None,
        tracebacks: Tracebacks | None = None,
    ) -> None:
        self.name = name
        self.draining = False
        self._on_episode = on_episode
        self._on_warning = on_warning
        self._on_welcome = on_welcome
        self._check_conditions = check_conditions
        self._tracebacks = tracebacks or Tracebacks()
        self._conditions: Conditions | None = None
        self._description = description
        self._spec_for = spec_for
        self._runner = runner
        self._needs: PolicySpec | None = None
        self._codec: ObservationCodec | None = None
        self._offer: Offer | None = None
        self._benchmark = ""
        self._episode = 0
        self._step = -1
        self._task: Instruction | None = None
        self._state: Any = None

    @property
    def playing(self) -> bool:
        """Whether an episode has been started."""
        return self._task is not None

    @property
    def episode(self) -> str:
        """The episode that is being played, for log lines; empty if there is none, or it has no name."""
        return "" if self._task is None or not self._task.name else f"{self._task.name} #{self._task.episode}"

    @property
    def longest(self) -> int:
        """Bytes of the longest message that can be due."""
        return MAX_HELLO_BYTES if self._codec is None else self._codec.longest

    async def answer_bytes(self, data: bytes) -> pb.RolloutResponse:
        """Returns the one answer to a message as it arrived; raises what `answer` raises."""
        if self._codec is not None and (found := self._codec.read(data)) is not None:
            return pb.RolloutResponse(chunk=await self._observe(*found))
        if len(data) > self.longest:  # before it is parsed, which may take a hundred times its size
            raise TensorError(
                f"a message of {len(data)} bytes came where the longest that can be due has {self.longest}."
            )
        try:
            request = pb.RolloutRequest.FromString(data)
        except DecodeError as error:
            raise TensorError(f"a message that is not of this protocol: {error}") from error
        return await self.answer(request)

    async def answer(self, request: pb.RolloutRequest) -> pb.RolloutResponse:
        """Returns the one answer to a message.

        Raises:
            OutOfOrder, SpecMismatch, TensorError, Draining: The client broke a rule, or may not go on.
            PolicyFailed, EpisodeInterrupted, QueueFull: The policy could not answer.
        """
        kind = request.WhichOneof("message")
        if kind == "observation":
            return pb.RolloutResponse(chunk=await self._observe_message(request.observation))
        if kind == "episode_start":
            return pb.RolloutResponse(episode_started=await self._start(request.episode_start))
        if kind == "hello":
            return pb.RolloutResponse(welcome=self._welcome(request.hello))
        raise OutOfOrder("a message without content, or of a kind that this protocol version does not have.")

    def _welcome(self, hello: pb.Hello) -> pb.Welcome:
        if self._needs is not None:
            raise OutOfOrder("a second hello; a stream has one, and it is the first message.")
        if hello.protocol != PROTOCOL_VERSION:
            raise SpecMismatch(
                f"the client speaks protocol version {hello.protocol}, this server {PROTOCOL_VERSION}; "
                "install the same release of sparring on both sides."
            )
        for what, text in (("client", hello.client), ("benchmark", hello.benchmark)):
            if len(text) > MAX_NAME:
                raise SpecMismatch(f"the {what}'s name has {len(text)} characters; at most {MAX_NAME} are allowed.")
        self._offer = Offer.from_message(hello.offer)
        spec = self._spec(hello.benchmark)
        self._needs = spec.settle(self._offer)
        if hello.HasField("conditions"):
            self._conditions = self._checked_conditions(hello)
        for sentence in spec.warnings(self._offer):
            self._on_warning(sentence)
        self._codec = ObservationCodec(self._needs)
        self._benchmark = hello.benchmark
        self._on_welcome()
        return pb.Welcome(policy=self._description, needs=self._needs.to_message(), session=self.name)

    def _checked_conditions(self, hello: pb.Hello) -> Conditions:
        try:
            conditions = Conditions.from_message(hello.conditions)
            self._check_conditions(hello.benchmark, conditions)
        except SparringError as refusal:
            raise SpecMismatch(refusal.sentence) from refusal
        except Exception as error:  # a user's policy may raise anything
            raise self._refused("check_conditions", error) from error
        return conditions

    def _spec(self, benchmark: str) -> PolicySpec:
        try:
            spec = self._spec_for(benchmark)
        except SparringError as refusal:  # in words of its own, of whatever kind
            raise SpecMismatch(refusal.sentence) from refusal
        except Exception as error:  # a user's policy may raise anything
            raise self._refused("spec_for", error) from error
        if not isinstance(spec, PolicySpec):
            raise SpecMismatch(f"the policy's spec_for() returned {type(spec).__name__}, not a PolicySpec.")
        return spec

    def _refused(self, method: str, error: Exception) -> SpecMismatch:
        """Returns why there is no session with a policy that raised when it was asked for one: nor will there be."""
        sentence = f"the policy's {method}() raised {in_short(error)}"
        kept = self._tracebacks.keep("policy", sentence, traceback_of(error))
        return SpecMismatch(f"{sentence} ({kept})" if kept else sentence)

    async def _start(self, start: pb.EpisodeStart) -> pb.EpisodeStarted:
        if self._needs is None or self._offer is None:
            raise OutOfOrder("an episode start before the hello.")
        if start.number <= self._episode:
            raise OutOfOrder(f"episode {start.number} was started after episode {self._episode}; numbers only go up.")
        if self.draining:
            raise Draining(
                "the policy server is shutting down; start the episode on another one, or on this one when it is back."
            )
        task = Instruction(
            start.instruction,
            benchmark=self._benchmark,
            name=start.task,
            episode=start.index,
            offer=self._offer,
            conditions=self._conditions,
        )
        # Until the new memory exists there is no episode: an observation that arrives after a failed
        # start must never be answered from the memory of the episode before.
        self._task = self._state = None
        self._episode, self._step = start.number, -1
        self._state = await self._runner.new_session(task, start.seed, who=self)
        self._task = task
        self._on_episode()
        return pb.EpisodeStarted(number=start.number)

    async def _observe_message(self, message: pb.Observation) -> pb.Chunk:
        if self._needs is None:
            raise OutOfOrder("an observation before the hello.")
        return await self._observe(message.episode, message.step, self._decoded(message, self._needs))

    async def _observe(self, episode: int, step: int, tensors: Mapping[str, Array]) -> pb.Chunk:
        if self._task is None or self._needs is None:
            raise OutOfOrder("an observation before its episode was started and acknowledged.")
        if episode != self._episode:
            raise OutOfOrder(f"an observation of episode {episode} while episode {self._episode} is running.")
        # Steps are unsigned, so a first step of 0 is above -1.
        if step <= self._step:
            raise OutOfOrder(f"an observation of step {step} after one of step {self._step}; steps only go up.")
        self._step = step
        observation = Observation(tensors, self._task, step)
        assert self._needs.action_dim is not None
        answer = await self._runner.act(observation, self._state, action_dim=self._needs.action_dim, who=self)
        return pb.Chunk(
            episode=episode,
            step=step,
            actions=encode(answer.actions),
            queue_seconds=answer.queue_seconds,
            inference_seconds=answer.inference_seconds,
            batch_size=answer.batch_size,
        )

    def _decoded(self, message: pb.Observation, needs: PolicySpec) -> dict[str, Array]:
        if message.tensors.keys() != needs.named.keys():
            raise TensorError(
                f"the observation has {sorted(message.tensors)}, the policy asked for {sorted(needs.named)}."
            )
        arrays: dict[str, Array] = {}
        for name, tensor in message.tensors.items():
            array = decode(tensor)
            if array.shape != needs.batched_shape(name) or array.dtype.name != needs.named[name].dtype:
                wanted = f"{needs.named[name].dtype} {needs.batched_shape(name)}"
                raise TensorError(f"{name!r} came as {array.dtype.name} {array.shape}, the policy asked for {wanted}.")
            arrays[name] = array
        return arrays
