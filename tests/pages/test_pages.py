"""Every command and every piece of code on a page works, or the page says in a comment why that is not tried."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from pages.blocks import PAGES, Block, blocks_of
from pages.running import Page
from support import ROOT

BLOCKS = {page: blocks_of(page) for page in PAGES}
FIRST = ("README.md",)
"""What newcomers read: it is tried by every `make test`, and all other pages by `make test-all`."""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that most pages speak of: `outputs/first`, as README's quick start makes it, with fewer episodes."""
    folder = tmp_path_factory.mktemp("first")
    command = "run --benchmark metaworld --task mt10 --policy expert --episodes 1 --slots 2 --output outputs/first"
    subprocess.run([sys.executable, "-m", "sparring", *command.split()], cwd=folder, check=True, timeout=120)
    return folder / "outputs" / "first"


def reader(blocks: list[Block], folder: Path, request: pytest.FixtureRequest) -> Page:
    """Somebody with an empty folder, or with `outputs/first` in it where a page begins with that."""
    text = "".join(block.before + block.code for block in blocks if block.how == "run")
    if "outputs/first" in text and "--output outputs/first" not in text:
        shutil.copytree(request.getfixturevalue("first"), folder / "outputs" / "first")
    return Page(folder)


def case(page: Path, *apart: Block) -> ParameterSet:
    """Most of a page is one test; a block that needs more is one of its own."""
    name = apart[0].where if apart else str(page.relative_to(ROOT))
    blocks = [*apart] or [block for block in BLOCKS[page] if not block.apart]
    marks = [*(apart[0].marks() if apart else ())]
    if str(page.relative_to(ROOT)) not in FIRST:
        marks.append(pytest.mark.everything)
    return pytest.param(page, blocks, id=name, marks=marks)


CASES = [
    *(case(page) for page in PAGES if BLOCKS[page]),
    *(case(page, block) for page in PAGES for block in BLOCKS[page] if block.apart and not block.of_libero),
]


@pytest.mark.processes
@pytest.mark.parametrize(("page", "blocks"), CASES)
def test_a_page_works_from_top_to_bottom(
    page: Path, blocks: list[Block], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    person = reader(blocks, tmp_path, request)
    for block in BLOCKS[page]:
        if block in blocks:
            person.do(block)
        else:
            person.write(block)
