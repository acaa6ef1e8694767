"""Assets: found where they are named, else downloaded whole.

Most tests download from a server on loopback that stands in for the Hugging Face hub: it speaks the part of the hub's
HTTP interface that is used (a revision, its tree in pages, files behind a redirect, Range), because tests must pass
without a network, and because a real hub neither breaks off nor corrupts a file when a test wants it to.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from support import free_port, wait_for

from sparring.env_worker import assets
from sparring.env_worker import hub as hub_module
from sparring.env_worker.assets import find_assets, is_complete
from sparring.env_worker.hub import AssetsError, AssetSource
from sparring.env_worker.locks import one_at_a_time
from sparring.protos.errors import SparringError, UsageError

SOURCE = AssetSource("someone/things")
PARTS = ("meshes", "textures")
LARGE = "meshes/large mesh.stl"
COMMIT = "c0ffee" + "0" * 34
VARIABLE = "SPARRING_TEST_ASSETS"
FILES = {
    LARGE: os.urandom(700_000),
    "meshes/small.xml": b"<mujoco/>",
    "textures/wood.png": b"brown",
    "textures/same.png": b"brown",
    "textures/empty.txt": b"",
}


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
    corrupt: set[str] = field(default_factory=set)
    refuse_with: dict[str, int] = field(default_factory=dict)
    ranges: bool = True
    released: threading.Event = field(default_factory=threading.Event)

    def tree(self) -> list[dict[str, object]]:
        entries: list[dict[str, object]] = [{"type": "directory", "oid": "d" * 40, "size": 0, "path": "meshes"}]
        for path, content in self.files.items():
            blob = b"blob %d\0" % len(content) + content
            entry = {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(blob).hexdigest()}
            if path == LARGE:
                sha256 = hashlib.sha256(content).hexdigest()
                entry |= {"oid": "f" * 40, "lfs": {"oid": sha256, "size": len(content), "pointerSize": 130}}
            entries.append(entry)
        return entries

    def count(self) -> Counter[str]:
        return Counter(path for path, _ in self.asked)


def handler_of(hub: FakeHub, storage: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            role = "storage" if self.path.startswith("/storage/") else "hub"
            hub.tokens.setdefault(role, set()).add(self.headers.get("Authorization"))
            if self.path == "/api/datasets/someone/things/revision/main":
                self.answer(json.dumps({"sha": COMMIT}).encode())
            elif found := re.fullmatch(
                rf"/api/datasets/someone/things/tree/{COMMIT}\?recursive=true(&page=2)?", self.path
            ):
                self.page(second=bool(found[1]))
            elif self.path.startswith(prefix := f"/datasets/someone/things/resolve/{COMMIT}/"):
                self.send_response(302)
                self.send_header("Location", f"{storage}/storage/{self.path.removeprefix(prefix)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif role == "storage":
                self.file(unquote(self.path.removeprefix("/storage/")))
            else:
                self.send_error(404)

        def page(self, *, second: bool) -> None:
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
        "from sparring.env_worker.assets import AssetSource, find_assets\n"
        f"find_assets(setting=None, variable={VARIABLE!r}, cache_name='things', parts={PARTS!r}, source={SOURCE!r})"
    )
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in FILES}


def partials(folder: Path) -> list[int]:
    return [assets._size(file) for file in (folder / assets.PARTIAL).glob("*")]


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
        assert json.loads((folder / assets.MARKER).read_text())["commit"] == COMMIT
        assert not (folder / assets.PARTIAL).exists()
        asked = len(hub.asked)
        assert find() == folder
        assert len(hub.asked) == asked == len(FILES)

    def test_progress_is_told_in_lines_when_nobody_watches(
        self, hub: FakeHub, capfd: pytest.CaptureFixture[str]
    ) -> None:
        find()
        said = capfd.readouterr()
        assert said.out == ""
        assert "assets things: downloading 0.7 MB" in said.err
        assert "0.7 of 0.7 MB" in said.err

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
        (folder / assets.MARKER).unlink()
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

    def test_a_marker_that_makes_no_sense_is_none(self, hub: FakeHub) -> None:
        folder = find()
        for nonsense in ("", "[]", '{"source": 1}', json.dumps({"source": vars(SOURCE), "files": []})):
            (folder / assets.MARKER).write_text(nonsense)
            assert not is_complete(folder, parts=PARTS, source=SOURCE)

    def test_parts_that_the_hub_does_not_have(self, hub: FakeHub) -> None:
        hub.files = {"meshes/a.stl": b"a"}
        with pytest.raises(AssetsError, match=r"'someone/things' on the hub \(revision main\) lacks textures"):
            find()

    @pytest.mark.parametrize("path", ["../escaped", "/tmp/escaped", ".complete.json", "a/../../escaped"])
    def test_names_that_would_leave_the_folder(self, hub: FakeHub, path: str, tmp_path: Path) -> None:
        hub.files = {path: b"evil"}
        with pytest.raises(AssetsError, match="may not be written"):
            find()
        assert not list(tmp_path.rglob("escaped"))


class TestInterruptions:
    def test_a_connection_that_breaks_goes_on_by_range(self, hub: FakeHub) -> None:
        hub.break_off_at[LARGE] = [100_000, 300_000]
        assert contents(find()) == FILES
        assert [r for path, r in hub.asked if path == LARGE] == [None, "bytes=100000-", "bytes=300000-"]

    def test_a_server_without_ranges_begins_again(self, hub: FakeHub) -> None:
        hub.ranges = False
        hub.break_off_at[LARGE] = [100_000]
        assert contents(find()) == FILES

    def test_a_killed_download_goes_on_by_range(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.silent_at[LARGE] = 500_000
        process = start_finding()
        folder = tmp_path / "cache/sparring/things"
        others = len(FILES) - 1
        wait_for(lambda: sum((folder / file).exists() for file in FILES) == others)
        wait_for(lambda: partials(folder) and max(partials(folder)) >= 200_000)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)
        assert not is_complete(folder, parts=PARTS, source=SOURCE)

        (kept,) = partials(folder)
        hub.silent_at.clear()
        hub.released.set()
        hub.asked.clear()
        assert contents(find()) == FILES
        assert hub.asked == [(LARGE, f"bytes={kept}-")]

    def test_ctrl_c_ends_it_and_keeps_what_arrived(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.silent_at[LARGE] = 500_000
        process = start_finding()
        folder = tmp_path / "cache/sparring/things"
        wait_for(lambda: (folder / assets.PARTIAL).is_dir() and max([0, *partials(folder)]) >= 200_000)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        hub.released.set()
        _, said = process.communicate(timeout=10)
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
        with pytest.raises(AssetsError, match=r"broke off at .*HTTP 403.* is kept"):
            find()
        assert hub.count()[LARGE] == 1, "a refusal is not worth another attempt"
        hub.refuse_with.clear()
        assert contents(find()) == FILES

    def test_no_room(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(assets, "_SPARE", 1 << 60)
        with pytest.raises(AssetsError, match=r"cannot be kept in .*MB are needed"):
            find()
        assert hub.asked == []

    def test_a_cache_that_cannot_be_written(self, hub: FakeHub, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file where the folder should be")
        with pytest.raises(AssetsError, match=r"cannot be kept in .*XDG_CACHE_HOME"):
            find()


class TestSeveralProcesses:
    def test_one_downloads_and_the_other_waits(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.silent_at[LARGE] = 500_000
        first = start_finding()
        wait_for(lambda: hub.asked)
        second = start_finding()
        assert second.stderr is not None
        assert "another process downloads the assets 'things'; waiting" in second.stderr.readline()
        hub.released.set()
        first.communicate(timeout=30)
        second.communicate(timeout=30)
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
        assert time.monotonic() - began < 5, "retries for long"
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
            assert "no answer within 0.3 s" in self.sentence()

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
