"""What the docs say of the code: words, files and modules that they name exist, and a word means one thing."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages.blocks import PAGES, blocks_of
from pages.commands import commands_of, unknown_flags
from requirements import REQUIREMENTS
from rooms import ROOMS, code_files, tree_of
from support import ROOT

from sparring.orchestrator.results.row import COLUMNS

FOLDERS = (*ROOMS, "benchmarks", "constraints", "docker", "docs", "examples", "src", "tests", "tools")
ENTRY_POINTS = {"sparring.benchmarks", "sparring.launchers", "sparring.policies"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def classes() -> dict[str, list[Path]]:
    """The files of every public class, by its name."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in code_files():
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            defined = [node.name for node in tree_of(path.read_text()).body if isinstance(node, ast.ClassDef)]
            for name in defined:
                if not name.startswith("_"):
                    found[name].append(path)
    return found


def aliases() -> dict[str, list[Path]]:
    """The files of every public name that is given to a type, such as `Outcome = Literal[...]`."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in code_files():
        for node in tree_of(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for name in [target.id for target in targets if isinstance(target, ast.Name)]:
                if name[0].isupper() and not name.isupper():
                    found[name].append(path)
    return found


def glossary(text: str) -> dict[str, list[str]]:
    """The classes that stand for each word of the glossary."""
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+?) \|$", text.split("## Words")[1].split("\n## ")[0], re.MULTILINE)
    words = [word for word, _ in rows]
    assert sorted(set(words)) == sorted(words), "one word for one thing"
    return {word: re.findall(r"`(\w+)`", named) for word, named in rows if word != "word" and not word.startswith("-")}


def paths(text: str) -> list[str]:
    """What looks like a path of the repository, in `backticks`; a <name> in it may be anything."""
    quoted = re.findall(r"`([\w./*<>-]+)`", text)
    return [re.sub(r"<\w+>", "*", name) for name in quoted if name.split("/")[0] in FOLDERS and "/" in name]


def modules(text: str) -> list[str]:
    """Dotted names below `sparring`, in `backticks`, to modules and to what is in them."""
    return re.findall(r"`(sparring(?:\.[a-z_]+)+)", text)


def test_every_word_of_the_glossary_is_in_the_code() -> None:
    words, known = glossary((ROOT / "docs" / "architecture.md").read_text()), classes()
    assert len(words) > 30
    for word, named in words.items():
        assert named, f"the glossary names no class for {word!r}"
        assert [name for name in named if name not in known] == [], word


def test_every_folder_of_a_room_is_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = [path.parent for room in ROOMS for path in (ROOT / room).glob("[!_]*/__init__.py")]
    assert [name for folder in folders if (name := f"`{folder.relative_to(ROOT)}/`") not in text] == []


SAME_THING = {
    "Array": "tensors of numpy's; in LIBERO's files of floats",
    "Observation": "named tensors; a policy's have the task's text, too",
}
"""Names that several rooms have for one thing, because they import nothing of each other."""


def test_a_name_means_one_class() -> None:
    files = classes()
    for name, others in aliases().items():
        files[name] = [*files.get(name, []), *others]
    assert {name for name, where in files.items() if len(where) > 1} == SAME_THING.keys()


GIVEN_UP = {
    "belongings": "what a thing is",
    "crew": "workers",
    "dice": "rng",
    "doubts": "warnings, or reports",
    "employed": "workers",
    "fleet": "workers",
    "hire": "launch",
    "patience": "retry rules, or a timeout",
    "remarks": "warnings",
    "seating": "slots",
    "standing": "progress, or rate",
    "succeed": "success",
}
"""Charming words for what has a known one: nothing in the code is called so."""

GIVEN_UP_FILES = {"keep", "reach", "recipe", "standing"}
"""Names of files that said nothing of what was in them."""

_ORDINARY = {"doubts", "standing", "succeed"}
"""Of those, what sentences may say."""


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Names that code gives to something: of classes, functions, arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def given_up(name: str) -> set[str]:
    """The words in a name that something else stands for."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return {word for word in words | {f"{word}s" for word in words} if word in GIVEN_UP}


def test_words_that_were_given_up_do_not_come_back() -> None:
    for path in code_files():
        found = {word for name in (path.stem, *identifiers(tree_of(path.read_text()))) for word in given_up(name)}
        assert not found, f"{path}: " + "; ".join(f"{word!r} is {GIVEN_UP[word]}" for word in found)
        assert path.stem not in GIVEN_UP_FILES, path


def test_nor_do_they_in_flags_sentences_and_pages() -> None:
    gone = re.compile(rf"\b({'|'.join(sorted(GIVEN_UP.keys() - _ORDINARY))})\b", re.IGNORECASE)
    files = [
        path for room in ROOMS for kind in ("*.py", "*.proto", "*.js", "*.html") for path in (ROOT / room).rglob(kind)
    ]
    assert len(files) > 100
    for path in (*files, *PAGES):
        if path.name != "CHANGELOG.md":
            found = gone.search(path.read_text())
            assert found is None, f"{path}: {found[0]!r} is {GIVEN_UP[found[0].lower()]}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    assert [path for path in paths(text) if not list(ROOT.glob(path.rstrip("/")))] == []
    links = [link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not link.startswith("/")]
    assert [link for link in links if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may end in."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_headings_that_a_page_links_to_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*\.md)?#([^)]+)\)", page.read_text())
    assert [
        (path, anchor) for path, anchor in links if anchor not in anchors(page.parent / path if path else page)
    ] == []


