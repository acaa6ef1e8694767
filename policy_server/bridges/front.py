"""Other people's wires in front of our policy: `sparring serve --also openpi:8000`.

A client of theirs has a session like one of ours: the same policy, the same batches, the same limits, the same token.
"""

from __future__ import annotations

import itertools
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np

from sparring.policy_server.bridges.arrays import BadMessage, numbers_of
from sparring.policy_server.bridges.layout import BridgeLayout
from sparring.policy_server.bridges.presets import presets_of
from sparring.policy_server.bridges.wires import SERVED, WIRES
from sparring.policy_server.errors import PolicyRefused
from sparring.policy_server.hosted import HostedPolicy
from sparring.policy_server.policies.base import Instruction, Observation, spec_on
from sparring.policy_server.rollouts import Rollouts, Runner
from sparring.protos.advice import Hint, shortened
from sparring.protos.errors import SparringError, UsageError, unknown
from sparring.protos.installing import install_command
from sparring.protos.limits import MAX_EXTRA_BYTES
from sparring.protos.net.address import Address, parse_tcp
from sparring.protos.spec import Offer, PolicySpec, TensorSpec, spec_of
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)

_LONGEST_TOLD: Final = 1000
"""Characters of a sentence to a client, and of the log: part of it may be the client's own, and as long as it likes."""


@dataclass(frozen=True)
class FrontSettings:
    """One wire more, and where: `openpi:8000`, `openpi:0.0.0.0:8000`, either with `/libero` for its layout.

    Attributes:
        wire: Its name.
        address: Where it is served.
        benchmark: Whose layout its clients have; empty: they call things as our policy does.
    """

    wire: str
    address: Address
    benchmark: str

    @classmethod
    def parse(cls, text: str) -> FrontSettings:
        """Reads it.

        Raises:
            UsageError: If it is none.
        """
        wire, _, place = text.partition(":")
        if wire not in SERVED:
            raise unknown("wire", wire, SERVED)
        where, _, benchmark = place.partition("/")
        if benchmark and benchmark not in presets_of(wire):
            raise unknown(f"layout of {wire}:", benchmark, presets_of(wire))
        if not where:
            raise UsageError(f"{text!r} has no port to listen at: write it as in {wire}:8000.")
        # Like metrics: without a host it is for this machine only.
        address = parse_tcp(where if ":" in where else f"127.0.0.1:{where}")
        return cls(wire, address, benchmark)

    @property
    def has_limits(self) -> bool:
        """Whether it can be for others than this machine: strangers are refused before what they send is read."""
        return WIRES[self.wire].refuses_strangers

    @property
    def layout(self) -> BridgeLayout | None:
        """What its clients call what; None: what our policy does."""
        return presets_of(self.wire)[self.benchmark] if self.benchmark else None


