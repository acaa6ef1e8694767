"""Mesa draws in a process that has torch, and an optimizer is made there afterwards: no crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sparring.env_worker.rendering.llvm import load_triton_first
from sparring.env_worker.rendering.mark import drawing


@pytest.fixture(autouse=True)
def _as_if_nothing_was_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "triton.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    load_triton_first.cache_clear()
    yield
    sys.modules.pop("triton", None)
    load_triton_first.cache_clear()


def test_where_there_is_torch_its_triton_is_loaded_before_anything_is_drawn() -> None:
    with drawing():
        assert "triton" in sys.modules


def test_without_torch_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    with drawing():
        assert "triton" not in sys.modules


def test_a_triton_that_does_not_work_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("raise OSError('no driver')")
    with drawing():
        assert "triton" not in sys.modules


@pytest.mark.processes
@pytest.mark.requires("rendering", "triton")
def test_a_program_that_has_drawn_goes_on_training() -> None:
    code = (
        "import torch\n"
        "from sparring.env_worker.as_gym import make_env\n"
        "from sparring.env_worker.gl import choose_backend\n"
        "choose_backend()\n"
        "make_env('metaworld', 'reach-v3', look=['observation.image']).reset(seed=1)\n"
        "torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
