"""A policy's answer to one observation, as whoever asked gets it."""

from __future__ import annotations

from dataclasses import dataclass

from sparring.protos.tensor import Array


@dataclass(frozen=True)
class Chunk:
    """Actions to play one after the other, and where the time of asking for them went."""

    actions: Array
    policy_seconds: float
    """Queueing and inference."""
    transport_seconds: float
    """The rest of the wait: encoding, the network, the server's own work."""
    batch_size: int
