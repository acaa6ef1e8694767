"""As test_one_bit.py, for changes that tests in LIBERO's environment notice: it must have pytest by then."""

from __future__ import annotations

import pytest
from tests.one_bit.__main__ import tried


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.requires("libero", "libero-assets", "rendering")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["libero-state", "libero-image", "libero-prepared", "libero-watched"])
def test_a_single_bit_of_libero_is_noticed(name: str) -> None:
    noticed, last = tried(name)
    assert noticed, last
