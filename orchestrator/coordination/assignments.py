"""What a worker is told that it is for."""

from __future__ import annotations

from sparring.orchestrator.machine.memory import parse_memory
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb


def assignment_for(order: pb.Assignment, settings: RunSettings, policy: PolicyAccess, *, slots: int) -> pb.Assignment:
    """Returns an assignment of one worker.

    Args:
        order: What is the same for all of its part of the run.
        settings: Of the run.
        policy: Where it finds the policy.
        slots: That it holds.
    """
    assignment = pb.Assignment()
    assignment.CopyFrom(order)
    assignment.MergeFrom(
        pb.Assignment(
            slots=slots,
            policy_addresses=map(str, policy.addresses),
            policy_token=policy.token,
            policy_ca=policy.ca,
            policy_cert=policy.identity.cert if policy.identity else b"",
            policy_key=policy.identity.key if policy.identity else b"",
            policy_replicas=policy.replicas,
            policy_program=policy.program,
            policy_seconds=settings.policy.policy_timeout,
            stall_seconds=settings.plan.stall_timeout,
            slot_memory=parse_memory(settings.plan.slot_memory),
        )
    )
    return assignment
