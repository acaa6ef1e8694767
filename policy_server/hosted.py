"""A policy that is made and warm, and what goes with it, wherever those who ask it are."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, TypeVar

from sparring.policy_server.errors import PolicyAway, PolicyBroken
from sparring.policy_server.policies.base import Policy, spec_on, warnings_of
from sparring.policy_server.program import program_of, program_sha256
from sparring.policy_server.session import PolicyRunner, SessionHandler
from sparring.policy_server.stats import StatsCounter
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.advice import Advice
from sparring.protos.data_files import data_of
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.sources import Sources
from sparring.protos.tracebacks import Tracebacks

log = logging.getLogger(__name__)

R = TypeVar("R", bound=PolicyRunner)


@dataclass(frozen=True)
class HostedPolicy(Generic[R]):
    """A policy, what is said of it, and what runs it.

    Attributes:
        policy: Made and warm.
        description: What clients are told about it.
        runner: The batcher, or what runs the policy at once.
        stats: Where what is done is counted.
        logs_warnings: Whether warnings are logged, and not only counted.
        tracebacks: Where what its code raises is kept.
    """

    policy: Policy
    description: pb.PolicyDescription
    runner: R
    stats: StatsCounter
    logs_warnings: bool = True
    tracebacks: Tracebacks = field(default_factory=Tracebacks)

    def session(self, name: str) -> SessionHandler:
        """Returns the answering side of a new session."""
        brief = pb.PolicyDescription()
        brief.CopyFrom(self.description)
        brief.ClearField("program")  # it is long, and said to those who ask
        return SessionHandler(
            name,
            brief,
            partial(spec_on, self.policy),
            self.runner,
            on_episode=self.stats.episode,
            on_warning=self._warn,
            on_welcome=self._welcome,
            check_conditions=getattr(self.policy, "check_conditions", lambda benchmark, conditions: None),
            tracebacks=self.tracebacks,
        )

    def _welcome(self) -> None:
        if away := getattr(self.policy, "away", ""):
            raise PolicyAway(str(away))
        self.stats.policy_warnings(warnings_of(self.policy))

    def _warn(self, sentence: str) -> None:
        if self.stats.warning(sentence) and self.logs_warnings:
            log.warning("%s", Advice(sentence))


def warm_policy(
    policy: Policy | Callable[[], Policy],
    name: str,
    *,
    not_its_own: tuple[type[BaseException], ...] = (),
    tracebacks: Tracebacks | None = None,
) -> Policy:
    """Makes the policy, if it is a function that makes it, and warms it up.

    Args:
        policy: Or what makes it.
        name: For what is said about its failures.
        not_its_own: What may come out of its warm-up and is not its failure, such as Ctrl-C.
        tracebacks: Where what its code raises is kept.

    Raises:
        UsageError: If it fails in its warm-up, or as what makes it says.
    """
    try:
        return _warm(policy, name, not_its_own)
    except PolicyBroken as broken:
        told = (tracebacks or Tracebacks()).error_for(broken)
        raise told from told.__cause__


def _warm(policy: Policy | Callable[[], Policy], name: str, not_its_own: tuple[type[BaseException], ...]) -> Policy:
    # Who has both members is a policy, whatever else it is: a module of torch can be called, too.
    made: Any = policy
    if not (hasattr(policy, "act") and hasattr(policy, "new_session")):
        assert callable(policy)
        made = policy()
    if hasattr(made, "warm_up"):
        try:
            made.warm_up()
        except not_its_own:
            raise
        except UsageError:  # a sentence that says what to do needs no traceback
            raise
        except BaseException as error:  # a user's policy may raise anything, and a SystemExit would end our loop
            said = error.sentence if isinstance(error, SparringError) else f"{type(error).__name__}: {error}"
            raise PolicyBroken(f"the policy {name!r} failed in its warm-up: {said}") from error
    return made  # type: ignore[no-any-return]


def described(
    policy: Policy,
    name: str,
    arguments: Mapping[str, Any],
    checkpoint_sha256: str | None = None,
    *,
    code: Sources | None = None,
) -> pb.PolicyDescription:
    """Returns what clients are told about a policy.

    Args:
        policy: Made.
        name: As users know it.
        arguments: It was made with.
        checkpoint_sha256: Hash of the weights, where the policy's own word for it is not to be taken.
        code: Its source, as it was when it was made; None: nothing is told of it.
    """
    own_word = getattr(policy, "checkpoint_sha256", "")
    description = pb.PolicyDescription(
        name=name,
        arguments={k: json.dumps(v, sort_keys=True) for k, v in arguments.items()},
        checkpoint_sha256=own_word if checkpoint_sha256 is None else checkpoint_sha256,
        server_version=_version(),
        protocol=PROTOCOL_VERSION,
        needs=policy.spec.to_message(),
        max_sessions=max(0, getattr(policy, "max_sessions", None) or 0),
    )
    if code is not None:
        # A policy that names the hash of its weights has read the files that its arguments name, however large.
        other = getattr(policy, "data_sha256", "")
        data = {} if own_word else data_of(arguments, folders=not other)
        if other:
            data["what it has read"] = str(other)
        program = program_of(code, name, data)
        description.program.CopyFrom(program)
        description.program_sha256 = program_sha256(program)
    return description


def _version() -> str:
    try:
        return version("sparring")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0+unknown"
