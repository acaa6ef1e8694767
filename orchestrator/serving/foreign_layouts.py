"""What a policy behind a foreign wire is shown, said before a run: no wire says it, and a wrong one is 0 %."""

from __future__ import annotations

from collections.abc import Iterator

from sparring.orchestrator.settings import RunSettings


def foreign_layouts(settings: RunSettings) -> list[str]:
    """Returns a sentence for each benchmark of a run whose policy is behind a foreign server; none for other policies.

    One more for each protocol that names the layout of another project's servers.

    Raises:
        UsageError: If no layout is known for one of them, or it cannot be.
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
    return [*policy.warnings, *dict.fromkeys(_other_layouts(settings, policy.wire))]


def _other_layouts(settings: RunSettings, bridge: str) -> Iterator[str]:
    for part in settings.plan.parts:
        # LeRobot's is the layout of whoever names none: it is no bridge's.
        if part.protocol is not None and part.protocol.layout not in ("lerobot", bridge):
            yield (
                f"the protocol {part.protocol.name!r} is for policies that are shown {part.benchmark} by the layout of "
                f"{part.protocol.layout}, and this policy is shown it by that of {bridge}: its "
                "score is not one of that project's."
            )
