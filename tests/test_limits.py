"""Every limit in the code is named by a test, so that a new one cannot come without."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from rooms import code_files, tree_of
from support import ROOT

LIMIT: Final = re.compile(r"(^|_)(MOST|LONGEST|LARGEST|DEEPEST|MAX|MIN|LIMIT|DEPTH)(_|$)")

SHOWN: Final = ("orchestrator/display/", "orchestrator/report/", "orchestrator/trackers/moving_picture.py")
"""How much of a result is put on a screen or a page: what is over is left out, and nothing is refused."""
PLAYED: Final = ("policy_server/policies/_aloha/", "policy_server/policies/_libero/", "policy_server/policies/_pusht/")
"""How scripted experts move."""


def limits() -> Iterator[tuple[Path, str]]:
    for path in code_files():
        place = path.relative_to(ROOT)
        if "_pb2" in path.name or str(place).startswith(SHOWN + PLAYED):
            continue
        for node in tree_of(path.read_text()).body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper() and LIMIT.search(target.id):
                    yield place, target.id


@cache
def unnamed() -> set[str]:
    """Returns the limits that no test names which has their module, too: many have the same name."""
    own = Path(__file__).resolve()
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.resolve() != own]
    found = set()
    for place, name in limits():
        module = ".".join(("sparring", *place.with_suffix("").parts)).removesuffix(".__init__")
        parent, _, last = module.rpartition(".")
        imported = re.compile(rf"from {re.escape(parent)} import (\([^)]*|[^\n]*)\b{last}\b")
        word = re.compile(rf"\b{name}\b")
        # That it is in there at all is found out much sooner than the rest.
        if not any(name in text and word.search(text) and (module in text or imported.search(text)) for text in texts):
            found.add(f"{place.as_posix()}:{name}")
    return found


def test_every_limit_is_named_by_a_test() -> None:
    missing = unnamed()
    assert not missing, f"limits without a test that shows both sides of them: {sorted(missing)}"
