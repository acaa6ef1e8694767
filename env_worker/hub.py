"""The part of the Hugging Face hub's HTTP interface that assets are downloaded through."""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from sparring.protos.errors import SparringError, UsageError

HUB: Final = "https://huggingface.co"
MARKER: Final = ".complete.json"
PARTIAL: Final = ".partial"
TIMEOUT: Final = 20.0
"""Seconds that the hub may be silent."""
BLOCK: Final = 1 << 18


class AssetsError(SparringError):
    """Assets are not here and could not be had."""


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
    def of(cls, entry: Mapping[str, Any]) -> RemoteFile:
        path = PurePosixPath(entry["path"])
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((), (PARTIAL,), (MARKER,)):
            raise AssetsError(f"the hub names a file {entry['path']!r}, which may not be written. Tell its owner.")
        stored = entry.get("lfs")
        digest = stored["oid"].removeprefix("sha256:") if stored else entry["oid"]
        return cls(str(path), int(stored["size"] if stored else entry["size"]), digest, bool(stored))

    def matches(self, file: Path) -> bool:
        if not file.is_file() or file.stat().st_size != self.size:
            return False
        digest = hashlib.sha256() if self.large else hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with file.open("rb") as content:
            while block := content.read(BLOCK):
                digest.update(block)
        return digest.hexdigest() == self.digest

    def partial(self, folder: Path) -> Path:
        """Returns where it arrives: a name of its own for each content, so that two revisions are never mixed."""
        name = hashlib.sha256(f"{self.path}\0{self.digest}".encode()).hexdigest()
        return folder / PARTIAL / name[:32]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows the hub to where files are stored, without showing the token there."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and urllib.parse.urlsplit(newurl).netloc != urllib.parse.urlsplit(req.full_url).netloc:
            request.remove_header("Authorization")
        return request


class Hub:
    """The part of the hub's HTTP interface that is needed here: a revision, its tree, its files."""

    def __init__(self, source: AssetSource) -> None:
        self.source = source
        self.endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        if not self.endpoint.startswith(("https://", "http://")):
            raise UsageError(f"HF_ENDPOINT={self.endpoint!r} is no address; it must begin with https://.")
        self._token = os.environ.get("HF_TOKEN", "").strip()
        self._opener = urllib.request.build_opener(_Redirects)

    def commit(self) -> str:
        revision = urllib.parse.quote(self.source.revision, safe="")
        with self.open(f"{self.endpoint}/api/{self.source.kind}/{self.source.repo}/revision/{revision}") as answer:
            return str(json.load(answer)["sha"])

    def tree(self, commit: str) -> list[RemoteFile]:
        files: list[RemoteFile] = []
        page: str | None = f"{self.endpoint}/api/{self.source.kind}/{self.source.repo}/tree/{commit}?recursive=true"
        while page:
            with self.open(page) as answer:
                files += [RemoteFile.of(entry) for entry in json.load(answer) if entry["type"] == "file"]
                following = re.search(r'<([^>]+)>;\s*rel="next"', answer.headers.get("Link", ""))
            page = urllib.parse.urljoin(page, following[1]) if following else None
        return files

    def address(self, commit: str, path: str) -> str:
        prefix = "" if self.source.kind == "models" else f"{self.source.kind}/"
        return f"{self.endpoint}/{prefix}{self.source.repo}/resolve/{commit}/{urllib.parse.quote(path)}"

    def open(self, address: str, *, start: int = 0) -> Any:
        request = urllib.request.Request(address, headers={"User-Agent": "sparring"})
        if start:
            request.add_header("Range", f"bytes={start}-")
        if self._token and address.startswith(f"{self.endpoint}/"):
            request.add_header("Authorization", f"Bearer {self._token}")
        return self._opener.open(request, timeout=TIMEOUT)


def reason_of(error: BaseException) -> str:
    """Returns why a request failed, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    return str(getattr(inner, "strerror", None) or inner)
