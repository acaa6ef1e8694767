"""`sparring token`: a secret that nobody guesses, in a file that nobody else reads."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparring.orchestrator.cli.main import cli
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import read_token


def test_a_token_is_secret_and_is_one_that_servers_take(tmp_path: Path) -> None:
    made = tmp_path / "token"
    assert CliRunner().invoke(cli, ["token", str(made)]).exit_code == 0
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    first = read_token(made, flag="--token-file")
    with pytest.raises(UsageError, match=r"there is a file .* already"):
        CliRunner().invoke(cli, ["token", str(made)], catch_exceptions=False, standalone_mode=False)
    assert read_token(made, flag="--token-file") == first, "what there is stays"
    with pytest.raises(SparringError, match="cannot be written: No such file"):
        CliRunner().invoke(cli, ["token", str(tmp_path / "no" / "x")], catch_exceptions=False, standalone_mode=False)
    another = tmp_path / "another"
    CliRunner().invoke(cli, ["token", str(another)])
    assert read_token(another, flag="--token-file") != first
