"""The order of the files of tests is of files that there are."""

from __future__ import annotations

import longest
from support import ROOT


def test_what_is_to_go_first_is_there_and_named_once() -> None:
    assert [name for name in longest.LONGEST if not (ROOT / "tests" / name).is_file()] == []
    assert len(set(longest.LONGEST)) == len(longest.LONGEST)


def test_what_is_left_out_while_one_works_is_there() -> None:
    assert [name for name in longest.RUNS if not (ROOT / "tests" / name).is_file()] == []
