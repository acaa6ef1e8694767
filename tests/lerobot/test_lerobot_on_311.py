"""The hook that lets newer LeRobots import: what it rewrites, and that it leaves alone what it need not touch."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from lerobot_on_311 import in_old_syntax

NEW = '''\
"""About class Box[T]: and type X = int."""
type Name = str | int
type_ = {"a": 1}["a"]


class Plain(dict[str, int]):
    pass


class Box[T]:
    def put[V: int](self, value: V) -> V:
        return value


class Large[T, S](Box[T]):
    pass
'''


def test_type_parameters_become_ordinary_names() -> None:
    old, declared = in_old_syntax(NEW)
    assert declared == {"T", "S", "V"}
    changed = {b for a, b in zip(NEW.splitlines(), old.splitlines(), strict=True) if a != b}
    assert changed == {
        "Name = str | int",
        "class Box(Generic[T]):",
        "    def put(self, value: V) -> V:",
        "class Large(Box[T], Generic[T, S]):",
    }


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python has the newer syntax")
def test_nothing_else_of_lerobot_is_rewritten() -> None:
    spec = find_spec("lerobot")
    assert spec is not None
    assert spec.origin is not None
    rewritten = {}
    for path in Path(spec.origin).parent.rglob("*.py"):
        source = path.read_text()
        old, _ = in_old_syntax(source)
        compile(old, str(path), "exec")
        if old != source:
            rewritten[path.name] = sum(a != b for a, b in zip(source.splitlines(), old.splitlines(), strict=True))
    newer = {"pipeline.py": 1, "streaming_dataset.py": 1, "io_utils.py": 1, "motors_bus.py": 2}
    assert rewritten in ({}, newer, {**newer, "aggregate.py": 3})  # 0.4, 0.5.1 and 0.6.0, 0.6.1
