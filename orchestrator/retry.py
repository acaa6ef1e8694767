"""When something is tried again, and when it is given up: the rules of a run, in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from sparring.protos.record import ErrorKind

RetriedKind = Literal["simulator", "policy", "action", "limit", "internal"]
"""Kinds of errors that an attempt can end in; a lost lease is none."""

_INCURABLE: Final = re.compile(
    r"\braised (ModuleNotFoundError|ImportError|DependencyNotInstalled|SyntaxError|NotImplementedError)\b"
    r"|^the recording (of|has no actions for) "
)
"""What simulators and policies may raise that is the same every time: trying again installs nothing (Gymnasium has an
error of its own for that), and a recording stays the one that it is."""


def is_incurable(error: str) -> bool:
    """Returns whether an error, by its sentence, comes again however often its episode is tried."""
    return _INCURABLE.search(error) is not None


@dataclass(frozen=True)
class RetryRules:
    """What is tried again, how often, and after how long a pause."""

    retries: int = 3
    """How often an episode that ends in an error is tried again."""
    retries_of: Mapping[RetriedKind, int] = field(default_factory=dict)
    """The same for errors of one kind, where it is another number."""
    losses: int = 20
    """An episode that was lost this often without once reaching an end is given up: something kills whoever runs it."""
    film_losses: int = 3
    """An episode that was lost this often while it was played again to be filmed has no film."""
    unreachable: int = 2
    """So many slots in a row that have waited in vain for the policy server, and the run is given up."""
    worker_deaths: int = 5
    """So many deaths of workers in a row without one result in between, and the run is given up."""
    first_pause: float = 0.2
    """Seconds before a worker that died is replaced; after each death in a row twice as long."""
    longest_pause: float = 10.0
    """The most seconds before a worker that died is replaced."""
    policy_server_restarts: int = 5
    """How often in a row a policy server that dies soon after its start is started again."""
    policy_server_settled: float = 30.0
    """Seconds after which a policy server has lived long enough for its earlier deaths to be forgotten."""

    def tries_again(self, kind: ErrorKind, error: str = "", *, errors_before: int) -> bool:
        """Returns whether an episode that ended in an error is tried again.

        Args:
            kind: Of the error.
            error: Its sentence.
            errors_before: How many errors it had before this one.
        """
        if is_incurable(error):
            return False
        own = (number for known, number in self.retries_of.items() if known == kind)
        return errors_before < next(own, self.retries)

    def gives_up_lost(self, losses: int) -> bool:
        """Returns whether an episode that was lost so often is given up."""
        return losses >= self.losses

    def gives_up_film(self, losses: int) -> bool:
        """Returns whether there is to be no film of an episode whose replay was lost so often."""
        return losses >= self.film_losses

    def gives_up_unreachable(self, slots: int) -> bool:
        """Returns whether a run is given up when so many slots in a row have found no policy server."""
        return slots >= self.unreachable

    def gives_up_workers(self, deaths: int) -> bool:
        """Returns whether a run is given up after so many deaths of workers in a row."""
        return deaths >= self.worker_deaths

    def pause(self, deaths: int) -> float:
        """Returns the seconds before the next worker is started, after so many deaths in a row."""
        return min(self.longest_pause, self.first_pause * 2.0**deaths)

    def gives_up_policy_server(self, deaths: int) -> bool:
        """Returns whether a run is given up after so many early deaths in a row of its policy server."""
        return deaths > self.policy_server_restarts


DEFAULT_RULES: Final = RetryRules()
