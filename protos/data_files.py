"""Files and folders that arguments name, such as a checkpoint, and those in a package, such as scenes, as hashes."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sparring.protos.installing import OURS
from sparring.protos.sources import INSTALLED, sha256_of_file

log = logging.getLogger(__name__)

_MOST_BYTES: Final = 1 << 30
"""That are read whole, of all that arguments name: more would take a while. Of what is larger, samples are read."""
_SAMPLES: Final = 4096
_SAMPLE_BYTES: Final = 16 << 10
_MOST_FILES: Final = 10_000
"""In a folder: more are no checkpoint."""
_LARGEST_DEPTH: Final = 8
"""Of arguments inside of arguments."""
_WRITTEN: Final = frozenset(
    {".avi", ".csv", ".err", ".gif", ".html", ".jpg", ".lock", ".log", ".md", ".mp4", ".out", ".png", ".pyc", ".txt"}
)
"""What programs write into a folder of weights while they run, or people about it."""
_OF_RUNS: Final = frozenset({"journal.sqlite", "run.json"})
"""What shows that a folder is the output of a run, which may lie beside the weights that it is about."""


def data_of(arguments: Mapping[str, Any], *, folders: bool) -> dict[str, str]:
    """Returns the hash of what each argument names, by argument and name.

    Args:
        arguments: Texts, and lists and mappings of them.
        folders: Whether a folder counts, with all files in it but logs, films and outputs of runs.
    """
    found: dict[str, str] = {}
    left = _MOST_BYTES
    for label, path in named_by(arguments):
        try:
            files = _files(path, folders=folders)
            size = sum(file.stat().st_size for file in files)
            if size:  # an empty file only says that it is there
                found[label] = _sha256(path, files, whole=size <= left)
                left -= size if size <= left else 0
        except (OSError, ValueError):  # what only looks like a path
            continue
    return found


def package_data_of(module: str) -> dict[str, str]:
    """Returns one hash of all that is in somebody's own package beside code, such as meshes; nothing if there is none.

    Of an installed package, and of one that somebody works inside of, nothing is told.

    Args:
        module: One of the package, imported.
    """
    top = module.partition(".")[0]
    package = sys.modules.get(top)
    init = getattr(package, "__file__", None)
    if top == OURS or init is None or not hasattr(package, "__path__") or INSTALLED & set(Path(init).parts):
        return {}
    folder = Path(init).parent
    try:
        files = [file for file in _files(folder, folders=True) if file.suffix != ".py"]
        size = sum(file.stat().st_size for file in files)
        return {f"{top}/other files": _sha256(folder, files, whole=size <= _MOST_BYTES)} if files else {}
    except OSError:  # one of them has gone
        return {}


def named_by(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yields every text in arguments as a path, whether or not it is one, with the label that `data_of` gives it."""
    for argument, value in _texts(arguments, "", _LARGEST_DEPTH):
        path = Path(value)
        yield f"{argument}: {path.name}", path


def _texts(value: Any, name: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if value:
            yield name, value
    elif depth and isinstance(value, Mapping):
        for key, part in value.items():
            yield from _texts(part, f"{name}.{key}" if name else str(key), depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _texts(part, f"{name}.{number}", depth - 1)


def _files(path: Path, *, folders: bool) -> list[Path]:
    """Returns the files that a path stands for: itself, or those of a folder; none, if it is neither."""
    if path.is_file():
        return [path]
    if not folders or not path.is_dir() or Path.cwd().resolve().is_relative_to(path.resolve()):
        return []  # where somebody works there is more than weights
    found: list[Path] = []
    for place, inside, names in os.walk(path):
        if _OF_RUNS & set(names):
            inside.clear()
            continue
        inside[:] = sorted(name for name in inside if not name.startswith((".", "__")))
        found += (
            Path(place, name)
            for name in sorted(names)
            if not name.startswith(".") and Path(name).suffix.lower() not in _WRITTEN and Path(place, name).is_file()
        )
        if len(found) > _MOST_FILES:
            log.info("%s is not hashed: it has too many files", path)
            return []
    return found


def _sha256(path: Path, files: list[Path], *, whole: bool) -> str:
    hashed = sha256_of_file if whole else _sha256_of_samples
    if files == [path]:
        return hashed(path)
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(path)}\0{hashed(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _sha256_of_samples(path: Path) -> str:
    """Returns a hash of a file's size and of pieces of it, at equal distances: of weights, training changes most."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}\n".encode())
        for number in range(_SAMPLES):
            file.seek(number * max(_SAMPLE_BYTES, size // _SAMPLES))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
