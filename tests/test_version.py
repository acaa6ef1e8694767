"""The version is decided in pyproject.toml, and nowhere else: one program writes it wherever it has to stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from sparring.orchestrator.launchers.docker.engine import release

HISTORY = re.compile(r"release[- ]0\.1\.0|\| 0\.1\.0 \||## 0\.1\.0 ")
"""What tells of an earlier release."""
NOT_OURS = (
    "constraints/",
    "docker/constraints/",
    "docker/requirements/",
    "env_worker/environments/",
    "tests/",
    "CHANGELOG.md",
)


def tracked() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def said_in(root: Path, names: list[str], version: str) -> dict[str, int]:
    """How often each file says the version, beside what it tells of earlier ones."""
    found = {}
    for name in names:
        if not name.startswith(NOT_OURS) and not name.startswith("src/") and not name.endswith(".svg"):
            text = HISTORY.sub("", (root / name).read_text(errors="replace"))
            if count := len(re.findall(rf"(?<![\d.]){re.escape(version)}(?![\d.]*\d)", text)):
                found[name] = count
    return found


def set_version(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools/set-version"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in tracked():
        if not name.startswith(("tests/", "src/")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_it_is_the_same_everywhere() -> None:
    done = set_version(ROOT, "--check")
    assert (done.returncode, done.stdout) == (0, "")
    assert set_version(ROOT, "--print").stdout.strip() == release(), "and that of the code, as it is installed"


def test_one_program_writes_it_wherever_it_stands(copy: Path) -> None:
    names = [name for name in tracked() if (copy / name).is_file()]
    before = said_in(copy, names, release())
    assert before["pyproject.toml"] == before["CITATION.cff"] == 1
    assert before["compose.yaml"] > 1
    assert not [name for name in before if name.endswith(".py")], "code asks the installed distribution"
    assert not [name for name in before if name.startswith(".github/")], "and workflows ask the program"
    done = set_version(copy, "9.8.7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert said_in(copy, names, release()) == {}
    assert said_in(copy, names, "9.8.7") == before
    log = (copy / "CHANGELOG.md").read_text()
    assert re.search(r"## Unreleased\n\n## 9\.8\.7 \(\d{4}-\d\d-\d\d\)\n\n### Added", log), "what was to come has come"


def test_a_place_that_says_another_is_named(copy: Path) -> None:
    path = copy / "compose.hosting.yaml"
    path.write_text(path.read_text().replace(f":{release()}", ":0.0.9"))
    done = set_version(copy, "--check")
    assert done.returncode == 1
    assert done.stdout == f"compose.hosting.yaml says 0.0.9, pyproject.toml {release()}\n"
    assert "tools/set-version 0.2.0" in set_version(copy, "latest").stderr
