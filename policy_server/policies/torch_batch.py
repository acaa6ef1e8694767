"""What `forward` of a torch policy gets, stacked tensors with each row's own memory and random numbers, and returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from sparring.policy_server.policies.base import Array, Instruction, Observation
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer, PolicySpec


@dataclass
class TorchSession:
    """What a torch policy remembers of one episode.

    Attributes:
        task: The sentence.
        seed: The episode's.
        generator: The episode's own, seeded with its seed. On the CPU, so that every device gets the same numbers.
        memory: What `Batch.remember` kept, by name.
    """

    task: Instruction
    seed: int
    generator: Any = None
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(self.seed)


class Batch(Mapping[str, Any]):
    """Stacked observations of some sessions: a mapping from names to tensors of shape (rows, ...).

    With a history of n, tensors are (rows, n, ...), oldest first. What `forward` remembers or draws counts only if it
    returns: a pass that failed, or did not fit in memory, leaves no trace in any session.

    Attributes:
        tasks: The sentence of each row; `tasks[i].name` is the task's name.
        steps: How many actions of its episode each row has executed.
        device: Where the tensors are.
        dtype: Of the floating-point ones.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any],
        sessions: Sequence[TorchSession],
        tasks: Sequence[Instruction],
        steps: Sequence[int],
        *,
        size: int,
        device: Any,
        dtype: Any,
    ) -> None:
        self._tensors = tensors
        self._sessions = list(sessions)
        self._size = size
        filling = size - len(self._sessions)
        self.tasks = [*tasks, *[tasks[-1]] * filling]
        self.steps = [*steps, *[steps[-1]] * filling]
        self.device = device
        self.dtype = dtype
        self._generators: list[Any] = []
        self._remembered: dict[str, Sequence[Any]] = {}

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        """Returns how many rows there are, those that only fill up included."""
        return self._size

    @property
    def sessions_waiting(self) -> int:
        """How many rows are of sessions; they come first."""
        return len(self._sessions)

    @property
    def generators(self) -> Sequence[Any]:
        """A `torch.Generator` on the CPU for each row: of its episode, and of nobody else."""
        if not self._generators:
            for session in self._sessions:
                copy = torch.Generator()
                copy.set_state(session.generator.get_state())
                self._generators.append(copy)
            last = self._generators[-1].get_state()
            for _ in range(self._size - len(self._sessions)):
                copy = torch.Generator()
                copy.set_state(last)
                self._generators.append(copy)
        return self._generators

    def randn(self, *shape: int) -> Any:
        """Draws normally distributed numbers of shape (rows, *shape), each row from its own generator."""
        return self._drawn(torch.randn, shape)

    def rand(self, *shape: int) -> Any:
        """Draws uniformly distributed numbers from 0 to 1 of shape (rows, *shape), each row from its own generator."""
        return self._drawn(torch.rand, shape)

    def _drawn(self, draw: Any, shape: Sequence[int]) -> Any:
        rows = [draw(*shape, generator=generator, dtype=torch.float32) for generator in self.generators]
        return torch.stack(rows).to(self.device, self.dtype)

    def recall(self, name: str, first: Any) -> Any:
        """Stacks what each session remembered under a name; `first`, a tensor for one row, where there is nothing."""
        first = first.to(self.device)
        return torch.stack([first if kept is None else kept for kept in self.recalled(name)])

    def recalled(self, name: str) -> list[Any]:
        """Lists what each session remembered under a name, a value per row; None where there is nothing."""
        kept = [session.memory.get(name) for session in self._sessions]
        return [*kept, *[kept[-1]] * (self._size - len(kept))]

    def remember(self, name: str, values: Any) -> None:
        """Keeps a value per row, a tensor of shape (rows, ...) or a list, for each session's next `recall`."""
        if len(values) != self._size:
            raise SparringError(f"remember({name!r}) got {len(values)} values for {self._size} rows.")
        self._remembered[name] = values

    def keep(self) -> None:
        """Writes what was remembered and drawn into the sessions; called when `forward` has returned."""
        for name, values in self._remembered.items():
            for session, value in zip(self._sessions, values, strict=False):
                # A row of a tensor is a view that would keep the whole batch alive.
                session.memory[name] = value.clone() if isinstance(value, torch.Tensor) else value
        for session, generator in zip(self._sessions, self._generators, strict=False):
            session.generator = generator


def answers_of(actions: Any, *, rows: int) -> Sequence[Array]:
    """Returns the chunks of a batch, one per row, of what `forward` has returned for it.

    Raises:
        SparringError: If it is something else than a tensor with a chunk, or an action, per row.
    """
    if not isinstance(actions, torch.Tensor) or actions.ndim not in (2, 3) or len(actions) != rows:
        what = tuple(actions.shape) if isinstance(actions, torch.Tensor) else type(actions).__name__
        raise SparringError(
            f"forward() got {rows} rows and returned {what}; "
            "it returns a tensor of shape (rows, length, action_dim) or (rows, action_dim)."
        )
    chunks = actions if actions.ndim == 3 else actions[:, None]
    # Half precision is the policy's own business; everybody else has float32 at least.
    plain = chunks.detach().to("cpu", torch.promote_types(chunks.dtype, torch.float32)).numpy()
    return list(plain)


def zero_observation(spec: PolicySpec, sentence: str = "") -> Observation | None:
    """Returns an observation of zeros as a policy would see it; None if its spec leaves open what that is."""
    assert isinstance(spec.observations, Mapping)
    tensors, history = {}, (spec.history,) if spec.history > 1 else ()
    for name, tensor in spec.observations.items():
        if tensor.shape is None or min(tensor.shape, default=0) < 0 or spec.action_dim is None:
            return None
        tensors[name] = np.zeros((*history, *tensor.shape), tensor.dtype or "float32")
    bounds = (0.0,) * (spec.action_dim or 0)
    return Observation(tensors, Instruction(sentence, offer=Offer({}, action_low=bounds, action_high=bounds)))
