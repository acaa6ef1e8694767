"""Files of the repository, outside `docs/`, that are part of the site, and the links to them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
_DOCS: Final = "docs"
_LINK: Final = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")
_NAMED_BY_FILE: Final = re.compile(r"\[[\w./-]+\.md\](?=\(([^)#:\s]+)(?:#[^)\s]*)?\))")
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Published:
    """Which files are where on the site.

    Attributes:
        uris: Where each file is, by its path in the repository; those in `docs/` are not among them.
        instead: Pages that stand for a file, by its path: of a name that `docs/` has, too, that page is the one.
    """

    uris: Mapping[str, str]
    instead: Mapping[str, str]

    @classmethod
    def of(cls, root: Path) -> Published:
        """Returns pages at the top of a repository, those of examples, and whatever they link to that is no page."""
        pages = {path.name: path.name.lower() for path in root.glob("*.md")}
        pages["README.md"] = "index.md"
        pages |= {
            str(path.relative_to(root)): f"examples/{path.parent.name}/index.md"
            for path in root.glob("examples/*/README.md")
        }
        instead = {name: uri for name, uri in pages.items() if (root / _DOCS / uri).exists()}
        uris = {name: uri for name, uri in pages.items() if name not in instead}
        for page in [*uris, *(str(path.relative_to(root)) for path in (root / _DOCS).rglob("*.md"))]:
            for link, _ in _LINK.findall((root / page).read_text()):
                target = _target(page, link)
                if target not in pages and not target.startswith((f"{_DOCS}/", "../")) and (root / target).is_file():
                    # A name without an ending would be saved, not shown.
                    uris.setdefault(target, target if PurePosixPath(target).suffix else f"{target}.txt")
        return cls(uris, instead)

    def with_links(self, markdown: str, uri: str) -> str:
        """Returns a page whose links lead to pages of the site, and have their titles instead of the names of files.

        A link that leads nowhere stays as it is, for MkDocs to find.
        """
        sources = {place: source for source, place in self.uris.items()}
        source = sources.get(uri, f"{_DOCS}/{uri}")

        def moved(link: re.Match[str]) -> str:
            target = _target(source, link[1])
            place = self.instead.get(target) or self.uris.get(target)
            if place is None and target.startswith(f"{_DOCS}/"):
                place = target.removeprefix(f"{_DOCS}/")
            if place is None:
                return link[0]
            return os.path.relpath(place, os.path.dirname(uri) or ".") + (link[2] or "")

        def titled(link: re.Match[str]) -> str:
            file = ROOT / _target(source, link[1])
            return f"[{title_of(file)}]" if file.is_file() else link[0]

        return _LINK.sub(moved, _NAMED_BY_FILE.sub(titled, markdown))


def title_of(page: Path) -> str:
    """Returns the first heading of a page, or the name of its file."""
    found = _TITLE.search(page.read_text())
    return found[1] if found else page.stem


def _target(page: str, link: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(page), link))
