"""Assets are fetched by a Python that can: this one, or that of the benchmark's own environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import free_port

from sparring.env_worker.benchmarks.libero import Libero
from sparring.env_worker.hub import AssetsError, HubMissing
from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.settings import assets, read_settings
from sparring.orchestrator.settings.assets import fetch_assets
from sparring.protos.errors import UsageError


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, a hub that nobody can reach, and a Python that cannot ask it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    for name in ("SPARRING_LIBERO_ASSETS", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


def fetch(**flags: str) -> None:
    settings = read_settings({"benchmark": "libero", "task": "libero_goal", "policy": "expert", **flags}, None)
    fetch_assets(settings, settings.plan.parts[0])


def test_the_benchmark_s_own_python_asks_the_hub_where_this_one_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setattr(assets, "interpreter", lambda benchmark: other)
    with pytest.raises(AssetsError, match="cannot be reached to download them: Connection refused") as caught:
        fetch()
    assert not isinstance(caught.value, HubMissing)


def test_where_there_is_no_other_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "interpreter", lambda benchmark: Path(sys.executable))
    with pytest.raises(HubMissing, match="needs the package huggingface_hub"):
        fetch()


def test_they_can_be_fetched_before_a_run_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(Libero, "fetch", lambda benchmark, settings: asked.append(settings.assets))
    said = CliRunner().invoke(cli, ["fetch", "libero", "--settings", '{"assets": "/srv/libero"}'])
    assert (said.output, asked) == ("libero has its assets.\n", ["/srv/libero"])


@pytest.mark.parametrize("settings", ["assets", "[]"])
def test_settings_that_are_no_json_object_are_told(settings: str) -> None:
    with pytest.raises(UsageError, match="--settings is not"):
        CliRunner().invoke(
            cli, ["fetch", "libero", "--settings", settings], catch_exceptions=False, standalone_mode=False
        )
