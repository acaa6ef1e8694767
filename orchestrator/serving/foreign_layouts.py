"""What a policy behind a foreign wire is shown, said before a run: no wire says it, and a wrong one is 0 %."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

if TYPE_CHECKING:
    from sparring.policy_server.bridges.policy import ForeignPolicy

_SPARE_SECONDS: Final = 10
"""For what passes between a run and a foreign server beside its answer."""


def foreign_layouts(settings: RunSettings, *, waits: float | None = None) -> list[str]:
    """Returns a sentence for each benchmark of a run whose policy is behind a foreign server; none for other policies.

    One more for each protocol that names the layout of another project's servers.

    Args:
        settings: Of the run.
        waits: Seconds that the run waits for an answer before it takes the policy for hung; None: as long as it takes.

    Raises:
        UsageError: If no layout is known for one of them, or it cannot be; or its server has longer for an answer.
    """
    # Not before it is called: a run imports nothing of the policy server.
    from sparring.policy_server.bridges.wires import is_foreign
    from sparring.policy_server.policies import load_policy

    name = settings.policy.name
    if name is None or not is_foreign(name):
        return []
    from sparring.policy_server.bridges.policy import ForeignPolicy

    policy = load_policy(name, settings.policy.policy_arg)
    assert isinstance(policy, ForeignPolicy)
    for part in settings.plan.parts:
        policy.spec_for(part.benchmark)
    slow = [] if waits is None else _slow_to_load(policy, waits)
    return [*policy.warnings, *dict.fromkeys(_other_layouts(settings, policy.wire)), *slow]


def _slow_to_load(policy: ForeignPolicy, waits: float) -> Iterator[str]:
    """Says that a server may load its checkpoint for longer than the run waits; refuses one that may answer so late."""
    if policy.timeout >= waits:
        raise UsageError(
            f"{policy.address} has {policy.timeout:g} s for an answer ({Hint('policy_arg', 'timeout')}), and the run "
            f"waits for {waits:g} s until it takes the policy for hung: give "
            f"{Hint('policy_timeout', value=round(policy.timeout) + _SPARE_SECONDS)}."
        )
    if policy.load_timeout >= waits:
        yield (
            f"{policy.address} has {policy.load_timeout:g} s to load its checkpoint, and the run waits for {waits:g} s "
            "until it takes the policy for hung: if loading takes longer, give "
            f"{Hint('policy_timeout', value=round(policy.load_timeout) + _SPARE_SECONDS)}."
        )


def _other_layouts(settings: RunSettings, bridge: str) -> Iterator[str]:
    for part in settings.plan.parts:
        # LeRobot's is the layout of whoever names none: it is no bridge's.
        if part.protocol is not None and part.protocol.layout not in ("lerobot", bridge):
            yield (
                f"the protocol {part.protocol.name!r} is for policies that are shown {part.benchmark} by the layout of "
                f"{part.protocol.layout}, and this policy is shown it by that of {bridge}: its "
                "score is not one of that project's."
            )
