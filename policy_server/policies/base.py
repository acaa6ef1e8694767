"""What a policy is: what it needs, what it remembers per session, what it does with a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparring.protos.conditions import Conditions
from sparring.protos.spec import Offer, PolicySpec, TensorSpec
from sparring.protos.tensor import Array

__all__ = ["Array", "Instruction", "Observation", "Policy", "PolicySpec", "TensorSpec", "spec_on", "warnings_of"]


class Instruction(str):
    """The task as a sentence, which goes straight into a tokenizer, and the episode it was given for.

    Being the sentence itself, it cannot be confused with the task's name: language-conditioned
    policies that were shown names scored nothing. Scripted policies find the name in `name`.

    Attributes:
        benchmark: Its name; empty for a robot.
        name: Of the task: "reach-v3".
        episode: Which of the task's episodes it is, from 0.
        offer: What the simulator can show, and its action space.
    """

    benchmark: str
    name: str
    episode: int
    offer: Offer
    conditions: Conditions | None
    """By what the episode is played; None: the client does not say."""

    def __new__(
        cls,
        text: str,
        *,
        benchmark: str = "",
        name: str = "",
        episode: int = 0,
        offer: Offer,
        conditions: Conditions | None = None,
    ) -> Instruction:
        self = super().__new__(cls, text)
        self.benchmark, self.name, self.episode, self.offer = benchmark, name, episode, offer
        self.conditions = conditions
        return self


@dataclass(frozen=True)
class Observation(Mapping[str, Array]):
    """What the policy asked to see at one step: a mapping from names to arrays.

    The arrays are read-only views of the received message: copy what you want to change.

    Attributes:
        tensors: The arrays by their names.
        task: What is to be done.
        step: Of the episode, from 0: how many actions were played before.
    """

    tensors: Mapping[str, Array]
    task: Instruction
    step: int = field(default=0)

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


class Policy:
    """Base of all policies; deriving from it is optional, having its members is not.

    `new_session` and `act` are called from one thread, never at the same time, unless a policy is `instant` or
    `concurrent`.
    """

    spec: PolicySpec
    """What it needs to see, and the actions that it answers with."""

    instant: bool = False
    """Whether `act` takes no more than microseconds: it is then called where it is, without the trip to a thread. A
    `new_session` may run in that thread at the same time, so that all they may share is the state."""

    concurrent: bool = False
    """Whether it may be asked by many threads at the same time, one row at a time: it only passes questions on."""

    max_sessions: int | None = None
    """The most sessions that it can have at once; None: as many as its server lets in."""

    checkpoint_sha256: str = ""
    """Hash of the weights, if there are any; saved with the results."""

    data_sha256: str = ""
    """Hash of what it has read that is no weights, and that no argument names as a file; a run notices a change."""

    away: str = ""
    """Why no session can begin now, for a policy that asks somebody who is away; empty: one can. Slots wait, and after
    --policy-timeout the run stops and says how to go on."""

    warnings: Sequence[str] = ()
    """Sentences that whoever evaluates it should know: every run has them among its warnings. While it is at work they
    may become more, and never fewer."""

    def spec_for(self, benchmark: str) -> PolicySpec:
        """Returns what the policy needs on a benchmark; the same everywhere, unless a policy says otherwise."""
        return self.spec

    def check_conditions(self, benchmark: str, conditions: Conditions) -> None:
        """Called when a session begins, with what its episodes are played by; what it raises ends the run.

        Nothing is asked of them, unless a policy says otherwise: one that plays recorded actions needs the same ones.
        """

    def warm_up(self) -> None:
        """Does what is slow only the first time, such as compiling; nothing, unless a policy says otherwise.

        Called once, in the thread that `act` is called in; the server's health turns SERVING only after it. What it
        raises ends the server with a sentence.
        """

    def new_session(self, task: Instruction, seed: int) -> Any:
        """Returns what the policy remembers in one episode; called when the episode starts.

        Args:
            task: The sentence, knowing the task's name and the benchmark's action space.
            seed: For a policy that samples: seed the episode's own generator with it.
        """
        return None

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        """Returns one chunk of actions, of shape (length, action_dim), for each observation.

        The rows of a batch are of different sessions, in any mix. The answer to a row may depend
        on that row and its state and on nothing else. States may be changed in place.
        """
        raise NotImplementedError


def spec_on(policy: Any, benchmark: str) -> PolicySpec:
    """Returns what a policy needs on a benchmark, whether it derives from `Policy` or not."""
    spec: PolicySpec = policy.spec_for(benchmark) if hasattr(policy, "spec_for") else policy.spec
    return spec


def warnings_of(policy: Any) -> Sequence[str]:
    """Returns what a policy has to say about itself, whether it derives from `Policy` or not."""
    warnings = getattr(policy, "warnings", ())
    # A class that does not derive from ours may mean something else by that name.
    return [w for w in warnings if isinstance(w, str)] if isinstance(warnings, (list, tuple)) else []
