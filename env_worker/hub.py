"""Downloads a repository of the Hugging Face hub into a folder.

huggingface_hub does the work (it knows tokens, mirrors, resuming); it is imported when something has to be downloaded,
because not every interpreter that looks for assets has it. What is added here: sentences, a look at the room there is,
and the hash of every file, since a mesh that was damaged on its way would change numbers without a word.
"""

from __future__ import annotations

import errno
import hashlib
import http
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, TypeVar

from rich.console import Console

from sparring.env_worker.locks import say
from sparring.protos.errors import SparringError, UsageError

T = TypeVar("T")

HUB: Final = "https://huggingface.co"
MARKER: Final = ".complete.json"
TIMEOUT: Final = 20.0
"""Seconds that the hub may take to answer."""
LIST_SECONDS: Final = 120.0
"""Seconds that it may take to list all files, which huggingface_hub itself would wait for without end."""
_OWN: Final = ".cache"
"""Where huggingface_hub keeps what it knows of a folder, and what has not arrived whole."""
_CONNECTIONS: Final = 8
_BLOCK: Final = 1 << 18
_SPARE: Final = 1 << 28
"""Bytes of disk that a download leaves free."""
_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EIO)


class AssetsError(SparringError):
    """Assets are not here and could not be had."""


class HubMissing(AssetsError):
    """Assets are not here, and this interpreter cannot download them."""


@dataclass(frozen=True)
class AssetSource:
    """A repository on the hub.

    Attributes:
        repo: As in "lerobot/libero-assets".
        kind: As in the hub's addresses.
        revision: A branch, a tag or a commit.
    """

    repo: str
    kind: Literal["datasets", "models"] = "datasets"
    revision: str = "main"


