"""What a user's own code is made of, as its import statements say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sparring.policy_server.policies import POLICIES_PACKAGE
from sparring.protos.sources import sources_of

Packages = Callable[[str, str], Mapping[str, str]]


@pytest.fixture
def packages_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    monkeypatch.syspath_prepend(tmp_path)

    def packages(name: str, code: str) -> Mapping[str, str]:
        (tmp_path / f"{name}.py").write_text(code)
        return sources_of([name], walked=POLICIES_PACKAGE).packages

    return packages


def test_what_is_imported_by_its_public_name_is_the_same_as_by_its_modules(packages_of: Packages) -> None:
    by_name = packages_of("by_name", "from sparring import TorchPolicy, PolicySpec")
    by_module = packages_of("by_module", "from sparring.policy_server.policies.torch import TorchPolicy")
    assert by_name == by_module
    assert "torch" in by_name


def test_what_is_not_asked_for_does_not_count(packages_of: Packages) -> None:
    assert packages_of("light", "import sparring\nfrom sparring import Results") == {}
