"""What is around the stream: Describe, health, reflection, stats, and clients that vanish."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sparring.policy_server.compliance.wire import Target
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.rules import broken, expect

SERVICE: Final = "sparring.policy.v1.Policy"

# Observations are on their way when it kills itself; nobody will read the chunks.
_CLIENT_THAT_DIES: Final = """
import json, os, sys
from sparring.policy_server.compliance.wire import Way
from sparring.protos import policy_pb2 as pb
from sparring.protos.policy_pb2_grpc import PolicyStub

order = json.load(sys.stdin)
requests = [pb.RolloutRequest.FromString(bytes.fromhex(line)) for line in order["requests"]]
with Way(**order["way"]).connect() as channel:
    answers = PolicyStub(channel).Rollout(iter(requests), timeout=order["way"]["deadline"])
    assert next(answers).WhichOneof("message") == "welcome"
    assert next(answers).WhichOneof("message") == "episode_started"
    os.kill(os.getpid(), 9)
"""


def describe_says_what_is_hosted(target: Target) -> None:
    """Describe says what is hosted, without a session, and always the same."""
    description = target.stub.Describe(pb.DescribeRequest(), timeout=target.way.deadline)
    expect(description == target.description, "it says something else each time.")
    expect(description.name, "the policy has no name.")
    expect(description.server_version, "the server has no version.")
    expect(description.protocol == PROTOCOL_VERSION, f"the protocol is {description.protocol}, not {PROTOCOL_VERSION}.")
    needs = description.needs
    expect(needs.chunk_length >= 1, f"chunk_length is {needs.chunk_length}.")
    expect(needs.history >= 1, f"history is {needs.history}.")
    names = [spec.name for spec in needs.observations]
    expect(all(names) and len(set(names)) == len(names), f"it needs observations called {names}.")


def health_says_serving(target: Target) -> None:
    """The standard health service says that it is serving, for the server and for the service."""
    stub = health_pb2_grpc.HealthStub(target.channel)
    for service in ("", SERVICE):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=target.way.deadline)
        expect(answer.status == health_pb2.HealthCheckResponse.SERVING, f"{service!r} has status {answer.status}.")


def reflection_knows_the_service(target: Target) -> None:
    """Reflection lists the service and the health service, and knows the messages."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    names = {service.name for service in _reflected(target, request).list_services_response.service}
    expect({SERVICE, "grpc.health.v1.Health"} <= names, f"it lists {', '.join(sorted(names)) or 'nothing'}.")
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)
    files = _reflected(target, request).file_descriptor_response.file_descriptor_proto
    expect(pb.DESCRIPTOR.serialized_pb in list(files), "its messages are not those of protos/policy.proto.")


def a_client_that_dies_leaves_the_server_well(target: Target) -> None:
    """A client that dies in the middle of an episode leaves the server well, and others undisturbed."""
    requests = [
        pb.RolloutRequest(hello=target.hello()),
        pb.RolloutRequest(episode_start=target.start(1)),
        *(pb.RolloutRequest(observation=target.observation(1, step)) for step in range(20)),
    ]
    order = {"way": asdict(target.way), "requests": [request.SerializeToString().hex() for request in requests]}
    with target.open() as bystander:
        bystander.ask(target.hello())
        bystander.ask(target.start(1))
        ended = subprocess.run(
            [sys.executable, "-c", _CLIENT_THAT_DIES],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=target.way.deadline,
            check=False,
        )
        expect(ended.returncode == -9, f"the client got no episode: {(ended.stderr.splitlines() or ['?'])[-1]}")
        target.expect_well()
        chunk = bystander.ask(target.observation(1, 0)).chunk
        expect(chunk.episode == 1, "another session is disturbed by it.")


def a_client_that_cancels_leaves_the_server_well(target: Target) -> None:
    """A client that cancels in the middle of an episode leaves the server well, also ten of them."""
    for _ in range(10):
        with target.open() as stream:
            stream.ask(target.hello())
            stream.ask(target.start(1))
            stream.send(target.observation(1, 0))
    target.expect_well()


def an_unknown_method_is_unimplemented(target: Target) -> None:
    """A method that does not exist is UNIMPLEMENTED."""
    call: Any = target.channel.unary_unary("/sparring.policy.v1.Policy/Dream")
    try:
        call(b"", timeout=target.way.deadline)
    except grpc.RpcError as error:
        expect(error.code() == grpc.StatusCode.UNIMPLEMENTED, f"it ends with {error.code().name}.")
    else:
        broken("it is answered.")


def stats_count_what_was_asked(target: Target) -> None:
    """Stats only grow, count what was asked, and add up."""
    before = target.stub.Stats(pb.StatsRequest(), timeout=target.way.deadline)
    with target.open() as stream:
        stream.ask(target.hello())
        stream.ask(target.start(1))
        for step in range(3):
            stream.ask(target.observation(1, step))
        after = target.stub.Stats(pb.StatsRequest(), timeout=target.way.deadline)
    expect(before.instance == after.instance != "", "the instance has no name, or another one each time.")
    expect(after.seconds > before.seconds, "its clock does not go.")
    expect(after.sessions >= 1, "an open session is not counted.")
    # Others may use the server while this runs; nobody can make it do less.
    expect(after.episodes >= before.episodes + 1, "an episode is not counted.")
    expect(after.observations >= before.observations + 3, "observations are not counted.")
    for stats in (before, after):
        rows = sum(size * number for size, number in stats.batches.items())
        expect(stats.observations == rows, f"there are {stats.observations} observations, {rows} in batches.")
        waits, passes = stats.queue_wait_seconds, stats.inference_seconds
        expect(sum(waits.counts) == stats.observations, "the waits are not one for each observation.")
        expect(sum(passes.counts) == sum(stats.batches.values()), "the passes are not one for each batch.")
        for histogram in (waits, passes):
            expect(list(histogram.bounds) == sorted(set(histogram.bounds)), "the bounds of a histogram do not go up.")
            expect(len(histogram.counts) == len(histogram.bounds) + 1, "a histogram has too few or too many counts.")


RULES: Final = (
    describe_says_what_is_hosted,
    health_says_serving,
    reflection_knows_the_service,
    a_client_that_dies_leaves_the_server_well,
    a_client_that_cancels_leaves_the_server_well,
    an_unknown_method_is_unimplemented,
    stats_count_what_was_asked,
)


def _reflected(
    target: Target, request: reflection_pb2.ServerReflectionRequest
) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(target.channel)
    return next(stub.ServerReflectionInfo(iter([request]), timeout=target.way.deadline))
