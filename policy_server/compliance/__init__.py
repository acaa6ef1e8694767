"""What a policy server of your own can be held against: the rules of protos/policy.proto, over the wire alone.

`sparring check policy-server ADDRESS` runs them all. Nothing here knows our own server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import grpc

from sparring.policy_server.compliance import hello, order, service, tensors
from sparring.policy_server.compliance.wire import Target, Way, satisfying_offer
from sparring.protos import policy_pb2 as pb
from sparring.protos.errors import SparringError
from sparring.protos.policy_pb2_grpc import PolicyStub
from sparring.protos.rules import Verdict, judge

Rule = Callable[[Target], None]

RULES: Final[tuple[Rule, ...]] = (*hello.RULES, *order.RULES, *tensors.RULES, *service.RULES)


@contextmanager
def reached(way: Way, *, benchmark: str = "", task: str = "") -> Iterator[Target]:
    """Finds out what a server hosts, so that it can be offered what its policy needs.

    Args:
        way: How the server is reached.
        benchmark: Whose task it is.
        task: One that its policy knows, if it cares.

    Raises:
        SparringError: If it does not say what it hosts.
    """
    with way.connect() as channel:
        try:
            description = PolicyStub(channel).Describe(pb.DescribeRequest(), timeout=way.deadline, wait_for_ready=True)
        except grpc.RpcError as error:
            raise SparringError(
                f"the server at {way.address} does not say what it hosts: {error.code().name} {error.details() or ''}"
            ) from error
        yield Target(way, channel, description, satisfying_offer(description.needs), task, benchmark)


def verdicts_of(target: Target) -> Iterator[Verdict]:
    """The verdict of each rule, as it is reached."""
    return (judge(rule, target) for rule in RULES)
