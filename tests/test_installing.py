"""What docs and messages tell people to install: extras that exist, with the versions that are tested."""

from __future__ import annotations

import re
import tomllib

from support import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = frozenset(PROJECT["optional-dependencies"])
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")])
CODE = sorted(
    path for room in ("protos", "policy_server", "env_worker", "orchestrator") for path in (ROOT / room).rglob("*.py")
)


def named(text: str) -> set[str]:
    """The extras of sparring that a text names literally, in a command or a message."""
    found = re.findall(r"(?:sparring|[\"' ]\.)\[([a-z,]+)\]", text)
    return {extra for names in found for extra in names.split(",")}


def test_extras_that_are_named_exist() -> None:
    wrong = {path: extras for path in (*PAGES, *CODE) if (extras := named(path.read_text()) - EXTRAS)}
    assert wrong == {}


def test_the_check_sees_what_does_not_exist() -> None:
    assert named("pip install 'sparring[gym,nope]'; pip install -e '.[also]'") == {"gym", "nope", "also"}


def test_torch_is_installed_with_the_version_that_is_tested() -> None:
    """A checkout pins torch; without the constraints pip would take whatever is newest."""
    commands = [line.strip() for page in PAGES for line in page.read_text().splitlines() if "pip install" in line]
    torch = [line for line in commands if re.search(r"-e '\.\[[a-z,]*\btorch\b", line)]
    assert torch
    assert [line for line in torch if "-c constraints/dev.txt" not in line] == []
    assert "torch==" in (ROOT / "constraints/dev.txt").read_text()
    assert any("docs" in str(page) and "-c constraints/dev.txt" in page.read_text() for page in PAGES)
