"""Assets: found where they are named, else downloaded whole.

Most tests download from a server on loopback that stands in for the Hugging Face hub: it speaks the part of the hub's
HTTP interface that huggingface_hub uses for it (a revision, its tree in pages, metadata of files, large ones behind a
redirect, Range), because tests must pass without a network, and because a real hub neither breaks off nor corrupts a
file when a test wants it to.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from support import free_port, wait_for

from sparring.env_worker import hub as hub_module
from sparring.env_worker.assets import find_assets, is_complete
from sparring.env_worker.hub import AssetsError, AssetSource, HubMissing
from sparring.env_worker.locks import one_at_a_time
from sparring.protos.errors import SparringError, UsageError

SOURCE = AssetSource("someone/things")
PARTS = ("meshes", "textures")
LARGE = "meshes/large mesh.stl"
COMMIT = "c0ffee" + "0" * 34
VARIABLE = "SPARRING_TEST_ASSETS"
CHUNK = 10 * 2**20
"""What huggingface_hub writes at once, and so what it goes on from."""
FILES = {
    LARGE: os.urandom(2 * CHUNK + 700_000),
    "meshes/small.xml": b"<mujoco/>",
    "textures/wood.png": b"brown",
    "textures/same.png": b"brown",
    "textures/empty.txt": b"",
}


@cache  # the large one is asked for some hundred times
def hashes(content: bytes) -> tuple[str, str]:
    """What git calls a file, and its SHA-256."""
    blob = b"blob %d\0" % len(content) + content
    return hashlib.sha1(blob).hexdigest(), hashlib.sha256(content).hexdigest()


@dataclass
class FakeHub:
    """What the server gives out, what it was asked, and how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths of files and their Range."""
    tokens: dict[str, set[str | None]] = field(default_factory=dict)
    break_off_at: dict[str, list[int]] = field(default_factory=dict)
    """After how many bytes of a file the connection is closed, once each."""
    silent_at: dict[str, int] = field(default_factory=dict)
    """After how many bytes of a file nothing more is sent until `released`."""
    silent_tree: bool = False
    """Whether the second page of the list of files is not sent until `released`."""
    corrupt: set[str] = field(default_factory=set)
    refuse_with: dict[str, int] = field(default_factory=dict)
    ranges: bool = True
    released: threading.Event = field(default_factory=threading.Event)

    def tree(self) -> list[dict[str, object]]:
        entries: list[dict[str, object]] = [{"type": "directory", "oid": "d" * 40, "size": 0, "path": "meshes"}]
        for path, content in self.files.items():
            git, sha256 = hashes(content)
            entry = {"type": "file", "path": path, "size": len(content), "oid": git}
            if path == LARGE:
                entry |= {"oid": "f" * 40, "lfs": {"oid": sha256, "size": len(content), "pointerSize": 130}}
            entries.append(entry)
        return entries

    def etag(self, path: str) -> str:
        entry = next(entry for entry in self.tree() if entry["path"] == path)
        lfs = entry.get("lfs")
        return str(lfs["oid"] if isinstance(lfs, dict) else entry["oid"])

    def count(self) -> Counter[str]:
        return Counter(path for path, _ in self.asked)


def handler_of(hub: FakeHub, storage: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            role = "storage" if path.startswith("/storage/") else "hub"
            hub.tokens.setdefault(role, set()).add(self.headers.get("Authorization"))
            if path in [f"/api/datasets/someone/things/revision/{revision}" for revision in ("main", COMMIT)]:
                siblings = [{"rfilename": name} for name in hub.files]
                self.answer(json.dumps({"id": "someone/things", "sha": COMMIT, "siblings": siblings}).encode())
            elif path == f"/api/datasets/someone/things/tree/{COMMIT}":
                self.page(second="page=2" in self.path)
            elif path.startswith(prefix := f"/datasets/someone/things/resolve/{COMMIT}/"):
                self.resolve(unquote(path.removeprefix(prefix)))
            elif role == "storage":
                self.file(unquote(path.removeprefix("/storage/")))
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_HEAD = do_GET

        def resolve(self, path: str) -> None:
            """Large files are elsewhere; the headers say what they are all the same."""
            entry = next(entry for entry in hub.tree() if entry["path"] == path)
            if path != LARGE and self.command == "GET":
                self.file(path)
                return
            large = path == LARGE
            self.send_response(302 if large else 200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Etag" if large else "ETag", f'"{hub.etag(path)}"')
            self.send_header("X-Linked-Size", str(entry["size"]))
            self.send_header("Content-Length", "0" if large else str(entry["size"]))
            if large:
                self.send_header("Location", f"{storage}/storage/{quote(path)}")
            self.end_headers()

        def page(self, *, second: bool) -> None:
            if second and hub.silent_tree:
                hub.released.wait(30)
            entries = hub.tree()
            half = len(entries) // 2
            link = f'<http://{self.headers["Host"]}{self.path}&page=2>; rel="next"'
            self.answer(json.dumps(entries[half:] if second else entries[:half]).encode(), "" if second else link)

        def answer(self, body: bytes, link: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            if link:
                self.send_header("Link", link)
            self.end_headers()
            self.wfile.write(body)

        def file(self, path: str) -> None:
            if self.command == "GET":
                hub.asked.append((path, self.headers.get("Range")))
            if path in hub.refuse_with:
                self.send_error(hub.refuse_with[path])
                return
            content = hub.files[path]
            if path in hub.corrupt:
                content = bytes(len(content))
            start = 0
            if hub.ranges and (asked := self.headers.get("Range")):
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if self.command == "HEAD":
                return
            stops = hub.break_off_at.get(path)
            end = stops.pop(0) if stops else hub.silent_at.get(path, len(content))
            self.wfile.write(content[start:end])
            self.wfile.flush()
            if path in hub.silent_at:
                hub.released.wait(30)
                with suppress(ConnectionError):  # whoever asked may be dead by now
                    self.wfile.write(content[end:])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    port = server.server_address[1]
    # Two names for one server, as the hub keeps its large files on another host.
    server.RequestHandlerClass = handler_of(fake, f"http://localhost:{port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    yield fake
    fake.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


def find(setting: str | None = None) -> Path:
    return find_assets(setting=setting, variable=VARIABLE, cache_name="things", parts=PARTS, source=SOURCE)


def start_finding() -> subprocess.Popen[str]:
    code = (
        # A shell that starts us in the background makes us ignore Ctrl-C, and our children with us.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sparring.env_worker.assets import find_assets\nfrom sparring.env_worker.hub import AssetSource\n"
        f"find_assets(setting=None, variable={VARIABLE!r}, cache_name='things', parts={PARTS!r}, source={SOURCE!r})"
    )
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in FILES}


def arriving(folder: Path) -> int:
    """Bytes of a file that is on its way, as huggingface_hub keeps them."""
    return max((file.stat().st_size for file in folder.rglob("*.incomplete")), default=0)


class TestNamedFolders:
    def test_the_setting_comes_before_the_variable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("set", "variable"):
            for part in PARTS:
                (tmp_path / name / part).mkdir(parents=True)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "variable"))
        assert find(str(tmp_path / "set")) == tmp_path / "set"
        assert find() == tmp_path / "variable"

    def test_a_folder_that_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UsageError, match=r"setting assets=.*does not name a folder"):
            find(str(tmp_path / "nowhere"))
        monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
        with pytest.raises(UsageError, match=f"{VARIABLE}=.*does not name a folder"):
            find()

    def test_a_folder_that_lacks_parts(self, tmp_path: Path) -> None:
        (tmp_path / "meshes").mkdir()
        with pytest.raises(UsageError, match="lacks textures"):
            find(str(tmp_path))


class TestDownload:
    def test_everything_arrives_and_is_not_asked_for_again(self, hub: FakeHub) -> None:
        folder = find()
        assert contents(folder) == FILES
        assert json.loads((folder / hub_module.MARKER).read_text())["commit"] == COMMIT
        assert {path.name for path in folder.iterdir()} == {*PARTS, hub_module.MARKER, ".cache"}
        asked = len(hub.asked)
        assert find() == folder
        assert len(hub.asked) == asked == len(FILES) - 1, "an empty file is not worth asking"

    def test_progress_is_told_in_lines_when_nobody_watches(
        self, hub: FakeHub, capfd: pytest.CaptureFixture[str]
    ) -> None:
        find()
        said = capfd.readouterr()
        assert said.out == ""
        assert "assets things: downloading 21.7 MB" in said.err
        assert "10.5 of 21.7 MB" in said.err
        assert "21.7 of 21.7 MB" in said.err

    def test_the_token_is_for_the_hub_only(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "secret")
        find()
        assert hub.tokens == {"hub": {"Bearer secret"}, "storage": {None}}

    def test_a_file_lost_since_is_brought_back_alone(self, hub: FakeHub) -> None:
        folder = find()
        (folder / "textures/wood.png").unlink()
        hub.asked.clear()
        assert contents(find()) == FILES
        assert hub.count() == {"textures/wood.png": 1}

    def test_a_folder_without_a_marker_is_not_taken_for_complete(self, hub: FakeHub) -> None:
        folder = find()
        (folder / hub_module.MARKER).unlink()
        (folder / LARGE).write_bytes(FILES[LARGE][:1000])
        assert not is_complete(folder, parts=PARTS, source=SOURCE)
        hub.asked.clear()
        assert contents(find()) == FILES
        assert hub.count() == {LARGE: 1}

    def test_another_revision_is_another_download(self, hub: FakeHub) -> None:
        folder = find()
        other = AssetSource(SOURCE.repo, revision="v2")
        assert is_complete(folder, parts=PARTS, source=SOURCE)
        assert not is_complete(folder, parts=PARTS, source=other)

    def test_what_release_0_1_downloaded_is_found(self, hub: FakeHub, tmp_path: Path) -> None:
        folder = tmp_path / "cache/sparring/things"
        for path, content in FILES.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        source = {"repo": "someone/things", "kind": "datasets", "revision": "main"}
        sizes = {path: len(content) for path, content in FILES.items()}
        (folder / ".complete.json").write_text(json.dumps({"source": source, "commit": COMMIT, "files": sizes}))
        assert find() == folder
        assert (hub.asked, hub.tokens) == ([], {}), "nobody was asked"

    def test_without_the_package_what_is_here_is_found_and_what_is_not_is_a_sentence(
        self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = find()
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if it were not installed
        assert find() == folder
        (folder / hub_module.MARKER).unlink()
        with pytest.raises(HubMissing, match="needs the package huggingface_hub"):
            find()

    def test_a_marker_that_makes_no_sense_is_none(self, hub: FakeHub) -> None:
        folder = find()
        for nonsense in ("", "[]", '{"source": 1}', json.dumps({"source": vars(SOURCE), "files": []})):
            (folder / hub_module.MARKER).write_text(nonsense)
            assert not is_complete(folder, parts=PARTS, source=SOURCE)

    def test_parts_that_the_hub_does_not_have(self, hub: FakeHub) -> None:
        hub.files = {"meshes/a.stl": b"a"}
        with pytest.raises(AssetsError, match=r"'someone/things' on the hub \(revision main\) lacks textures"):
            find()

    @pytest.mark.parametrize(
        "path", ["../escaped", "/tmp/escaped", ".complete.json", ".cache/escaped", "a/../../escaped"]
    )
    def test_names_that_would_leave_the_folder(self, hub: FakeHub, path: str, tmp_path: Path) -> None:
        hub.files = {path: b"evil"}
        with pytest.raises(AssetsError, match="may not be written"):
            find()
        assert not list(tmp_path.rglob("escaped"))


@pytest.mark.processes
class TestInterruptions:
    def test_a_connection_that_breaks_goes_on_by_range(self, hub: FakeHub) -> None:
        hub.break_off_at[LARGE] = [CHUNK + 1000, 2 * CHUNK + 1000]
        assert contents(find()) == FILES
        assert [r for path, r in hub.asked if path == LARGE] == [None, f"bytes={CHUNK}-", f"bytes={2 * CHUNK}-"]

    def test_a_server_without_ranges_begins_again(self, hub: FakeHub) -> None:
        hub.ranges = False
        hub.break_off_at[LARGE] = [CHUNK + 1000]
        assert contents(find()) == FILES

    def test_a_killed_download_keeps_the_files_that_arrived(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.silent_at[LARGE] = 2 * CHUNK + 1000
        process = start_finding()
        folder = tmp_path / "cache/sparring/things"
        others = len(FILES) - 1
        wait_for(lambda: sum((folder / file).exists() for file in FILES) == others)
        wait_for(lambda: arriving(folder) >= 2 * CHUNK)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert not is_complete(folder, parts=PARTS, source=SOURCE)
        assert arriving(folder) > 0

        hub.silent_at.clear()
        hub.released.set()
        hub.asked.clear()
        assert contents(find()) == FILES
        assert hub.count() == {LARGE: 1}
        assert arriving(folder) == 0, "what was cut off is not left to lie there"

    def test_ctrl_c_ends_it(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.silent_at[LARGE] = 2 * CHUNK + 1000
        process = start_finding()
        folder = tmp_path / "cache/sparring/things"
        wait_for(lambda: arriving(folder) >= 2 * CHUNK)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        hub.released.set()
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "KeyboardInterrupt" in said
        assert not is_complete(folder, parts=PARTS, source=SOURCE)

    @pytest.mark.parametrize("path", [LARGE, "textures/wood.png"], ids=["sha256", "git"])
    def test_a_corrupted_file_is_refused_and_removed(self, hub: FakeHub, tmp_path: Path, path: str) -> None:
        hub.corrupt = {path}
        with pytest.raises(AssetsError, match=f"{path}.*arrived corrupted"):
            find()
        folder = tmp_path / "cache/sparring/things"
        assert not (folder / path).exists()
        assert not is_complete(folder, parts=PARTS, source=SOURCE)
        hub.corrupt = set()
        hub.asked.clear()
        assert contents(find()) == FILES
        assert (path, None) in hub.asked, "what was corrupted must not be built upon"

    def test_a_file_that_is_refused_keeps_the_others(self, hub: FakeHub) -> None:
        hub.refuse_with[LARGE] = 403
        with pytest.raises(AssetsError, match=r"broke off: HTTP 403 Forbidden\. What has arrived is kept"):
            find()
        assert hub.count()[LARGE] == 1, "a refusal is not worth another attempt"
        hub.refuse_with.clear()
        assert contents(find()) == FILES

    def test_no_room(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hub_module, "_SPARE", 1 << 60)
        with pytest.raises(AssetsError, match=r"cannot be kept in .*MB are needed"):
            find()
        assert hub.asked == []

    def test_a_cache_that_cannot_be_written(self, hub: FakeHub, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file where the folder should be")
        with pytest.raises(AssetsError, match=r"cannot be kept in .*XDG_CACHE_HOME"):
            find()


@pytest.mark.processes
class TestSeveralProcesses:
    def test_one_downloads_and_the_other_waits(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.silent_at[LARGE] = 2 * CHUNK + 1000
        first = start_finding()
        wait_for(lambda: hub.asked)
        second = start_finding()
        assert second.stderr is not None
        assert "another process downloads the assets 'things'; waiting" in second.stderr.readline()
        hub.released.set()
        first.communicate(timeout=60)
        second.communicate(timeout=60)
        assert (first.returncode, second.returncode) == (0, 0)
        assert set(hub.count().values()) == {1}
        assert contents(tmp_path / "cache/sparring/things") == FILES

    def test_waiting_has_an_end(self, tmp_path: Path) -> None:
        lock = tmp_path / "a.lock"
        with (
            one_at_a_time(lock, deadline=1, waiting=""),
            pytest.raises(SparringError, match="another process has held"),
            one_at_a_time(lock, deadline=0.3, waiting="busy"),
        ):
            pass


class TestOffline:
    def sentence(self) -> str:
        began = time.monotonic()
        with pytest.raises(AssetsError) as raised:
            find()
        assert time.monotonic() - began < 30, "retries for long"
        return str(raised.value)

    def test_nobody_listens(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
        said = self.sentence()
        assert "are not on this machine" in said
        assert "Connection refused" in said
        assert VARIABLE in said

    def test_no_such_host(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(*_: object, **__: object) -> object:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        assert "Temporary failure in name resolution" in self.sentence()

    def test_nobody_answers(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hub_module, "TIMEOUT", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
            assert "no answer in time" in self.sentence()

    def test_what_there_is_never_comes(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hub_module, "LIST_SECONDS", 0.3)
        hub.silent_tree = True
        assert "no answer in time" in self.sentence()

    def test_told_to_stay_offline(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert "HF_HUB_OFFLINE is set" in self.sentence()

    def test_what_is_complete_needs_no_network(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = find()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
        assert find() == folder

    def test_a_repository_that_is_not_there(self, hub: FakeHub) -> None:
        with pytest.raises(AssetsError, match=r"does not give out 'someone/else' \(HTTP 404.*HF_TOKEN"):
            find_assets(
                setting=None, variable=VARIABLE, cache_name="else", parts=PARTS, source=AssetSource("someone/else")
            )
