"""A torch policy with memory and random numbers, for tests that need one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from sparring.policy_server.policies.torch import Batch, TorchPolicy
from sparring.protos.spec import PolicySpec, TensorSpec


class Recurrent(TorchPolicy):
    """What it does depends on all it has seen in its episode, and on the episode's generator.

    Args:
        trace: A file that gets a line per forward pass: how many sessions were in it.
        seconds: How long a pass takes at least, so that others are waiting when it ends.
        options: Of `TorchPolicy`.
    """

    spec = PolicySpec({"observation.state": TensorSpec("float32", (4,))}, action_dim=4, chunk_length=2, history=3)

    def __init__(self, trace: str, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._seconds = seconds
        self._trace = Path(trace)
        torch.manual_seed(0)
        self._cell = self.place(torch.nn.GRUCell(12, 256))
        self._head = self.place(
            torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
        )

    def forward(self, batch: Batch) -> Any:
        time.sleep(self._seconds)
        with self._trace.open("a") as file:
            file.write(f"{batch.sessions_waiting} {len(batch)}\n")
        hidden = self._cell(batch["observation.state"].flatten(1) * 5.0, batch.recall("hidden", torch.zeros(256)))
        batch.remember("hidden", hidden)
        return torch.tanh(3.0 * self._head(hidden)).view(-1, 2, 4) + 0.1 * batch.randn(2, 4)


class Hungry(TorchPolicy):
    """Has not enough memory for more than one row, which is simulated: there is no GPU to fill."""

    spec = PolicySpec({"position": TensorSpec("float64", (1,))}, action_dim=1)

    def forward(self, batch: Batch) -> Any:
        time.sleep(0.02)  # so that rows come together
        if len(batch) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return torch.ones(len(batch), 1)
