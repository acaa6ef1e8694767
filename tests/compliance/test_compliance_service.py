"""What is around the stream: Describe, health, reflection, and clients that vanish."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import astuple
from pathlib import Path

import grpc
import pytest
from compliance_wire import DEADLINE, Target
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb

HERE = Path(__file__).parent
SERVICE = "sparring.policy.v1.Policy"


def test_describe_says_what_is_hosted_without_a_session(target: Target) -> None:
    description = target.stub.Describe(pb.DescribeRequest(), timeout=DEADLINE)
    assert description == target.description
    assert description.name
    assert description.server_version
    assert description.protocol == PROTOCOL_VERSION
    assert description.needs.chunk_length >= 1
    assert description.needs.history >= 1
    names = [spec.name for spec in description.needs.observations]
    assert all(names)
    assert len(set(names)) == len(names)


def test_health_says_serving(target: Target) -> None:
    stub = health_pb2_grpc.HealthStub(target.channel)
    for service in ("", SERVICE):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_service(target: Target) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(target.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answer = next(stub.ServerReflectionInfo(iter([request]), timeout=DEADLINE))
    names = {service.name for service in answer.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


def test_reflection_knows_the_messages(target: Target) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(target.channel)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)
    answer = next(stub.ServerReflectionInfo(iter([request]), timeout=DEADLINE))
    assert pb.DESCRIPTOR.serialized_pb in list(answer.file_descriptor_response.file_descriptor_proto)


def test_a_client_that_dies_in_the_middle_of_an_episode_leaves_the_server_well(target: Target) -> None:
    with target.open() as bystander:
        bystander.ask(target.hello())
        bystander.ask(target.start(1))
        program = textwrap.dedent("""
            import os, sys
            from compliance_wire import Way
            from sparring.protos import policy_pb2 as pb
            from sparring.protos.policy_pb2_grpc import PolicyStub

            requests = [pb.RolloutRequest.FromString(bytes.fromhex(line)) for line in sys.stdin.read().split()]
            channel = Way(*sys.argv[1:]).connect()
            answers = PolicyStub(channel.__enter__()).Rollout(iter(requests), timeout=20)
            assert next(answers).WhichOneof("message") == "welcome"
            assert next(answers).WhichOneof("message") == "episode_started"
            os.kill(os.getpid(), 9)  # observations are on their way; nobody will read the chunks
        """)
        requests = [
            pb.RolloutRequest(hello=target.hello()),
            pb.RolloutRequest(episode_start=target.start(1)),
            *(pb.RolloutRequest(observation=target.observation(1, step)) for step in range(20)),
        ]
        ended = subprocess.run(
            [sys.executable, "-c", program, *astuple(target.way)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
            input="\n".join(request.SerializeToString().hex() for request in requests),
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert ended.returncode == -9
        target.assert_well()
        assert bystander.ask(target.observation(1, 0)).chunk.episode == 1


def test_a_client_that_cancels_in_the_middle_of_an_episode_leaves_the_server_well(target: Target) -> None:
    for _ in range(10):
        with target.open() as stream:
            stream.ask(target.hello())
            stream.ask(target.start(1))
            stream.send(target.observation(1, 0))
    target.assert_well()


def test_a_method_that_does_not_exist_is_unimplemented(target: Target) -> None:
    call = target.channel.unary_unary("/sparring.policy.v1.Policy/Dream")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=DEADLINE)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_stats_only_grow_and_count_what_was_asked(target: Target) -> None:
    before = target.stub.Stats(pb.StatsRequest(), timeout=DEADLINE)
    with target.open() as stream:
        stream.ask(target.hello())
        stream.ask(target.start(1))
        for step in range(3):
            stream.ask(target.observation(1, step))
        after = target.stub.Stats(pb.StatsRequest(), timeout=DEADLINE)
    assert before.instance == after.instance != ""
    assert after.seconds > before.seconds
    assert after.sessions >= 1
    # Others may use the server while this runs; nobody can make it do less.
    assert after.episodes >= before.episodes + 1
    assert after.observations >= before.observations + 3
    for stats in (before, after):
        assert stats.observations == sum(size * count for size, count in stats.batches.items())
        assert sum(stats.queue_wait_seconds.counts) == stats.observations
        assert sum(stats.inference_seconds.counts) == sum(stats.batches.values())
        for histogram in (stats.queue_wait_seconds, stats.inference_seconds):
            assert list(histogram.bounds) == sorted(set(histogram.bounds))
            assert len(histogram.counts) == len(histogram.bounds) + 1
