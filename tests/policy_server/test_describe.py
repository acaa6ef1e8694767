"""`sparring describe`: what a policy server hosts."""

from __future__ import annotations

import contextlib
import json

import pytest
from click.testing import CliRunner
from policy_serving import Server

from sparring.orchestrator.cli.main import cli
from sparring.protos.errors import SparringError


@pytest.mark.processes
def test_what_is_hosted_is_described() -> None:
    with contextlib.closing(Server("--policy=zero", '--policy-args={"chunk": 7}')) as server:
        shown = CliRunner().invoke(cli, ["describe", server.address])
        document = json.loads(CliRunner().invoke(cli, ["describe", server.address, "--json"]).output)
    assert shown.exit_code == 0
    assert "zero" in shown.output
    assert "up to 7" in shown.output
    assert document["policy"] == "zero"
    assert document["arguments"] == {"chunk": 7}
    assert document["chunk_length"] == 7
    assert document["program"]["packages"]["numpy"]
    assert document["program"]["machine"]["host"] in shown.output


def test_nobody_there_is_a_sentence() -> None:
    with pytest.raises(SparringError, match=r"127\.0\.0\.1:1\b.*\(--timeout\)"):
        CliRunner().invoke(
            cli, ["describe", "127.0.0.1:1", "--timeout", "0.5"], catch_exceptions=False, standalone_mode=False
        )
