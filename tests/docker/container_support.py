"""What the tests of containers share."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support import ROOT

from sparring.orchestrator.launchers.docker.engine import Engine
from sparring.protos import WORK_PROTOCOL_VERSION

PLAN = (
    "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "4", "--slots", "2",
    "--benchmark-arg", "step_seconds=0.02",
)  # fmt: skip
"""Eight episodes."""

SLOW = (*PLAN, "--benchmark-arg", "step_seconds=0.06")
"""The same, long enough to be looked at and broken off, whatever else the machine does."""

BuildImage = Callable[..., str]


def build_toy(tag: str, context: Path) -> str:
    """Builds an image of the toy benchmark's worker, of this very code, and returns its name.

    Args:
        tag: What it is called.
        context: An empty folder.
    """
    shutil.copytree(ROOT / "constraints", context / "constraints")
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", context / "source", ignore=skipped)  # follows the links to the rooms
    shutil.copytree(ROOT / "tests" / "toy", context / "source", ignore=skipped, dirs_exist_ok=True)
    shutil.copy(ROOT / "tests" / "docker" / "Dockerfile", context)
    build(context, tag, "--build-arg", f"PROTOCOL={WORK_PROTOCOL_VERSION}")
    return tag


def build(context: Path, tag: str, *options: str) -> None:
    """Builds an image of what is in a folder."""
    done = subprocess.run(
        ["docker", "build", "--quiet", "--tag", tag, *options, str(context)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def inside(image: str, *command: str, entrypoint: str = "sparring") -> subprocess.CompletedProcess[str]:
    """Runs something in a container as ours are run: no rights, no network, nothing to write to but /tmp."""
    options = ("--rm", "--read-only", "--tmpfs", "/tmp:mode=1777,size=1g", "--cap-drop", "ALL", "--network", "none")
    return subprocess.run(
        ["docker", "run", *options, "--security-opt", "no-new-privileges", "--entrypoint", entrypoint, image, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def containers(engine: Engine, folder: Path) -> list[Any]:
    """The containers of runs in a folder."""
    return [c for c in engine.containers() if c.labels["dev.sparring.run"].startswith(str(folder))]


_ATTACK = """
import json, os, socket, sys
found = {}

def attempt(name, act):
    try:
        found[name] = str(act() or "done")
    except OSError as error:
        found[name] = error.strerror

def dial(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(path)

for path in sys.argv[1:]:
    folder = os.path.dirname(path)
    attempt("connect " + path, lambda: dial(path))
    attempt("unlink " + path, lambda: os.unlink(path))
    attempt("rename " + path, lambda: os.rename(path, path + ".old"))
    attempt("chmod " + path, lambda: os.chmod(path, 0))
    attempt("bind beside " + path, lambda: socket.socket(socket.AF_UNIX).bind(folder + "/other.sock"))
    attempt("link beside " + path, lambda: os.symlink("/tmp/x", folder + "/link"))
    attempt("mkdir beside " + path, lambda: os.mkdir(folder + "/new"))
attempt("root", lambda: os.setuid(0))
attempt("others", lambda: os.listdir("/root"))
found["interfaces"] = [name for _, name in socket.if_nameindex()]
found["engine"] = any(os.path.exists(path) for path in ("/var/run/docker.sock", "/run/docker.sock"))
found["capabilities"] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")]
print(json.dumps(found))
"""


def attack_from(container: Any, *sockets: str) -> dict[str, Any]:
    """Tries, from inside a container, what a hostile simulator would: what came of each attempt, by its name."""
    code, said = container.exec_run(["python3", "-c", _ATTACK, *sockets])
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


class Proxy:
    """Stands between a run and the machine's engine, so that a test can take the engine away from that run alone.

    Args:
        path: Where it listens.
        engine: The engine's socket.
    """

    def __init__(self, path: Path, engine: str) -> None:
        self._engine = engine
        self._path = path
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """The engine dies: nobody is answered any more, and every connection breaks."""
        self._path.unlink(missing_ok=True)
        for connection in [self._listener, *self._open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._engine)
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while block := source.recv(65536):
                sink.sendall(block)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
