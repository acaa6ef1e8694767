"""The rooms of the house: which may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

ROOMS = {
    "protos": set(),
    "policy_server": {"protos"},
    "env_worker": {"protos", "policy_server.client"},
    "orchestrator": {"protos", "policy_server.client", "env_worker"},
}

PACKAGE = "sparring."

# evaluate() serves an object of the caller's own process, so that the policy server must run in there, too. Two files
# do that, and import the server only when they are called. A third asks a policy in this process, without a server.
EXCEPTIONS = {
    ROOT / "orchestrator" / "live" / "evaluator.py": {"policy_server.policies"},
    ROOT / "orchestrator" / "live" / "warm_workers.py": {"policy_server.server", "policy_server.policies.base"},
    ROOT / "orchestrator" / "run" / "in_process.py": {"policy_server.local", "policy_server.policies"},
}


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        allowed = {room, *ROOMS[room], *EXCEPTIONS.get(path, ())}
        for name in imports_of(path):
            assert name.split(".")[0] not in ROOMS, f"{path} imports {name}, which is {PACKAGE}{name} when installed"
            if name.startswith(PACKAGE):
                inner = name.removeprefix(PACKAGE)
                assert any(inner == a or inner.startswith(a + ".") for a in allowed), f"{path} imports {name}"


def test_the_check_sees_a_wrong_import(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("from sparring.policy_server import server\nimport orchestrator.plan")
    assert imports_of(tmp_path / "wrong.py") == {"sparring.policy_server.server", "orchestrator.plan"}


def strangers(path: Path) -> list[str]:
    """What a file imports of modules with a leading underscore, without lying in the folder around them."""
    found = []
    for name in imports_of(path):
        parts = name.removeprefix(PACKAGE).split(".")
        for depth, part in enumerate(parts):
            home = ROOT.joinpath(*parts[:depth])
            if not ((home / part).is_dir() or (home / f"{part}.py").is_file()):
                break  # a name in a module, or somebody else's module
            if part.startswith("_") and not part.startswith("__") and not path.is_relative_to(home):
                found.append(name)
    return found


def test_no_wait_loses_a_cancellation() -> None:
    """Python 3.11's asyncio.wait_for() loses one that comes at the moment of what it waits for; timeout() does not."""
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        assert "asyncio.wait_for(" not in path.read_text(), path


def test_what_has_a_leading_underscore_is_imported_from_its_own_folder_only() -> None:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            assert strangers(path) == [], f"{path} imports {strangers(path)}"


def test_the_check_sees_a_stranger(tmp_path: Path) -> None:
    (tmp_path / "stranger.py").write_text("from sparring.env_worker.benchmarks._libero.tasks import EPISODE_LIMITS")
    assert strangers(tmp_path / "stranger.py") == ["sparring.env_worker.benchmarks._libero.tasks.EPISODE_LIMITS"]
    (tmp_path / "stranger.py").write_text("from sparring.env_worker.benchmarks import _libero, libero")
    assert strangers(tmp_path / "stranger.py") == ["sparring.env_worker.benchmarks._libero"]


@pytest.mark.parametrize("room", ["protos", "env_worker", "orchestrator"])
def test_torch_stays_out_of_the_light_rooms(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        assert not {n for n in imports_of(path) if n.split(".")[0] == "torch"}, path


def test_nothing_is_printed_and_nothing_is_unpickled() -> None:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if path == ROOT / "env_worker" / "benchmarks" / "_libero" / "installation.py":
                continue  # LIBERO's init states are pickles; it reads them with an unpickler that knows arrays only
            names = {n.split(".")[0] for n in imports_of(path)}
            assert not names & {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}, path


def test_a_run_imports_nothing_that_only_checks_and_workers_need() -> None:
    code = (
        "import sys, sparring.orchestrator.cli.commands.run\n"
        "from sparring.orchestrator.launchers.registry import all_launchers\n"
        "assert len(all_launchers()) >= 3\n"
        "assert [n for n in sys.modules if 'compliance' in n or n == 'sparring.env_worker.worker.player'] == []"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_server_is_imported_by_those_who_evaluate_live_policies_only() -> None:
    code = (
        "import sys, sparring; assert 'grpc' not in sys.modules\n"
        "from sparring import evaluate; assert 'sparring.policy_server.server' not in sys.modules\n"
        "assert evaluate.__module__ == 'sparring.orchestrator.live.evaluator'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
