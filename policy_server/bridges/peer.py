"""What each wire must do: one connection to a foreign server, for one episode.

Servers that remember something do so for a connection, and some wires have no word for an episode's beginning: so
each episode has a connection of its own.
"""

from __future__ import annotations

import json
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from typing import Any, ClassVar, Final

import numpy as np

from sparring.policy_server.bridges.endpoint import Endpoint
from sparring.policy_server.bridges.layout import BridgeLayout
from sparring.policy_server.errors import EpisodeInterrupted, PolicyFailed
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)

_LONGEST: Final = 300
"""Characters of what a foreign server says about its failure; its own log has the rest."""
_KNOCK_S: Final = 10.0


_KINDS: Final[Mapping[type, str]] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class PeerUnreachable(SparringError):
    """Nobody answers at the address, or not in the wire that was expected."""


class Peer(ABC):
    """One connection. Whatever it raises, it is not to be used again.

    Args:
        endpoint: Of the server.
        layout: What the server is shown, and what its answers mean.
        timeout: Seconds that it has for an answer.
        key: That it asks its callers for, if it does.
        options: What its wire takes beside the layout, all of `defaults`; None: the defaults.
    """

    default_port: int
    most_clients: ClassVar[int | None] = None
    """The most clients that such a server has at once; None: any number."""
    keeps_connection: ClassVar[bool] = False
    """Whether all episodes have one connection, one after the other, because its server keeps nothing of an episode
    and setting up a connection takes long there."""
    has_nested_maps: ClassVar[bool] = False
    """Whether an observation may have maps in it, as `BridgeLayout.nested` says."""
    says_what_it_wants: ClassVar[bool] = False
    """Whether such a server may say, when it is connected to, what it is to be shown."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Arguments that its wire takes beside the layout, and what they are if they are not given."""

    def __init__(
        self,
        endpoint: Endpoint,
        layout: BridgeLayout,
        *,
        timeout: float,
        key: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._layout = layout
        self._timeout = timeout
        self._key = key
        self._options = {**self.defaults, **(options or {})}
        self._connect()

    @abstractmethod
    def _connect(self) -> None:
        """Connects to the server.

        Raises:
            PeerUnreachable: If none answers there.
        """

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Checks the options, before anybody is asked.

        Raises:
            UsageError: If one has the wrong type, or something is missing.
        """
        for name, value in options.items():
            default = cls.defaults[name]
            if type(value) is not type(default) and not (isinstance(default, float) and isinstance(value, int)):
                raise UsageError(f"{name} must be {_KINDS[type(default)]}, not {value!r}.")

    @classmethod
    def as_asked(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any]) -> BridgeLayout:
        """Returns a benchmark's layout as a server wants it, which has said so about itself."""
        return layout

    @classmethod
    def not_met(cls, layout: BridgeLayout, benchmark: str, said: Mapping[str, Any], given: Set[str]) -> Iterator[str]:
        """Yields what a server wants and does not get, each as the end of a sentence that begins with the server.

        Args:
            layout: By which it is shown things.
            benchmark: That it is to play.
            said: What it says about itself.
            given: What of the layout a user has decided.
        """
        yield from ()

    @property
    def layout(self) -> BridgeLayout:
        """What the server is shown, and what its answers mean."""
        return self._layout

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What the server says about itself, as JSON can say it; empty if its wire has no such thing."""

    @abstractmethod
    def start(self, task: Instruction, seed: int) -> None:
        """Begins an episode."""

    @abstractmethod
    def ask(self, observation: Observation) -> Array:
        """Returns the server's actions for an observation, one below the other.

        Raises:
            PolicyFailed: If it failed, was too late, or answered with something else.
            EpisodeInterrupted: If it went away.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the connection; it may be broken already."""

    def _unreachable(self, error: BaseException) -> PeerUnreachable:
        return _unreachable(self._endpoint, error)

    def _gone(self, error: BaseException | str) -> EpisodeInterrupted:
        return EpisodeInterrupted(
            f"the server at {self._endpoint} went away in the middle of an episode ({_short(error)}); the episode "
            "starts again."
        )

    def _late(self) -> PolicyFailed:
        return PolicyFailed(f"the server at {self._endpoint} did not answer within {self._timeout:g} s.")

    def _failed(self, said: str) -> PolicyFailed:
        """Returns the failure for what the server says went wrong there, which may be a whole traceback."""
        lines = said.strip().splitlines()
        if len(lines) > 1:
            log.warning("the server at %s says:\n%s", self._endpoint, said.strip())
        return PolicyFailed(f"the server at {self._endpoint} failed: {_short(lines[-1] if lines else 'no word why')}")

    def _nonsense(self, what: str) -> PolicyFailed:
        return PolicyFailed(f"the server at {self._endpoint} answered with {what}.")

    def _played(self, actions: Any) -> Array:
        """Returns an answer's actions as they are played."""
        try:
            return self._layout.played(actions)
        except (ValueError, TypeError) as error:
            raise self._nonsense(f"what is no chunk of actions ({error})") from error


def said_plainly(found: Any) -> Mapping[str, Any]:
    """Returns what a server says of itself as JSON can say it; what is none of JSON is left out, or becomes text."""
    try:
        plainly = json.loads(json.dumps(found, default=_as_text, skipkeys=True))
    except (ValueError, TypeError, RecursionError):
        return {}
    return plainly if isinstance(plainly, dict) else {}


def _as_text(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


def _short(said: BaseException | str) -> str:
    text = f"{type(said).__name__}: {said}" if isinstance(said, BaseException) else said
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def knock(endpoint: Endpoint, seconds: float = _KNOCK_S) -> None:
    """Finds out whether anybody listens there.

    Args:
        endpoint: Where.
        seconds: That it may take; few where somebody has waited for long already.

    Raises:
        PeerUnreachable: If nobody does.
    """
    try:
        socket.create_connection((endpoint.host, endpoint.port), seconds).close()
    except OSError as error:
        raise _unreachable(endpoint, error) from error


def _unreachable(endpoint: Endpoint, error: BaseException) -> PeerUnreachable:
    why = error.sentence.rstrip(".") if isinstance(error, SparringError) else f"{type(error).__name__}: {error}"
    return PeerUnreachable(f"no {endpoint.wire} server answers at {endpoint}: {why}")
