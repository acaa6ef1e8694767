"""The site that `make docs` builds: strictly, from the code, and without anything from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FileDescriptor
from support import ROOT

import sparring
from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.cli.options import FILE_ONLY
from sparring.orchestrator.launchers.registry import get_launcher
from sparring.orchestrator.settings.run import core_fields, fields_of
from sparring.policy_server.options import server_options
from sparring.protos import evaluation_pb2, policy_pb2

sys.path.append(str(ROOT / "tools" / "site"))


class Loads(HTMLParser):
    """What a browser fetches for a page, without a click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"a": (), "link": ("href",)}.get(tag, ("src", "srcset", "data", "poster"))
        self.found += [value for name, value in attrs if name in names and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Benchmarks and launchers of the tests are none of what we document.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.requires("docs")
def test_every_public_name_setting_and_command_is_in_the_reference(site: Path) -> None:
    python = (site / "reference" / "python.html").read_text()
    assert [name for name in sparring.__all__ if f'id="sparring.{name}"' not in python] == []
    settings = (site / "reference" / "settings.html").read_text()
    fields = {**core_fields(), **fields_of(get_launcher("docker").settings)}
    flags = [f"--{name.replace('_', '-')}" for name in fields if name not in FILE_ONLY]
    flags += [option.flag for option in server_options() if not option.by_program and not option.pairs]
    assert [flag for flag in flags if f"<code>{flag}</code>" not in settings] == []
    commands = (site / "reference" / "commands.html").read_text()
    assert [name for name in cli.list_commands(None) if f'id="sparring-{name}"' not in commands] == []


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.requires("docs")
def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        parser = Loads()
        parser.feed(page.read_text())
        assert parser.found
        assert [url for url in parser.found if re.match(r"(https?:)?//", url)] == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", sheet.read_text()) == [], sheet


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.requires("docs")
def test_lists_and_tables_are_what_they_are_elsewhere(site: Path) -> None:
    """MkDocs wants a blank line before a list, and four spaces before one inside another; elsewhere it goes without."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|script|style)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert re.findall(r"\n *(?:-|\d+\.|\|) .*", text) == [], page


def test_a_page_that_loads_something_is_seen() -> None:
    parser = Loads()
    parser.feed('<a href="https://x"></a><img src="https://y"><link href="//z"><script src="a.js"></script>')
    assert parser.found == ["https://y", "//z", "a.js"]


def messages(file: FileDescriptor) -> list[Descriptor]:
    return list(file.message_types_by_name.values())


@pytest.mark.parametrize("module", [policy_pb2, evaluation_pb2], ids=["policy", "evaluation"])
def test_the_page_of_the_protocols_has_all_that_the_stubs_have(module: object) -> None:
    from protos_page import read

    file: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    proto = read(ROOT / "protos" / Path(file.name).name)
    found = {d.name: {m.name: m for m in d.members} for d in proto.definitions}
    assert proto.package == file.package
    assert proto.said
    expected = {message.name: [f.name for f in message.fields] for message in messages(file)}
    expected |= {enum.name: [v.name for v in enum.values] for enum in file.enum_types_by_name.values()}
    expected |= {service.name: [m.name for m in service.methods] for service in file.services_by_name.values()}
    assert {name: list(members) for name, members in found.items()} == expected
    for message in messages(file):
        for member in message.fields:
            shown = found[message.name][member.name]
            assert int(shown.number) == member.number
            assert shown.said or shown.choice, f"{message.name}.{member.name} has no comment"


def test_comments_behind_a_field_go_on_below_it() -> None:
    from protos_page import read

    proto = read(ROOT / "protos" / "policy.proto")
    (offer,) = [d for d in proto.definitions if d.name == "Offer"]
    assert offer.members[-1].said.endswith("empty if there is one way only")
    assert offer.said == "What a benchmark's simulator can show and can be told to do."


def test_links_lead_to_pages_of_the_site(tmp_path: Path) -> None:
    from published import Published

    published = Published.of(ROOT)
    moved = published.with_links("[docs/results.md](docs/results.md#a) [x](SECURITY.md) [y](no/such.md)", "index.md")
    assert moved == "[The output folder](results.md#a) [x](security.md) [y](no/such.md)"
    up = published.with_links("[x](../../docs/results.md)", "examples/behaviour_cloning/index.md")
    assert up == "[x](../../results.md)"
    assert published.with_links("[README](../README.md)", "results.md") == "[README](index.md)"


@pytest.mark.requires("docs")
def test_public_names_without_a_docstring_are_seen(tmp_path: Path) -> None:
    from python_page import undocumented

    (tmp_path / "sparring").mkdir()
    (tmp_path / "sparring" / "__init__.py").write_text(
        "from sparring.home import Bare, Fine, Row\n__all__ = ['Bare', 'Fine', 'Row', 'bare']\ndef bare(): ...\n"
    )
    (tmp_path / "sparring" / "home.py").write_text(
        "from dataclasses import dataclass\nclass Fine:\n    'Has one.'\n    def said(self):\n        'Says so.'\n"
        "    steps: int = 0\n    'How many.'\n"
        "class Bare(Fine):\n    def member(self): ...\n    def said(self): ...\n    def _own(self): ...\n"
        "    steps = 7\n    rate: float\n    _hidden: int\n"
        "@dataclass\nclass Row:\n    'A row.\\n\\n    Attributes:\\n        told: What it is.\\n    '\n"
        "    told: int\n    untold: int\n"
    )
    assert list(undocumented(tmp_path)) == [
        "sparring.Bare", "sparring.Bare.member", "sparring.Bare.rate", "sparring.Row.untold", "sparring.bare",
    ]  # fmt: skip
