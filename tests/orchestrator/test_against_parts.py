"""A run that is held against another one: their parts have the same rules and seeds, or it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support import Sparring

PARTS: list[dict[str, Any]] = [
    {"benchmark": "toy", "task": "short", "name": "a"},
    {"benchmark": "toy", "task": "long", "name": "b", "seed": 5, "rules": {"max_steps": 3}},
]


def play(usage: Sparring, folder: Path, output: str, changed: dict[str, Any], *more: str) -> tuple[int, str]:
    first, second = PARTS
    settings = {"policy": "toy_policies:Forward", "episodes": 2, "evaluations": [first, {**second, **changed}]}
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    done = usage("run", "--config", "run.yaml", "--in-process", "--output", output, *more)
    return done.returncode, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"rules": {"max_steps": 4}}, "b, max_steps: 3 and 4"),
        ({"seed": 6}, "its seed of b is 5, and this one's is 6: they have no pairs"),
    ],
)
def test_parts_with_other_rules_or_seeds_are_refused(
    changed: dict[str, Any], sentence: str, usage: Sparring, tmp_path: Path
) -> None:
    assert play(usage, tmp_path, "before", {})[0] == 0
    code, told = play(usage, tmp_path, "after", changed, "--against", "before")
    assert code == 2
    assert sentence in told
    assert not (tmp_path / "after").exists()
    assert play(usage, tmp_path, "after", {}, "--against", "before")[0] == 0


def test_the_same_tasks_by_two_rules_are_refused_without_naming_a_protocol_that_there_is_not(
    usage: Sparring, tmp_path: Path
) -> None:
    code, told = play(usage, tmp_path, "both", {"task": "short"}, "--until", "half-width=0.1")
    assert code == 2
    assert "each of which has a rate of its own (a, b): play one at a time." in told
    assert not (tmp_path / "both").exists()
