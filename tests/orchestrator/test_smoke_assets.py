"""Which assets `sparring smoke` gives to a benchmark's container: those that a run would have.

The engine is a stand-in: what is asked of it is the question, and tests/docker asks a real one.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.orchestrator.launchers.docker.engine import BENCHMARK_LABEL, Image
from sparring.orchestrator.smoke.images import smoke_image
from sparring.protos.errors import UsageError

VARIABLE = "SPARRING_LIBERO_ASSETS"


class Engine:
    """Has images of any name, made for one benchmark; their containers have ended well as soon as they are made."""

    def __init__(self, benchmark: str) -> None:
        self.created: list[dict[str, Any]] = []
        self._benchmark = benchmark
        self.client = SimpleNamespace(containers=SimpleNamespace(create=self._create))

    def image(self, name: str) -> Image:
        return Image(name, 1, {BENCHMARK_LABEL: self._benchmark}, {}, "")

    def explained(self) -> nullcontext[None]:
        return nullcontext()

    def remove(self, container: Any) -> None:
        pass

    def _create(self, image: str, command: list[str], **arguments: Any) -> Any:
        self.created.append(arguments)
        state = {"State": {"Running": False, "ExitCode": 0}}
        return SimpleNamespace(start=list, reload=list, attrs=state, logs=lambda: b"well", id="1")


def given_to(benchmark: str, tmp_path: Path, assets: Path | None = None) -> tuple[str | None, dict[str, str], Any]:
    """The folder that is mounted as assets, the variables, and the network."""
    engine = Engine(benchmark)
    assert smoke_image(engine, "some/image:1", tmp_path / "out", assets=assets, seconds=5) == "well"  # type: ignore[arg-type]
    (made,) = engine.created
    mounted = {mount["Target"]: mount["Source"] for mount in made["mounts"]}
    return mounted.get("/assets"), made["environment"], made["network_mode"]


def test_the_folder_that_the_variable_names_is_used_as_in_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert given_to("libero", tmp_path) == (str(tmp_path), {VARIABLE: "/assets"}, "none")
    assert given_to("metaworld", tmp_path)[0] is None, "it has no assets"


def test_a_flag_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere")
    assert given_to("libero", tmp_path, assets=tmp_path)[0] == str(tmp_path)


def test_without_either_it_may_download_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert given_to("libero", tmp_path) == (None, {}, None)


def test_a_folder_that_is_not_there_is_told_and_not_the_network_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere")
    with pytest.raises(UsageError, match="SPARRING_LIBERO_ASSETS='/nowhere' is not a folder"):
        given_to("libero", tmp_path)
