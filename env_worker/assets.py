"""Meshes and textures that a package does not bring: found where they are, else downloaded from the Hugging Face hub.

A download is one folder of the user's cache. Its marker is written last: without one, or with a file gone or cut short
since, the folder is not complete, and the download goes on with what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from sparring.env_worker.hub import MARKER, AssetsError, AssetSource, Download
from sparring.env_worker.locks import one_at_a_time
from sparring.protos.errors import UsageError

_WAIT: Final = 3600.0
"""Seconds to wait for another process that downloads the same."""
_PARTIAL_OF_0_1: Final = ".partial"
"""Where release 0.1 kept what had not arrived whole."""


def find_assets(
    *, setting: str | None, variable: str, cache_name: str, parts: Sequence[str], source: AssetSource
) -> Path:
    """Finds the folder of a benchmark's assets: the one that is named, else one in the cache, downloaded if need be.

    May take as long as a download does; safe in any number of processes at once.

    Args:
        setting: The folder that the benchmark's setting names, if it does.
        variable: The environment variable that names the folder when no setting does.
        cache_name: The folder's name in the cache.
        parts: Files and folders that must be in it.
        source: Where it is downloaded from.

    Raises:
        UsageError: If the named folder is not there or lacks a part.
        AssetsError: If the assets have to be downloaded and cannot be.
    """
    if setting:
        return _named(setting, f"the setting assets={setting!r}", parts)
    if named := os.environ.get(variable):
        return _named(named, f"{variable}={named!r}", parts)
    folder = cache_folder() / cache_name
    if not is_complete(folder, parts=parts, source=source):
        try:
            _download_once(folder, variable, parts, source)
        except OSError as error:
            raise AssetsError(
                f"the assets {cache_name!r} cannot be kept in {str(folder)!r}: {error.strerror or error}. "
                "Make room there, or name another cache with XDG_CACHE_HOME."
            ) from error
    return folder


def cache_folder() -> Path:
    """Returns Sparring's part of the user's cache."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "sparring"


def is_complete(folder: Path, *, parts: Sequence[str], source: AssetSource) -> bool:
    """Returns whether a download into the folder was finished and everything of it is still there."""
    try:
        marker = json.loads((folder / MARKER).read_text())
        if marker["source"] != asdict(source):
            return False
        if any((folder / path).stat().st_size != size for path, size in marker["files"].items()):
            return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return not _lacking(folder, parts)


def _named(given: str, by: str, parts: Sequence[str]) -> Path:
    folder = Path(given).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"{by} does not name a folder. Name the one that holds {', '.join(parts)}.")
    if lacking := _lacking(folder, parts):
        raise UsageError(f"{by} lacks {', '.join(lacking)}. Name the folder that holds {', '.join(parts)}.")
    return folder


def _lacking(folder: Path, parts: Sequence[str]) -> list[str]:
    return [part for part in parts if not (folder / part).exists()]


def _download_once(folder: Path, variable: str, parts: Sequence[str], source: AssetSource) -> None:
    lock = folder.with_name(f"{folder.name}.lock")
    with one_at_a_time(lock, deadline=_WAIT, waiting=f"another process downloads the assets {folder.name!r}"):
        if is_complete(folder, parts=parts, source=source):
            return
        download = Download(source, folder, variable)
        (folder / MARKER).unlink(missing_ok=True)
        commit, files = download.run()
        if lacking := _lacking(folder, parts):
            raise AssetsError(
                f"{source.repo!r} on the hub (revision {source.revision}) lacks {', '.join(lacking)}: it is not what "
                f"this version of Sparring expects. Name a folder that has them with the setting assets or {variable}."
            )
        marker = {"source": asdict(source), "commit": commit, "files": {file.path: file.size for file in files}}
        draft = folder / f"{MARKER}.draft"
        draft.write_text(json.dumps(marker, indent=1))
        draft.replace(folder / MARKER)
        shutil.rmtree(folder / _PARTIAL_OF_0_1, ignore_errors=True)
