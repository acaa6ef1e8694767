"""Where the compliance suite finds the server it tests.

pytest tests/compliance --policy-server HOST:PORT      any server
SPARRING_COMPLIANCE_ADDRESS=HOST:PORT pytest tests     the same, where the flag is not known yet
pytest tests/compliance                                our own server, with an open and with a strict policy

A server that wants a token, or speaks TLS: --policy-server tls://HOST:PORT --policy-token-file FILE --policy-ca FILE,
or SPARRING_COMPLIANCE_TOKEN_FILE and SPARRING_COMPLIANCE_CA.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparring.protos import policy_pb2 as pb
from sparring.protos.policy_pb2_grpc import PolicyStub

HERE = Path(__file__).parent
sys.path.append(str(HERE))  # for the helpers beside this file, whatever pytest's import mode

from compliance_wire import DEADLINE, Target, Way, satisfying_offer  # noqa: E402

OWN_SERVERS = {
    "zero": ["--policy=zero", '--policy-args={"chunk": 4, "observations": ["observation.image", "observation.state"]}'],
    "strict": ["--policy=strict_policy:StrictPolicy"],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--policy-server", metavar="ADDRESS", help="run the compliance suite against this policy server")
    parser.addoption("--policy-token-file", metavar="FILE", help="the token it wants")
    parser.addoption("--policy-ca", metavar="FILE", help="PEM file with its CA; turns TLS on, as tls://HOST:PORT does")
    parser.addoption("--policy-task", metavar="NAME", help="a task that its policy knows, if it cares")
    parser.addoption("--policy-benchmark", metavar="NAME", help="the benchmark of that task")


def _setting(config: pytest.Config, option: str, variable: str) -> str:
    return str(config.getoption(option, None) or os.environ.get(variable, ""))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        given = _setting(metafunc.config, "--policy-server", "SPARRING_COMPLIANCE_ADDRESS")
        metafunc.parametrize("target", [given] if given else list(OWN_SERVERS), indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """The server under test."""
    if request.param not in OWN_SERVERS:
        with _reached(request.param, request.config) as reached:
            yield reached
        return
    with _own_server(OWN_SERVERS[request.param]) as address, _reached(address, request.config) as reached:
        yield reached


@contextmanager
def _reached(address: str, config: pytest.Config) -> Iterator[Target]:
    way = Way(
        address,
        token_file=_setting(config, "--policy-token-file", "SPARRING_COMPLIANCE_TOKEN_FILE"),
        ca=_setting(config, "--policy-ca", "SPARRING_COMPLIANCE_CA"),
    )
    with way.connect() as channel:
        description = PolicyStub(channel).Describe(pb.DescribeRequest(), timeout=DEADLINE, wait_for_ready=True)
        yield Target(
            way=way,
            channel=channel,
            description=description,
            offer=satisfying_offer(description.needs),
            task=_setting(config, "--policy-task", "SPARRING_COMPLIANCE_TASK"),
            benchmark=_setting(config, "--policy-benchmark", "SPARRING_COMPLIANCE_BENCHMARK"),
        )


@contextmanager
def _own_server(arguments: list[str]) -> Iterator[str]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sparring.policy_server",
            "--listen=127.0.0.1:0",
            "--exit-with-parent",
            "--grace=0",
            *arguments,
        ],
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        yield json.loads(process.stdout.readline())["listening"][0]
        assert process.poll() is None, "the server did not survive the suite"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(DEADLINE)
