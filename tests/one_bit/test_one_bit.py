"""Some of the changes of a single bit that `python -m tests.one_bit` makes: that they are made, and noticed.

Those of LIBERO are in test_libero_one_bit.py, which runs when LIBERO's environment has what tests need.
"""

from __future__ import annotations

import pytest
from tests.one_bit.__main__ import NOTICED_BY, ROOT, tried
from tests.one_bit.changes import CHANGES


def test_each_change_has_a_test_that_is_to_notice_it() -> None:
    assert NOTICED_BY.keys() == CHANGES.keys()


def test_the_page_names_the_files_of_these_tests() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    assert {file for test in NOTICED_BY.values() if (file := test.partition("::")[0]) not in page} == set()


# One of each way to make a change: a name that is not there any more would raise, which is not noticing.
@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        "metaworld-reward",
        "metaworld-image",
        "metaworld-reset",
        "metaworld-rotation",
        "metaworld-fingers",
        "replayed",
        "written",
        "deterministic",
    ],
)
def test_a_single_bit_is_noticed(name: str) -> None:
    noticed, last = tried(name)
    assert noticed, last
