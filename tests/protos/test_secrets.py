"""Who may be let in: addresses beyond this machine want a secret, and a secret is long and its user's own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError
from sparring.protos.net import access
from sparring.protos.net.access import MIN_TOKEN, check_reach, read_token
from sparring.protos.net.address import Address

BEYOND = ["0.0.0.0:1", "[::]:1", "10.0.0.7:1", "gpu-box:1", "tls://gpu-box:1", ":1"]
HERE = ["127.0.0.1:1", "127.3.2.1:1", "localhost:1", "[::1]:1", "tls://localhost:1", "unix:///policy.sock"]


def reach(address: str, *, secret: bool = False, insecure: bool = False) -> None:
    check_reach(
        Address.listening(address), who="the server", secret=secret, insecure=insecure, advice="give --token-file"
    )


@pytest.mark.parametrize("address", BEYOND)
def test_beyond_this_machine_nobody_listens_without_a_secret(address: str) -> None:
    with pytest.raises(UsageError) as refused:
        reach(address)
    assert refused.value.told(FLAGS) == (
        f"the server would listen at {Address.listening(address)} and let in everybody who reaches it: "
        "give --token-file, listen at 127.0.0.1, or say that it is meant with --insecure."
    )


@pytest.mark.parametrize("address", BEYOND)
def test_beyond_this_machine_it_takes_a_secret_or_a_word(address: str) -> None:
    reach(address, secret=True)
    reach(address, insecure=True)


@pytest.mark.parametrize("address", HERE)
def test_on_this_machine_nothing_is_needed(address: str) -> None:
    reach(address)


@pytest.fixture
def token(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str = MIN_TOKEN * "x", mode: int = 0o600) -> Path:
        path = tmp_path / "token"
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def test_a_token_that_can_be_guessed_is_refused(token: Callable[..., Path]) -> None:
    assert read_token(token(MIN_TOKEN * "x"), flag="--token-file") == MIN_TOKEN * "x"
    for short in ("s", (MIN_TOKEN - 1) * "s"):
        with pytest.raises(UsageError, match=f"holds {len(short)} characters, which can be guessed") as refused:
            read_token(token(short), flag="--token-file")
        assert short not in str(refused.value).split()


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_token_that_its_user_or_a_group_can_read_is_taken(token: Callable[..., Path], mode: int) -> None:
    assert read_token(token(mode=mode), flag="--token-file")


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o666])
def test_a_token_that_everybody_can_read_is_refused(token: Callable[..., Path], mode: int) -> None:
    path = token(mode=mode)
    with pytest.raises(UsageError, match=f"every user of this machine: chmod 600 {path}"):
        read_token(path, flag="--token-file")
    path.chmod(0o600)
    assert read_token(path, flag="--token-file"), "and doing what it says helps"


def test_what_is_not_this_users_to_change_is_taken_as_it_is(
    token: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = token(mode=0o444)
    with monkeypatch.context() as other:  # who is not root cannot give a file away
        owner = os.geteuid()
        other.setattr(os, "geteuid", lambda: owner + 1)
        assert read_token(path, flag="--token-file"), "somebody else's, as a container's secret is"
    with monkeypatch.context() as engine:  # where tests cannot write
        engine.setattr(access, "_SECRETS", (tmp_path,))
        assert read_token(path, flag="--token-file"), "in the folder that engines have for secrets"
    with pytest.raises(UsageError, match="chmod 600"):
        read_token(path, flag="--token-file")


def test_a_token_may_come_from_a_pipe() -> None:
    reading, writing = os.pipe()
    try:
        os.fchmod(reading, 0o666)
        os.write(writing, MIN_TOKEN * b"p")
        os.close(writing)
        path = Path(f"/dev/fd/{reading}")
        assert stat.S_ISFIFO(path.stat().st_mode)
        assert read_token(path, flag="--token-file") == MIN_TOKEN * "p"
    finally:
        os.close(reading)
