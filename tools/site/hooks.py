"""What MkDocs asks while it builds the site: pages made from the code, and pages from elsewhere in the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands_page import commands_page
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File
from protos_page import protos_page
from published import ROOT, Published, title_of
from python_page import python_page, undocumented
from settings_page import settings_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_log = get_plugin_logger("sparring")
_published = Published.of(ROOT)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts pages from elsewhere that have no place in the navigation at its end."""
    (last,) = config.nav[-1].values()
    for source, uri in _published.uris.items():
        if uri.endswith(".md") and uri not in str(config.nav):
            last.append({title_of(ROOT / source): uri})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the reference, and README and its like."""
    for name in undocumented():
        _log.warning(f"{name} is a public name, and has no docstring")
    made = {
        "reference/python.md": python_page(),
        "reference/settings.md": settings_page(),
        "reference/commands.md": commands_page(),
        "reference/protos.md": protos_page([ROOT / "protos" / f"{name}.proto" for name in ("policy", "evaluation")]),
    }
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    for source, uri in _published.uris.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the repository into links between pages of the site."""
    if page.file.src_uri.startswith("reference/"):
        return markdown
    return _published.with_links(markdown, page.file.src_uri)