def test_every_column_of_the_results_is_described() -> None:
    table = (ROOT / "docs" / "results.md").read_text().split("## episodes.csv")[1].split("Two runs of one plan")[0]
    described = {name for row in re.findall(r"^\| ([\w, ]+) \|", table, re.MULTILINE) for name in row.split(", ")}
    assert described - {"column"} == set(COLUMNS)


def test_who_is_trusted_with_what_is_said_of_everybody() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    table = {who.strip(): row for who, row in re.findall(r"^\| ([^|]+) (\|.+)$", text, re.MULTILINE)}
    for who in ("policy code", "checkpoints", "workers", "policy servers", "clients", "result folders", "live page"):
        rows = [row for named, row in table.items() if who in named]
        assert rows, who
        assert all(len(cell) > 5 for row in rows for cell in row.strip("| ").split("|")), who
    assert "in private" in text.split("## Reporting")[1]


CHANGES = (
    *("a benchmark", "a launcher", "a column of the results", "another transport", "TLS", "a report", "a bridge"),
    *("a flag", "a rule of when to try again", "real-time mode", "an export", "a tracker"),
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_strangers_ask_for_is_described_by_few_files(change: str) -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", (ROOT / "docs" / "contributing.md").read_text(), re.MULTILINE)
    files = [re.findall(r"`([a-z_]+/[\w./]+)`", where) for what, where in rows if change in what]
    assert files
    for named in files:
        assert 1 <= len(named) <= 3, named
        assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    for name in set(modules(page.read_text())) - ENTRY_POINTS:
        pkgutil.resolve_name(name)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    missing = [
        path.name for path in (ROOT / "docs").glob("*.md") if not re.search(rf": {path.name}$", text, re.MULTILINE)
    ]
    assert missing == [], "each needs a line in mkdocs.yml, under nav"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_of_code_says_how_it_is_tested(page: Path) -> None:
    for block in blocks_of(page):
        assert [name for name in block.requires if name not in REQUIREMENTS] == [], block.where
        for named in re.findall(r"\b(?:tests|examples)/[\w./]+", block.why + block.not_here):
            assert (ROOT / named.rstrip(".")).exists(), f"{block.where} says that {named} tests it, which is not there"
        commands = commands_of(block.code) if block.language == "sh" and block.how == "run" else []
        others = [command.line for command in commands if not command.is_run_here]
        assert bool(others) == bool(block.not_here), f"{block.where}: <!-- not here: ... --> is for {others}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_a_page_names_exist(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for line in re.findall(r"`(sparring [^`]+)`", text):
        assert unknown_flags(" ".join(line.split())) == [], line


def described(tree: ast.AST, name: str = "") -> Iterator[tuple[str, str]]:
    """Public functions and methods that have a docstring, with its first line; properties are described like values."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            yield from described(node, f"{name}{node.name}.")
            is_value = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not isinstance(node, ast.ClassDef) and not is_value and (text := ast.get_docstring(node)):
                yield f"{name}{node.name}", text.partition("\n")[0]


def test_docstrings_of_functions_say_what_they_do() -> None:
    """They begin with a verb: Returns, Makes, Called (of what others override). Those of rules say the rule instead."""
    for path in code_files():
        if not {"compliance", "rules"} & {*path.parts} and "_pb2" not in path.stem:
            for name, line in described(tree_of(path.read_text())):
                assert re.match(r"([A-Z][a-z]+s|Called)\b", line), f"{path}: {name}: {line}"


HALF_SENTENCE = re.compile(r"(By|For|Of|When|Where|Which|Who)\b")


def test_docstrings_of_classes_are_no_halves_of_sentences() -> None:
    for path in code_files():
        for node in ast.walk(tree_of(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, ast.ClassDef) else None
            assert not HALF_SENTENCE.match(text or ""), f"{path}: {text}"


def test_the_checks_see_what_is_wrong() -> None:
    assert glossary(
        "## Words\n| word | meaning | in |\n|---|---|---|\n| lease | a loan | `Lease`, `Loan` |\n\n## A"
    ) == {"lease": ["Lease", "Loan"]}
    assert paths("`env_worker/nothing.py`, `docs/<name>.md`, `HOST/path`, `docker`") == [
        "env_worker/nothing.py",
        "docs/*.md",
    ]
    assert list(described(ast.parse("class A:\n def f(self): 'From a Hello.'\n def _g(self): 'None.'"))) == [
        ("A.f", "From a Hello.")
    ]
    assert HALF_SENTENCE.match("Who may join.")
    assert not HALF_SENTENCE.match("Says who may join.")
    assert set(identifiers(ast.parse("def f(a, *, b): self.c, d = 1, e.g"))) == {"f", "a", "b", "c", "d"}
    assert given_up("on_doubt") == given_up("Doubts") == {"doubts"}
    assert given_up("WarmWorkers") == given_up("direct_hired") == set()
    assert modules("`sparring.protos.spec`, `sparring run`") == ["sparring.protos.spec"]
