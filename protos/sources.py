"""Source files of a user's own: a module, and what it imports that is not installed, as hashes.

Imports are read, not followed: nothing is imported or run for it, and what a function imports only later counts from
the start. Of `import_module` and `__import__`, names that are written out are found, and of one that only begins so
(`f"nets.{name}"`) all modules of that package. What is found by a name that is computed, or by a path, is not.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

import sparring
from sparring.protos.installing import OURS

INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Folders of what was installed."""
_IMPORTING: Final = frozenset({"__import__", "import_module"})
_HARMLESS: Final = frozenset({"click", "huggingface_hub", "rich", "tqdm", "typing_extensions"})
"""Packages that policies import and no number depends on."""
_MOST_FILES: Final = 500
_ALL: Final = ".*"
"""After the name of a package: all modules that are right in it."""
_OTHERS: Final = "other files"
"""What stands for all files beyond the most."""
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Sources:
    """What a user's own code is made of.

    Attributes:
        files: SHA-256 of each file of its own, by the module's name written as a path.
        packages: Versions of the installed packages that these import, by distribution.
        folder: Where the first of the files is found from; None: there are none.
    """

    files: Mapping[str, str]
    packages: Mapping[str, str]
    folder: Path | None = None


def sources_of(modules: Iterable[str], *, walked: str = "") -> Sources:
    """Reads the source of modules, and of what they import that is beside them.

    A package that is installed counts as somebody's own where one of the modules is in it; others are known by their
    versions, and the standard library by that of Python.

    Args:
        modules: Their names.
        walked: A package of ours whose imports count, too, though its files are known by our version.
    """
    walk = _Walk(list(modules), walked)
    return Sources(dict(sorted(walk.files().items())), dict(sorted(walk.packages().items())), walk.folder)


def sha256_of_file(path: Path) -> str:
    """Returns the hash of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


class _Walk:
    """Goes from module to module, by their import statements."""

    def __init__(self, roots: list[str], walked: str) -> None:
        self._tops = {name.partition(".")[0] for name in roots} - {OURS}
        self._walked = f"{walked}." if walked else ""
        self._found: dict[str, Path] = {}
        self._installed: set[str] = set()
        self._seen: set[str] = set()
        self.folder: Path | None = None
        waiting = [part for root in roots for part in _with_parents(root)]
        while waiting:
            name = waiting.pop()
            if name not in self._seen:
                self._seen.add(name)
                waiting += self._visit(name)

    def files(self) -> dict[str, str]:
        """Returns the hash of each file."""
        hashes: dict[str, str] = {}
        for name, path in sorted(self._found.items()):
            with suppress(OSError):  # it is gone again
                hashes[name] = sha256_of_file(path)
        if len(hashes) <= _MOST_FILES:
            return hashes
        kept, others = list(hashes.items())[:_MOST_FILES], list(hashes.items())[_MOST_FILES:]
        return {**dict(kept), _OTHERS: hashlib.sha256(repr(others).encode()).hexdigest()}

    def packages(self) -> dict[str, str]:
        """Returns the versions of what is imported and installed."""
        versions: dict[str, str] = {}
        unknown = set()
        for top in (self._installed | self._tops) - _HARMLESS:
            try:
                versions[top] = version(top)
            except PackageNotFoundError:
                unknown.add(top)
        if unknown & self._installed:  # a package of another name than its module: that takes a look at all of them
            names = packages_distributions()
            for top in unknown:
                for distribution in names.get(top, ()):
                    with suppress(PackageNotFoundError):
                        versions[distribution] = version(distribution)
        return versions

    def _visit(self, name: str) -> Iterator[str]:
        """Takes a module in, if it is somebody's own, and yields what it imports."""
        if name.endswith(_ALL):
            yield from _submodules(name.removesuffix(_ALL))
            return
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names and name != "__main__":
            return
        if top == OURS:
            name = _home_of(name)
            if not (self._walked and f"{name}.".startswith(self._walked)):
                return
        name, path, is_package = _located(name)
        if path is None:
            return
        if top != OURS:
            if INSTALLED & set(path.parts):
                self._installed.add(top)
                if top not in self._tops:
                    return
            suffix = "".join(path.suffixes) if path.suffix != ".py" else ".py"
            self._found[f"{name.replace('.', '/')}{'/__init__' if is_package else ''}{suffix}"] = path
            if self.folder is None:
                self.folder = path.parents[name.count(".") + is_package]
        if path.suffix == ".py":
            yield from _imports(path, name if is_package else name.rpartition(".")[0])