class ForeignClient:
    """One client's session with the policy.

    Args:
        hosted: The policy.
        name: Of the session, in logs.
        settings: How the client speaks.
    """

    def __init__(self, hosted: HostedPolicy[Runner], name: str, settings: FrontSettings) -> None:
        self._hosted = hosted
        self._settings = settings
        self.name = name
        self._spec: PolicySpec = spec_on(hosted.policy, settings.benchmark)
        self._needs: PolicySpec | None = None
        self._offer: Offer | None = None
        self._task: Instruction | None = None
        self._state: Any = None
        self._said = ""
        self._step = 0
        if self._spec.history > 1:
            raise PolicyRefused(
                f"this policy looks at the last {self._spec.history} steps, and clients of {settings.wire} show one."
            )

    @property
    def layout(self) -> BridgeLayout:
        """What the client calls what."""
        return self._settings.layout or BridgeLayout()

    @property
    def policy(self) -> str:
        """The policy's name, as its server was given it."""
        return self._hosted.description.name

    @property
    def wanted(self) -> Mapping[str, TensorSpec]:
        """What the policy looks at."""
        return self._spec.named

    @property
    def benchmark(self) -> str:
        """Whose layout the client has; empty: it calls things as the policy does."""
        return self._settings.benchmark

    @property
    def control(self) -> str:
        """What the policy's actions mean, where a benchmark takes several; empty: it does not say."""
        return self._spec.control

    def reset(self) -> None:
        """Ends the episode; the next observation begins another."""
        self._task = None

    async def act(self, shown: Mapping[str, Any], instruction: str) -> Array:
        """Returns the policy's chunk for what a client shows; another sentence begins another episode.

        Raises:
            BadMessage: If the sentence is too long, or no text.
            SpecMismatch: If it does not show what the policy looks at.
            PolicyFailed: If the policy failed.
        """
        _check_sentence(instruction)
        arrays = self._arrays(shown)
        needs, offer = self._settled(arrays)
        if self._task is None or instruction != self._said:
            task = Instruction(instruction, benchmark=self._settings.benchmark, offer=offer)
            self._task, self._said, self._step = task, instruction, 0
            self._state = None  # as in SessionHandler
            self._state = await self._hosted.runner.new_session(task, 0, who=self)
            self._hosted.stats.episode()
        seen = {name: arrays[name] for name in needs.named}
        observation = Observation(seen, self._task, self._step)
        self._step += 1
        assert needs.action_dim is not None, "as settled"
        answer = await self._hosted.runner.act(observation, self._state, action_dim=needs.action_dim, who=self)
        return self.layout.given_back(answer.actions)

    def _arrays(self, shown: Mapping[str, Any]) -> dict[str, Array]:
        flat = self.layout.unfolded(shown)
        known = {name: array for name, value in flat.items() if (array := numbers_of(value)) is not None}
        found = self._settings.layout.understood(known) if self._settings.layout else known
        arrays: dict[str, Array] = {}
        for name, array in found.items():
            wanted = self._spec.named.get(name)
            if wanted is not None and wanted.dtype and array.dtype.kind == "f" and wanted.dtype.startswith("float"):
                array = array.astype(wanted.dtype)  # states are float64 with some clients, and float32 with policies
            arrays[name] = array
        return arrays

    def _settled(self, arrays: Mapping[str, Array]) -> tuple[PolicySpec, Offer]:
        observations = {name: spec_of(array) for name, array in arrays.items()}
        if self._needs is not None and self._offer is not None and self._offer.observations == observations:
            return self._needs, self._offer
        size = self._spec.action_dim or (len(self.layout.actions) if self.layout.actions else 0)
        if not size:
            raise PolicyRefused(
                "the policy does not say how many numbers an action has, and clients of "
                f"{self._settings.wire} do not either."
            )
        offer = Offer(observations, (-np.inf,) * size, (np.inf,) * size, control=self._spec.control)
        self._needs, self._offer = self._spec.settle(offer), offer
        return self._needs, self._offer


def _check_sentence(instruction: str) -> None:
    """Holds a task's sentence against what our own clients' may have: it goes straight into a tokenizer."""
    try:
        size = len(instruction.encode())
    except UnicodeEncodeError as error:
        raise BadMessage("a sentence that is no text.") from error
    if size > MAX_EXTRA_BYTES:
        raise BadMessage(f"a sentence of {size} bytes; {MAX_EXTRA_BYTES} are the most.")


class Front(ABC):
    """Serves one wire.

    Args:
        settings: Which wire, and where.
        hosted: The policy, when it is loaded.
        rollouts: Who counts the sessions.
        token: That clients must bring; empty: none.
        most_bytes: Of one message.
        tls: What connections are encrypted with, where the wire can be; None: they are not.
    """

    def __init__(
        self,
        settings: FrontSettings,
        hosted: Callable[[], Any],
        rollouts: Rollouts,
        *,
        token: str,
        most_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._hosted = hosted
        self._rollouts = rollouts
        self._token = token
        self._most_bytes = most_bytes
        self._tls = tls
        self._numbers = itertools.count(1)

    @abstractmethod
    async def listen(self) -> Address:
        """Starts to listen, and returns where.

        Raises:
            UsageError: If it cannot be listened there.
        """

    @abstractmethod
    async def close(self) -> None:
        """Ends all of it."""

    async def _client(self) -> ForeignClient:
        """Returns a new client's session, when the policy is loaded."""
        hosted: HostedPolicy[Runner] = await self._hosted()
        return ForeignClient(hosted, f"{self._settings.wire}-{next(self._numbers)}", self._settings)

    def _cannot(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self._settings.wire} cannot be served at {self._settings.address}: {error.strerror or error}. Give "
            f"another port with {Hint('also')}."
        )


def told(error: Exception) -> str:
    """Returns what a client is told of an error, and the log: one sentence, whatever its message has led to."""
    if not isinstance(error, SparringError):
        log.debug("a message of a stranger", exc_info=error)
        return f"a message that this wire does not have ({type(error).__name__})."
    said = error.sentence
    return said if len(said) <= _LONGEST_TOLD else f"{shortened(said, _LONGEST_TOLD)} ..."


def front(settings: FrontSettings, *args: Any, **more: Any) -> Front:
    """Makes what serves a wire.

    Raises:
        UsageError: If what it needs is not installed.
    """
    module, _, name = SERVED[settings.wire].partition(":")
    try:
        found = import_module(f"sparring.policy_server.bridges.servers.{module}")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{settings.wire} needs {error.name!r}, which is not installed: {install_command('bridges')}."
        ) from error
    made: Front = getattr(found, name)(settings, *args, **more)
    return made
