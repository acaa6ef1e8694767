"""What an episode knows of a policy: what it wants to see, and what it answers. Where the policy is stays open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sparring.protos.chunk import Chunk
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array


class Session(Protocol):
    """A policy's memory of one caller, over one episode after the other.

    `RemoteSession` asks a policy server, `LocalSession` a policy in this process. After any error the session is over.
    """

    @property
    def needs(self) -> PolicySpec:
        """What the policy looks at, settled against what the simulator offers."""

    def start(self, *, task: str, instruction: str, seed: int, index: int) -> None:
        """Starts an episode; the policy forgets the one before."""

    def act(self, tensors: Mapping[str, Array], *, step: int) -> Chunk:
        """Asks what to do.

        Args:
            tensors: What `needs` names.
            step: Actions executed so far in this episode.
        """
