"""Actions that say where to be, played from another start than training's: the way there is held against nobody."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from preflight.modelled_pusht import demonstrations, probed

from sparring.env_worker.benchmarks._libero.settings import LiberoSettings
from sparring.orchestrator.preflight.rules.actions import do_as_in_training
from sparring.protos.rules import Verdict, judge


def verdicts(folder: Path, control: str, *, relative: bool) -> list[Verdict]:
    settings = {one.name: one for one in fields(LiberoSettings)}
    starts = np.random.default_rng(3).uniform(50, 450, (3, 6, 2))
    found = []
    for seed, from_here in enumerate(starts):
        known = demonstrations(folder / str(seed), seed)
        for number, start in enumerate(from_here):
            seen = probed(known, folder / f"{seed}-{number}", start, control=control, relative=relative)
            found.append(judge(do_as_in_training, replace(seen, settings=settings)))
    return found


@pytest.mark.parametrize("control", ["absolute", ""])
def test_a_right_set_up_is_left_alone_wherever_it_begins(control: str, tmp_path: Path) -> None:
    assert {(one.kind, one.detail) for one in verdicts(tmp_path, control, relative=False)} == {("ok", "")}


def test_places_where_movements_are_meant_are_found(tmp_path: Path) -> None:
    found = verdicts(tmp_path, "relative", relative=True)
    assert {one.kind for one in found} == {"FAILED"}
    assert all('{{benchmark_arg.control="absolute"}} takes them as they were' in one.detail for one in found)


def test_a_benchmark_that_does_not_say_what_it_takes_is_not_said_to_take_anything(tmp_path: Path) -> None:
    found = verdicts(tmp_path, "", relative=True)
    assert {one.kind for one in found} == {"FAILED", "skipped"}
    for one in found:
        assert "here they are by how much it moves" not in one.detail
        words = "Does the benchmark take them for" if one.kind == "FAILED" else "what this benchmark takes it does not"
        assert words in one.detail