def _home_of(name: str) -> str:
    """Returns the module that one of our public names is in, as `sparring.TorchPolicy`; other names as they are."""
    home = sparring.HOME_OF.get(name.removeprefix(f"{OURS}."))
    return name if home is None else f"{OURS}.{home}"


def _located(name: str) -> tuple[str, Path | None, bool]:
    """Returns a module's name, its file, if it has one, and whether it is a package, without importing anything."""
    if name == "__main__":
        main = sys.modules[name]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if file is None or not Path(file).is_file():  # a notebook, or typed by hand
            return name, None, False
        return Path(file).stem if spec is None else spec.name, Path(file).absolute(), False
    places = None
    spec = None
    parts = name.split(".")
    for depth in range(len(parts)):
        spec = _spec(".".join(parts[: depth + 1]), places)
        if spec is None:
            return name, None, False
        places = spec.submodule_search_locations
    if spec is None or not spec.has_location or spec.origin is None:
        return name, None, False
    return name, Path(spec.origin), places is not None


def _spec(name: str, places: Iterable[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        with suppress(Exception):  # a finder may be anybody's
            spec = finder.find_spec(name, None if places is None else list(places))
            if spec is not None:
                return spec
    # Programs that are started with `python -m` find what is beside the user, and this one may be a script.
    return PathFinder.find_spec(name, [os.getcwd()]) if places is None else None


def _submodules(package: str) -> list[str]:
    """Returns the names of the modules that are right in a package, but not those of an installed one."""
    places: list[str] | None = None
    for name in _with_parents(package):
        spec = _spec(name, places)
        if spec is None or spec.submodule_search_locations is None:
            return []
        places = [*spec.submodule_search_locations]
    own = [place for place in places or () if not INSTALLED & set(Path(place).parts)]
    return [f"{package}.{name}" for _, name, _ in iter_modules(own)]


def _imports(path: Path, package: str) -> tuple[str, ...]:
    """Returns the names of modules, and what may be some, in a file's import statements."""
    try:
        return _imported(path.read_bytes(), package)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()


@lru_cache(maxsize=1024)  # a program that evaluates again and again asks for the same files each time
def _imported(source: bytes, package: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names += _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            if base is not None:
                names += _with_parents(base)
                names += (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call):
            names += _called(node, package)
    return tuple(names)


def _called(node: ast.Call, package: str) -> list[str]:
    """Returns the names of modules that a call imports, if it is one that does, and as far as they are written out."""
    function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if function not in _IMPORTING or not node.args:
        return []
    name = node.args[0]
    begins = name.values[0] if isinstance(name, ast.JoinedStr) and name.values else getattr(name, "left", name)
    text = getattr(begins, "value", None)
    if not isinstance(text, str):
        return []
    level = len(text) - len(text.lstrip("."))
    around = package.split(".")[: len(package.split(".")) - level + 1] if level else []
    text = ".".join((*around, text[level:]))
    if not text or text.startswith("."):
        return []
    if begins is name:
        return _with_parents(text)
    folder = text.rpartition(".")[0]
    return [*_with_parents(folder), f"{folder}{_ALL}"] if folder else []


def _base(node: ast.ImportFrom, package: str) -> str | None:
    """Returns the module that names are imported from; None if a relative import leads to nowhere."""
    if not node.level:
        return node.module
    parts = package.split(".") if package else []
    if len(parts) < node.level:
        return None
    kept = parts[: len(parts) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _with_parents(name: str) -> list[str]:
    """Returns a module and the packages around it, which are imported before it."""
    parts = name.split(".")
    return [".".join(parts[: depth + 1]) for depth in range(len(parts))]
