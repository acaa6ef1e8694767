"""A checkpoint by its hub id, from a hub on this machine: the real one cannot be reached from tests."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from checkpoints import act_config, save
from support import EVERYTHING, ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOAD = """
import sys
from sparring.policy_server.policies import load_policy
print(load_policy("lerobot:" + sys.argv[1], {"device": "cpu"}).spec.chunk_length)
"""
# What comes before that, and without the seconds that importing LeRobot takes.
OPEN = """
import sys
from sparring.policy_server.policies._lerobot.checkpoint import open_checkpoint
from sparring.protos.errors import UsageError
try:
    print(open_checkpoint(sys.argv[1]).type)
except UsageError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """The parts of the hub's interface that a download uses, over a folder of files; `someone/act` has one revision."""
    folder = save(act_config(64), tmp_path / "repository")
    (folder / "trap.bin").write_bytes(b"\x80\x04not for us")

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/api/models/someone/act/revision/main":
                names = [{"rfilename": file.name} for file in folder.iterdir()]
                self.answer(json.dumps({"id": "someone/act", "sha": COMMIT, "siblings": names}).encode())
            elif path == f"/api/models/someone/act/tree/{COMMIT}":
                files = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": oid(f)} for f in folder.iterdir()
                ]
                self.answer(json.dumps(files).encode())
            elif path.startswith(prefix := f"/someone/act/resolve/{COMMIT}/"):
                file = folder / path.removeprefix(prefix)
                asked.append(file.name)
                self.answer(file.read_bytes(), oid(file))
            else:
                self.send_error(404)

        def answer(self, content: bytes, tag: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            if tag:
                self.send_header("ETag", f'"{tag}"')
                self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    assert "trap.bin" not in asked, "what may be a pickle is not even fetched"


def oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()


def test_a_hub_id_is_fetched_and_kept(hub: str, tmp_path: Path) -> None:
    def run(program: str, reference: str, endpoint: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0"}
        return subprocess.run(
            [sys.executable, "-c", program, reference],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip

    # To import LeRobot in another process takes eight seconds; that what is opened can be loaded, all other tests say.
    program, told = (LOAD, "5\n") if EVERYTHING else (OPEN, "act\n")
    fetched = run(program, "someone/act@main", hub)
    assert (fetched.returncode, fetched.stdout) == (0, told), fetched.stderr
    kept = run(OPEN, "someone/act", "http://127.0.0.1:9")
    assert (kept.returncode, kept.stdout) == (0, "act\n"), kept.stderr
    unknown = run(OPEN, "someone/else", hub)
    assert "as a hub id it cannot be fetched" in unknown.stderr
    assert "Traceback" not in unknown.stderr
