"""Folders for sockets: short enough, and gone when they are not needed."""

from __future__ import annotations

import socket
import tempfile

import pytest

from sparring.orchestrator.machine.sockets import socket_folder, temporary_folder
from sparring.protos.errors import SparringError


@pytest.mark.parametrize("length", [20, 60, 68, 69, 80, 200])
def test_sockets_have_room_however_long_the_path_of_temporary_files_is(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="x" * (length - len("/tmp/12345678"))) as named:
        assert len(named) == length
        monkeypatch.setattr(tempfile, "tempdir", named)
        with socket_folder() as folder:
            assert folder.is_relative_to(named) == (length < 69), "as near to what was named as can be"
            temporary = temporary_folder(folder)
            assert (temporary is None) == (56 <= length < 69)
            listeners = [folder / "policy.sock", folder / "policy.sock.frames"]
            if temporary is not None:
                listeners.append(temporary / "pymp-12345678" / "listener-12345678")
                listeners[-1].parent.mkdir()
            for path in listeners:
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(str(path))
        assert not folder.parent.exists()


def test_no_room_for_sockets_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(SparringError, match=r"in '/proc'.*TMPDIR"), socket_folder():
        pass
