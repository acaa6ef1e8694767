"""What a probe of a device may say, and what is made of it: whatever it is, there is an answer.

The Python that draws is a shell script here, because no driver does these things when one wants it to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.env_worker.rendering.device import Device
from sparring.env_worker.rendering.probe import Drawn, NotDrawn, count_devices, try_device

pytestmark = pytest.mark.processes


def python_that(does: str, folder: Path) -> Path:
    """A Python that does this, whatever it is asked for."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{does}\n")
    file.chmod(0o755)
    return file


def test_what_was_drawn_is_in_the_last_line(tmp_path: Path) -> None:
    python = python_that("""echo hello; echo '["Mesa", "llvmpipe", "4.5", 1.5]'""", tmp_path)
    assert try_device(python, Device("egl", 0)) == Drawn("Mesa", "llvmpipe", "4.5", 1.5)


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("exit 0", "ended without an answer"),
        ("echo; echo", "ended without an answer"),
        ("echo goodbye", "ended without an answer; its last line is 'goodbye'"),
        ("echo 7", "ended without an answer; its last line is '7'"),
        ("echo '[1, 2, 3]'", "ended without an answer; its last line is '[1, 2, 3]'"),
        ("""echo '["a", "b", "c", "d"]'""", "ended without an answer"),
        (r"printf '\377\376\n'", "ended without an answer"),
        ("kill -ABRT $$", "its driver was ended by SIGABRT"),
        ("kill -44 $$", "its driver was ended by signal 44"),
        ("exit 3", "no reason given"),
    ],
)
def test_whatever_else_it_says_it_has_not_drawn(does: str, reason: str, tmp_path: Path) -> None:
    python = python_that(does, tmp_path)
    tried = try_device(python, Device("egl", 0))
    assert isinstance(tried, NotDrawn)
    assert reason in tried.reason


@pytest.mark.parametrize("does", ["exit 0", "echo goodbye", r"printf '\377\n'"])
def test_who_cannot_count_devices_has_none(does: str, tmp_path: Path) -> None:
    assert count_devices(python_that(does, tmp_path)) == 0