@dataclass(frozen=True)
class RemoteFile:
    """A file of the repository; the digest is sha256 for large files, git's own (sha1) for the others."""

    path: str
    size: int
    digest: str
    large: bool

    @classmethod
    def of(cls, entry: Any) -> RemoteFile:
        """Reads what the hub lists; refuses a name that may not be written."""
        path = PurePosixPath(entry.path)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((), (_OWN,), (MARKER,)):
            raise AssetsError(f"the hub names a file {entry.path!r}, which may not be written. Tell its owner.")
        if entry.lfs is None:
            return cls(str(path), entry.size, entry.blob_id, large=False)
        return cls(str(path), entry.lfs.size, entry.lfs.sha256, large=True)

    def matches(self, file: Path) -> bool:
        """Returns whether a file is this one, by its size and hash."""
        if not file.is_file() or file.stat().st_size != self.size:
            return False
        digest = hashlib.sha256() if self.large else hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with file.open("rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest() == self.digest


class Download:
    """Brings a folder to what the hub has, keeping whatever of it is there already.

    Args:
        source: The repository.
        folder: Where to.
        variable: The environment variable that could name another folder.

    Raises:
        HubMissing: If huggingface_hub is not installed here.
        UsageError: If HF_ENDPOINT is no address.
    """

    def __init__(self, source: AssetSource, folder: Path, variable: str) -> None:
        self._source = source
        self._folder = folder
        self._variable = variable
        self._endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        if not self._endpoint.startswith(("https://", "http://")):
            raise UsageError(f"HF_ENDPOINT={self._endpoint!r} is no address; it must begin with https://.")
        try:
            import huggingface_hub
        except ImportError:
            raise HubMissing(
                f"the assets {folder.name!r} are not on this machine, and downloading them needs the package "
                f"huggingface_hub, which is not installed in this Python. Install it, or {self._elsewhere()}"
            ) from None
        self._hub: Any = huggingface_hub
        self._repo = {"repo_id": source.repo, "repo_type": source.kind.removesuffix("s")}

    def run(self) -> tuple[str, Sequence[RemoteFile]]:
        """Downloads what is missing and checks everything; returns the commit and its files.

        Raises:
            AssetsError: If it cannot be had, with what to do.
            OSError: If it cannot be written.
        """
        commit, files = self._listed()
        self._folder.mkdir(parents=True, exist_ok=True)
        missing = [file for file in files if not file.matches(self._folder / file.path)]
        self._check_room(missing)
        for file in missing:  # whatever is in its place is not to be built upon
            (self._folder / file.path).unlink(missing_ok=True)
        for left in (self._folder / _OWN).rglob("*.incomplete"):  # by one that was killed; nobody goes on from it
            left.unlink()
        if missing:
            self._fetch(commit, sum(file.size for file in missing))
        self._check_hashes(missing)
        return commit, files

    def _listed(self) -> tuple[str, list[RemoteFile]]:
        if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
            raise self._unreachable("HF_HUB_OFFLINE is set")
        from huggingface_hub.errors import HfHubHTTPError

        api = self._hub.HfApi(endpoint=self._endpoint, library_name="sparring")
        try:
            commit = str(api.repo_info(**self._repo, revision=self._source.revision, timeout=TIMEOUT).sha)
            tree = _within(
                LIST_SECONDS, lambda: list(api.list_repo_tree(**self._repo, revision=commit, recursive=True))
            )
        except HfHubHTTPError as error:
            raise self._refused(error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreachable("it does not answer as the Hugging Face hub does") from error
        except Exception as error:  # of whichever HTTP library it uses
            raise self._unreachable(_reason(error)) from error
        return commit, [RemoteFile.of(entry) for entry in tree if isinstance(entry, self._hub.hf_api.RepoFile)]

    def _check_room(self, missing: Sequence[RemoteFile]) -> None:
        needed, free = sum(file.size for file in missing) + _SPARE, shutil.disk_usage(self._folder).free
        if missing and needed > free:
            raise OSError(errno.ENOSPC, f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free")

    def _fetch(self, commit: str, total: int) -> None:
        try:
            with _progress(f"assets {self._folder.name}", total, self._hub.utils.tqdm) as bar:
                self._hub.snapshot_download(
                    **self._repo,
                    revision=commit,
                    local_dir=self._folder,
                    endpoint=self._endpoint,
                    max_workers=_CONNECTIONS,
                    tqdm_class=bar,
                )
        except Exception as error:  # the hub's own errors, those of whichever HTTP library it uses, and the disk's
            if isinstance(error, OSError) and error.errno in _DISK:
                raise
            raise AssetsError(
                f"the download of the assets {self._folder.name!r} broke off: {_reason(error)}. "
                "What has arrived is kept; the same command goes on from there."
            ) from error

    def _check_hashes(self, files: Sequence[RemoteFile]) -> None:
        for file in files:
            if not file.matches(self._folder / file.path):
                (self._folder / file.path).unlink(missing_ok=True)
                raise AssetsError(
                    f"{file.path!r} of {self._source.repo!r} arrived corrupted: its hash is not the one that the hub "
                    "names. It was removed; try again, and if it stays so, look at the proxy between here and the hub."
                )

    def _elsewhere(self) -> str:
        return (
            "copy them from a machine that has them and name their folder with the setting assets or the variable "
            f"{self._variable}."
        )

    def _unreachable(self, reason: str) -> AssetsError:
        return AssetsError(
            f"the assets {self._folder.name!r} are not on this machine, and the hub {self._endpoint} cannot be "
            f"reached to download them: {reason}. Connect this machine to the network once, or {self._elsewhere()}"
        )

    def _refused(self, error: BaseException) -> AssetsError:
        return AssetsError(
            f"the hub {self._endpoint} does not give out {self._source.repo!r} ({_reason(error)}). "
            f"If that needs an account, set HF_TOKEN; else try later, or {self._elsewhere()}"
        )


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Returns what a call returns that has no deadline of its own; where it has not in time, its thread is left behind.

    Raises:
        TimeoutError: If it takes longer.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=run, name="hub", daemon=True).start()  # no executor: Python waits for its threads at exit
    return answer.result(seconds)


def _reason(error: BaseException) -> str:
    """Returns why a request failed, in a few words: the innermost of the errors that libraries wrap into each other."""
    while True:
        response = getattr(error, "response", None)
        if response is not None:
            code = int(response.status_code)
            return f"HTTP {code} {http.HTTPStatus(code).phrase if code in set(http.HTTPStatus) else ''}".rstrip()
        if "Timeout" in type(error).__name__:
            return "no answer in time"
        inner = error.__cause__ or error.__context__
        if inner is None:
            said = str(getattr(error, "strerror", None) or error).partition("\n")[0]
            return said.rstrip(".") or type(error).__name__
        error = inner


@contextmanager
def _progress(what: str, total: int, tqdm: Any) -> Iterator[Any]:
    """Yields what shows a download on standard error: the hub's own bars on a terminal, else a line per tenth."""
    if Console(stderr=True).is_terminal:
        yield tqdm
        return
    lines = _Lines(what, total)

    class Silent(tqdm):  # type: ignore[misc]
        """A bar that is not drawn, and whose bytes are told in lines."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.of_bytes = options.get("name") == "huggingface_hub.snapshot_download"
            super().__init__(*arguments, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if self.of_bytes:
                lines.advance(int(n or 0))
            drawn: bool | None = super().update(n)
            return drawn

    yield Silent


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
        """Counts bytes, and says so at every tenth."""
        with self._lock:
            self._done += count
            tenths = 10 * self._done // max(1, self._total)
            if tenths > self._tenths:
                self._tenths = tenths
                say(f"{self._what}: {self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB")
