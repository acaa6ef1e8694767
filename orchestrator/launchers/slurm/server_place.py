"""The places of a run's policy servers, and what is known of the jobs that have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.protos.net.address import Address


@dataclass
class ServerPlace:
    """The place of one policy server, which one job after the other may have.

    Attributes:
        number: Of the place.
        job: The number of the job that has it; empty: none.
        news: File that the job says in where its server is.
        known: How many lines of that file are known.
        address: Where the policy is served now; None: it is not.
        cert: PEM certificate that is shown there.
        has_served: Whether the job has served.
        since: When it began to serve; 0: it does not, and that is told.
        deaths: How often in a row its server ended soon after it had begun.
        not_before: When the next job may be submitted.
        verdict: Why its server was asked to be started again; None: it was not.
        asked: When it was.
        unheard: Since when it does not answer, though nobody says that it has ended; 0: it does.
        silent: Where it is that it does not answer, and is asked again; None: nowhere.
        completing: Since when the job is about to end; None: it is not.
        told: What was logged last of where the job is.
    """

    number: int
    job: str = ""
    news: Path = field(default_factory=Path)
    known: int = 0
    address: Address | None = None
    cert: bytes = b""
    has_served: bool = False
    since: float = 0.0
    deaths: int = 0
    not_before: float = 0.0
    verdict: ServerEnd | None = None
    asked: float = 0.0
    unheard: float = 0.0
    silent: Address | None = None
    completing: float | None = None
    told: str = ""

    @property
    def is_up(self) -> bool:
        """Whether it serves, and goes on."""
        return self.address is not None and self.verdict is None
