"""Where LIBERO's settings are written without a home to write to: where other users of the machine can write, too."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from sparring.env_worker.benchmarks._libero import installation
from sparring.env_worker.benchmarks._libero.installation import LiberoSetupFailed, write_config


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of a process without a home."""
    (tmp_path / "home").write_text("a file, where nobody can make a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: ModuleSpec(name, None, origin=str(tmp_path / "libero" / "__init__.py")),
    )
    monkeypatch.setattr(installation.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setenv("LIBERO_CONFIG_PATH", "")  # put back afterwards
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary" / f"sparring-libero-{os.getuid()}"


def test_they_are_in_a_folder_for_this_user_alone(place: Path, tmp_path: Path) -> None:
    for _ in range(2):  # the next process finds it there
        write_config(tmp_path / "assets")
        folder = Path(os.environ["LIBERO_CONFIG_PATH"])
        assert folder.parent == place
        assert f'assets: "{tmp_path / "assets"}"' in (folder / "config.yaml").read_text()
        assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("made", ["a link", "a file", "open to all", "another user's"])
def test_a_folder_that_somebody_else_may_have_made_is_not_used(place: Path, tmp_path: Path, made: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    if made == "a link":
        place.symlink_to(tmp_path / "elsewhere")
    elif made == "a file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o777 if made == "open to all" else 0o700)
    if made == "another user's":
        if os.getuid():
            pytest.skip("only root can give a folder to somebody else")
        os.chown(place, 12345, 12345)
    with pytest.raises(LiberoSetupFailed, match="is not yours alone"):
        write_config(tmp_path / "assets")
    assert not list((tmp_path / "elsewhere").iterdir())
