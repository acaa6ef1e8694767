"""What a user names is read up to a limit, and a pipe that nobody writes to is not waited for for ever."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sparring.orchestrator.cli import lerobot_flags
from sparring.orchestrator.settings import config_file
from sparring.orchestrator.settings.config_file import ConfigFile
from sparring.protos import named_file
from sparring.protos.errors import UsageError
from sparring.protos.named_file import read_named
from sparring.protos.net import access
from sparring.protos.net.access import check_certificate, read_pem, read_token


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(named_file, "_WAIT_SECONDS", 0.01)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


READERS: dict[str, Callable[[Path], object]] = {
    "--config": ConfigFile.read,
    "--config_path": lerobot_flags._read_file,
    "--token-file": lambda path: read_token(path, flag="--token-file"),
    "--ca": lambda path: read_pem(path, flag="--ca"),
    "--tls-cert": lambda path: check_certificate(path, path),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_a_pipe_without_a_writer_is_told_and_not_waited_for(reader: Callable[[Path], object], pipe: Path) -> None:
    with pytest.raises(UsageError, match=r"nobody has written to it and closed it within .* or name a file"):
        reader(pipe)


def test_a_writer_that_never_closes_is_not_waited_for_either(pipe: Path) -> None:
    held = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(held, b"seed: 3")
        with pytest.raises(UsageError, match="closed it within"):
            ConfigFile.read(pipe)
    finally:
        os.close(held)


def test_what_a_shell_makes_of_a_command_is_read(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a pipe, whose writer may come later."""
    monkeypatch.setattr(named_file, "_WAIT_SECONDS", 60.0)
    writer = threading.Thread(target=pipe.write_text, args=["seed: 3\n" + "#" * 200_000])
    writer.start()
    assert ConfigFile.read(pipe).values == {"seed": 3}
    writer.join()


def test_a_certificate_that_would_be_read_twice_is_no_pipe(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_file, "_WAIT_SECONDS", 60.0)
    writer = threading.Thread(target=pipe.write_text, args=["-----BEGIN CERTIFICATE-----"])
    writer.start()
    with pytest.raises(UsageError, match="no regular file: copy what it holds to one"):
        check_certificate(pipe, pipe)
    writer.join()


def test_bytes_have_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_named(path, 10) == b"x" * 10
    with pytest.raises(OSError, match="it has more than 9 bytes"):
        read_named(path, 9)
    with pytest.raises(OSError, match="it has more than 1,000 bytes"):
        read_named(Path("/dev/zero"), 1000)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        ConfigFile.read(tmp_path)


@pytest.mark.parametrize(
    ("flag", "limit"),
    [
        ("--config", (config_file, "_MOST_BYTES")),
        ("--config_path", (lerobot_flags, "_MOST_CONFIG")),
        ("--token-file", (access, "_LONGEST_TOKEN")),
        ("--ca", (access, "_MOST_PEM")),
    ],
)
def test_each_has_its_own(
    flag: str, limit: tuple[object, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    text = "seed: 3" if "config" in flag else "x" * 20
    path.write_text(text)
    path.chmod(0o600)
    monkeypatch.setattr(*limit, len(text))
    assert READERS[flag](path)
    monkeypatch.setattr(*limit, len(text) - 1)
    with pytest.raises(UsageError, match=f"it has more than {len(text) - 1} bytes"):
        READERS[flag](path)
