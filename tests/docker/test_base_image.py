"""The base image's digest is asked of a registry by the real buildx."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support import ROOT

pytestmark = pytest.mark.requires("docker")

KIND = "application/vnd.oci.image.index.v1+json"
INDEX = json.dumps({"schemaVersion": 2, "mediaType": KIND, "manifests": []}).encode()
DIGEST = f"sha256:{hashlib.sha256(INDEX).hexdigest()}"


class _Registry(BaseHTTPRequestHandler):
    """Has one image, under every name."""

    def do_GET(self) -> None:
        body, kind = (INDEX, KIND) if "/manifests/" in self.path else (b"{}", "application/json")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_digest_that_the_tag_has_now_is_written_into_every_dockerfile(registry: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docker", tmp_path / "docker")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    tag = f"{registry}/python:3.11-slim-bookworm"
    dockerfiles = list((tmp_path / "docker").glob("*.Dockerfile"))
    for path in dockerfiles:
        lines = path.read_text().splitlines()
        path.write_text("\n".join(f"ARG BASE_IMAGE={tag}" if x.startswith("ARG BASE_IMAGE=") else x for x in lines))
    done = subprocess.run([tmp_path / "tools/pin-base-image"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for path in dockerfiles:
        assert f"ARG BASE_IMAGE={tag}@{DIGEST}\n" in path.read_text()
