"""Meshes and textures that a package does not bring: found where they are, else downloaded from the Hugging Face hub.

Only the standard library and rich, so that no benchmark's environment needs more for it.

A download is one folder of the user's cache. Its marker is written last: without one, or with a file gone or cut short
since, the folder is not complete, and the download goes on with what is missing. Files arrive in `.partial` and move
to their place when their hash is right.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import shutil
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from sparring.env_worker.hub import BLOCK, MARKER, PARTIAL, AssetsError, AssetSource, Hub, RemoteFile, reason_of
from sparring.env_worker.locks import one_at_a_time, say
from sparring.protos.errors import UsageError

_WAIT: Final = 3600.0
"""Seconds to wait for another process that downloads the same."""
_ATTEMPTS: Final = 4
_LONGEST_PAUSE: Final = 30.0
_CONNECTIONS: Final = 8
_SPARE: Final = 1 << 28
"""Bytes of disk that a download leaves free."""

_BROKEN_CONNECTION: Final = (
    ConnectionError,
    TimeoutError,
    urllib.error.URLError,
    http.client.HTTPException,
    ssl.SSLError,
)


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
        _Download(Hub(source), folder, variable).run()
        if lacking := _lacking(folder, parts):
            raise AssetsError(
                f"{source.repo!r} on the hub (revision {source.revision}) lacks {', '.join(lacking)}: it is not what "
                f"this version of Sparring expects. Name a folder that has them with the setting assets or {variable}."
            )


class _Download:
    """Brings a folder to what the hub has, keeping whatever of it is there already."""

    def __init__(self, hub: Hub, folder: Path, variable: str) -> None:
        self._hub = hub
        self._folder = folder
        self._variable = variable
        self._stop = threading.Event()

    def run(self) -> None:
        commit, files = self._listed()
        self._folder.joinpath(PARTIAL).mkdir(parents=True, exist_ok=True)
        self._folder.joinpath(MARKER).unlink(missing_ok=True)
        missing = [file for file in files if not file.matches(self._folder / file.path)]
        self._check_room(missing)
        with _progress(f"assets {self._folder.name}", sum(file.size for file in missing)) as advance:
            self._fetch_all(commit, missing, advance)
        self._finish(commit, files)

    def _listed(self) -> tuple[str, list[RemoteFile]]:
        if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
            raise self._unreachable("HF_HUB_OFFLINE is set")
        try:
            commit = self._hub.commit()
            return commit, self._hub.tree(commit)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from error
        except _BROKEN_CONNECTION as error:
            raise self._unreachable(reason_of(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreachable("it does not answer as the Hugging Face hub does") from error

    def _check_room(self, missing: Sequence[RemoteFile]) -> None:
        needed = sum(file.size - _size(file.partial(self._folder)) for file in missing) + _SPARE
        free = shutil.disk_usage(self._folder).free
        if missing and needed > free:
            raise OSError(errno.ENOSPC, f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free")

    def _fetch_all(self, commit: str, missing: Sequence[RemoteFile], advance: Callable[[int], None]) -> None:
        pool = ThreadPoolExecutor(_CONNECTIONS)
        try:
            for done in as_completed([pool.submit(self._fetch, commit, file, advance) for file in missing]):
                done.result()
        finally:
            self._stop.set()  # whoever is still at it ends with its next block
            pool.shutdown(cancel_futures=True)

    def _fetch(self, commit: str, file: RemoteFile, advance: Callable[[int], None]) -> None:
        partial = file.partial(self._folder)
        if _size(partial) > file.size:
            partial.unlink()
        advance(_size(partial))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._receive(commit, file, partial, advance)
                break
            except _BROKEN_CONNECTION as error:
                pause = _pause(error, attempt)
                if pause is None or self._stop.wait(pause):
                    raise self._broken_off(file, error) from error
        if not file.matches(partial):
            partial.unlink()
            raise AssetsError(
                f"{file.path!r} of {self._hub.source.repo!r} arrived corrupted: its hash is not the one that the hub "
                "names. It was removed; try again, and if it stays so, look at the proxy between here and the hub."
            )
        target = self._folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.replace(target)

    def _receive(self, commit: str, file: RemoteFile, partial: Path, advance: Callable[[int], None]) -> None:
        have = _size(partial)
        if have == file.size > 0:
            return
        with self._hub.open(self._hub.address(commit, file.path), start=have) as answer:
            if have and not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                partial.unlink()  # the server begins at the beginning, whatever it was asked
                advance(-have)
            with partial.open("ab") as sink:
                for block in _blocks(answer):
                    sink.write(block)
                    advance(len(block))
                    if self._stop.is_set():
                        break
        if _size(partial) < file.size:
            raise ConnectionError("the connection ended before the file did")

    def _finish(self, commit: str, files: Sequence[RemoteFile]) -> None:
        marker = {"source": asdict(self._hub.source), "commit": commit, "files": {f.path: f.size for f in files}}
        shutil.rmtree(self._folder / PARTIAL)
        draft = self._folder / f"{MARKER}.draft"
        draft.write_text(json.dumps(marker, indent=1))
        draft.replace(self._folder / MARKER)

    def _elsewhere(self) -> str:
        return (
            "copy them from a machine that has them and name their folder with the setting assets or the variable "
            f"{self._variable}."
        )

    def _unreachable(self, reason: str) -> AssetsError:
        return AssetsError(
            f"the assets {self._folder.name!r} are not on this machine, and the hub {self._hub.endpoint} cannot be "
            f"reached to download them: {reason}. Connect this machine to the network once, or {self._elsewhere()}"
        )

    def _refused(self, error: urllib.error.HTTPError) -> AssetsError:
        return AssetsError(
            f"the hub {self._hub.endpoint} does not give out {self._hub.source.repo!r} (HTTP {error.code} "
            f"{error.reason}). If that needs an account, set HF_TOKEN; else try later, or {self._elsewhere()}"
        )

    def _broken_off(self, file: RemoteFile, error: BaseException) -> AssetsError:
        return AssetsError(
            f"the download of the assets {self._folder.name!r} broke off at {file.path!r}: {reason_of(error)}. "
            "What has arrived is kept; the same command goes on from there."
        )


def _blocks(answer: Any) -> Iterator[bytes]:
    while True:
        try:
            block = answer.read(BLOCK)
        except OSError as error:  # the network's, not to be taken for the disk's
            raise ConnectionError(reason_of(error)) from error
        if not block:
            return
        yield block


def _pause(error: BaseException, attempt: int) -> float | None:
    """Returns the seconds until the next attempt; None if there should be none."""
    if attempt == _ATTEMPTS:
        return None
    if isinstance(error, urllib.error.HTTPError):
        if error.code not in (408, 429) and error.code < 500:
            return None
        asked = str(error.headers.get("Retry-After", ""))
        if asked.isdigit():
            return min(float(asked), _LONGEST_PAUSE)
    return float(2 ** (attempt - 2))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a download on standard error: a bar on a terminal, else a line per tenth. Yields what counts bytes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what, total).advance
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


class _Lines:
    """Progress for logs."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._tenths = 0
        self._lock = threading.Lock()
        say(f"{what}: downloading {total / 1e6:.1f} MB")

    def advance(self, count: int) -> None:
        with self._lock:
            self._done += count
            tenths = 10 * self._done // max(1, self._total)
            if tenths > self._tenths:
                self._tenths = tenths
                say(f"{self._what}: {self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB")
