"""Folders for sockets: short enough, and gone when they are not needed."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from orchestrator.sockets import socket_folder, temporary_folder
from protos.errors import SparringError


@pytest.mark.parametrize("length", [10, 60, 200])
def test_sockets_have_room_however_long_the_path_of_temporary_files_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    named = tmp_path / ("x" * length)
    named.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(named))
    with socket_folder() as folder:
        for path in (folder / "policy.sock", temporary_folder(folder) / "pymp-12345678" / "listener-12345678"):
            path.parent.mkdir(exist_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
    assert not folder.parent.exists()


def test_no_room_for_sockets_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(SparringError, match=r"in '/proc'.*TMPDIR"), socket_folder():
        pass
