"""What pages say of LIBERO; apart from the other pages, because its environment is made while those are tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages.blocks import PAGES, Block, blocks_of
from pages.running import Page

BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.of_libero]


@pytest.mark.processes
@pytest.mark.parametrize("block", [pytest.param(block, id=block.where, marks=block.marks()) for block in BLOCKS])
def test_a_block_about_libero(block: Block, tmp_path: Path) -> None:
    Page(tmp_path).do(block)
