"""The rooms of the house and the folders in them: which may import which, and how long a file may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from rooms import code_files, tree_of
from support import ROOT

ROOMS = {
    "protos": set(),
    "policy_server": {"protos"},
    "env_worker": {"protos", "policy_server.client"},
    "orchestrator": {"protos", "policy_server.client", "env_worker"},
}

PACKAGE = "sparring."

# evaluate() serves an object of the caller's own process, so that the policy server must run in there, too. Two files
# do that, and import the server only when they are called. A third asks a policy in this process, without a server, and
# a fourth what a policy behind a foreign wire is shown.
EXCEPTIONS = {
    ROOT / "orchestrator" / "live" / "evaluator.py": {"policy_server.policies"},
    ROOT / "orchestrator" / "live" / "warm_workers.py": {"policy_server.server", "policy_server.policies.base"},
    ROOT / "orchestrator" / "serving" / "foreign_layouts.py": {
        "policy_server.bridges.policy",
        "policy_server.bridges.wires",
        "policy_server.policies",
    },
    ROOT / "orchestrator" / "execution" / "in_process.py": {"policy_server.local", "policy_server.policies"},
}


# What a folder of a room may import of the others there, from the bottom up: nothing of what comes after it here. A
# file that many rely on may have a row of its own. TOP are the files beside all folders; without a row they are free.
TOP = "."
FOLDERS: dict[str, dict[str, set[str]]] = {
    "protos": {"net": {TOP}},
    "policy_server": {
        "bridges.wires": set(),
        "policies": {"errors", "bridges.wires"},
        "bridges": {"authentication", "bridges.wires", "errors", "hosted", "limits", "policies.base", "rollouts"},
        "compliance": set(),
    },
    "env_worker": {
        "episode.session": set(),
        "rendering": {TOP, "episode.session"},
        "episode": {TOP, "episode.session", "rendering.mark"},
        "benchmarks": {TOP, "rendering"},
        "compliance": {TOP, "episode"},
        "worker": {TOP, "episode", "rendering"},
    },
    "orchestrator": {
        TOP: set(),
        "machine": set(),
        "launchers.base": {TOP, "machine.finding"},
        "launchers.registry": {"launchers.base"},
        "settings": {TOP, "machine", "launchers.base", "launchers.registry"},
        "results": {TOP, "machine.shared_storage"},
        "serving": {TOP, "machine", "settings"},
        "comparison": {TOP, "results"},
        "run": {TOP, "settings", "results", "serving.stats", "comparison"},
        "coordination": {TOP, "machine", "settings", "results", "serving", "launchers.base", "run"},
        "launchers": {TOP, "machine", "settings", "serving", "coordination.admission", "launchers.base"},
        "display": {TOP, "results", "run", "comparison"},
        "trackers": {TOP, "settings", "results", "run.listeners", "display.title"},
        "execution": {
            *(TOP, "machine", "settings", "results", "serving", "launchers.base", "launchers.registry", "run"),
            *("coordination", "trackers.kept_ids", "trackers.registry"),
        },
        "replay": {
            *(TOP, "machine.owner", "settings", "results", "serving", "coordination.coordinator", "run", "execution"),
            "comparison.stopping",
        },
        "export": {TOP, "run", "replay"},
        "preflight": {TOP, "settings", "results", "serving", "run", "execution", "export.recorded"},
        "report": {
            *(TOP, "results", "comparison", "display", "serving.stats"),
            *("run.error_limit", "run.file_names", "run.slot_time"),
        },
        "view": {TOP, "results", "serving", "run", "comparison", "display", "report"},
        "live": {
            *(TOP, "machine", "settings", "results", "serving", "coordination", "run", "execution", "display"),
            "trackers",
        },
        "compliance": {
            *(TOP, "machine", "settings", "results", "serving", "launchers", "launchers.base", "launchers.registry"),
            *("coordination.coordinator", "run", "execution"),
        },
        "smoke": {"machine", "settings", "results", "launchers", "run", "execution"},
        "cli": {
            *(TOP, "machine", "settings", "results", "launchers", "launchers.base", "launchers.registry", "run"),
            *("coordination.admission", "execution", "comparison", "display", "report", "replay", "export"),
            *("compliance", "smoke", "trackers", "view", "preflight"),
        },
    },
}

# Against the order, and why: results and comparisons show themselves when they are printed or are the last line of a
# notebook's cell, and import what draws them when that happens; a launcher's types speak of settings and hosting; the
# registry looks for launchers in the files beside it.
UPWARDS = {
    "results/results.py": {"display.notebook", "display.plot", "display.table"},
    "comparison/comparison.py": {"display.comparison", "display.comparison_notebook"},
    "comparison/returns.py": {"display.comparison_notebook"},
    "launchers/base.py": {"settings", "serving.hosting"},
    "launchers/registry.py": {"launchers", "settings", "serving.hosting"},
}

MOST_LINES = 400
"""Of a file: one concept is seldom longer, and where it is, there are two."""


def imports_of(path: Path) -> set[str]:
    return _imports(path.read_text())


@cache
def _imports(text: str) -> set[str]:
    found = set()
    for node in ast.walk(tree_of(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import of {node.module}"
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
                allows = any(inner == a or inner.startswith(a + ".") for a in allowed)
                assert allows, f"{path} imports {name}: a room imports {sorted(allowed)}, and each thing from its file"


def test_the_check_sees_a_wrong_import(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("from sparring.policy_server import server\nimport orchestrator.plan")
    assert imports_of(tmp_path / "wrong.py") == {"sparring.policy_server.server", "orchestrator.plan"}


def row_of(inner: str, room: str) -> str:
    """The row that a module of a room is in: its own, its folder's, at whatever depth, or that of the files on top."""
    parts = inner.split(".")
    heads = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((head for head in heads if head in FOLDERS[room]), TOP)


def row_of_file(path: Path, room: str) -> str:
    return row_of(".".join(path.relative_to(ROOT / room).with_suffix("").parts), room)


def allowed_to(path: Path, room: str) -> set[str]:
    of_file = UPWARDS.get(path.relative_to(ROOT / room).as_posix(), set()) if room == "orchestrator" else set()
    return FOLDERS[room].get(row_of_file(path, room), set()) | of_file


def folder_faults(path: Path, room: str) -> list[str]:
    """What a file imports of its room, and its folder may not."""
    own, allowed, faults = row_of_file(path, room), allowed_to(path, room), []
    for name in imports_of(path):
        inner = name.removeprefix(f"{PACKAGE}{room}.")
        if inner != name and (its := row_of(inner, room)) != own and its not in allowed:
            faults += [name] if not any(inner == a or inner.startswith(a + ".") for a in allowed) else []
    return faults


@pytest.mark.parametrize("room", ROOMS)
def test_folders_import_what_their_row_says(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        folder = path.relative_to(ROOT / room).parts[0]
        if path.parent != ROOT / room:
            assert folder in FOLDERS[room], f"{room}/{folder} is new: say in {__file__} what it may import of its room"
        if row_of_file(path, room) in FOLDERS[room]:
            assert folder_faults(path, room) == [], f"{path}: it may import {allowed_to(path, room)}"


@pytest.mark.parametrize("room", ROOMS)
def test_folders_import_from_below_only(room: str) -> None:
    below: set[str] = set() if TOP in FOLDERS[room] else {TOP}
    for row, allowed in FOLDERS[room].items():
        for other in allowed:
            assert row_of(other, room) in below, f"{room}/{row} imports {other}, which is not below it"
        below.add(row)


def test_every_row_is_of_a_folder_and_needed() -> None:
    for room, rows in FOLDERS.items():
        found: dict[str, set[str]] = {row: set() for row in rows}
        for path in (ROOT / room).rglob("*.py"):
            names = {name for name in imports_of(path) if name.startswith(f"{PACKAGE}{room}.")}
            found.setdefault(row_of_file(path, room), set()).update(n.removeprefix(f"{PACKAGE}{room}.") for n in names)
        for row, allowed in rows.items():
            for other in allowed:
                used = {name for name in found[row] if row_of(name, room) == other or name.startswith(other + ".")}
                assert used, f"{room}/{row}: {other}"
    for file, others in UPWARDS.items():
        inner = {name.removeprefix(f"{PACKAGE}orchestrator.") for name in imports_of(ROOT / "orchestrator" / file)}
        assert all(any(name.startswith(other) for name in inner) for other in others), file


def test_the_check_of_folders_sees_a_wrong_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    wrong = tmp_path / "orchestrator" / "results" / "wrong.py"
    wrong.parent.mkdir(parents=True)
    wrong.write_text("from sparring.orchestrator.plan import Plan\nfrom sparring.orchestrator.run import scheduler")
    assert folder_faults(wrong, "orchestrator") == ["sparring.orchestrator.run.scheduler"]
    wrong.write_text("from sparring.orchestrator.live.evaluator import evaluate\nfrom sparring.protos import tensor")
    assert folder_faults(wrong, "orchestrator") == ["sparring.orchestrator.live.evaluator.evaluate"]


def test_files_are_short() -> None:
    for path in code_files():
        lines = len(path.read_text().splitlines())
        assert lines <= MOST_LINES or "_pb2" in path.stem, f"{path} has {lines} lines: which two concepts are in it?"


MOST_LINES_OF_A_FUNCTION = 60
"""Without its docstring: a screen."""

LONG_FUNCTIONS = {
    "policy_server/policies/lerobot.py": "__init__",  # each line of it needs what the one before has made
}


def long_functions(text: str) -> list[str]:
    found = []
    for node in ast.walk(tree_of(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            said = len((ast.get_docstring(node, clean=False) or "").splitlines())
            if (node.end_lineno or 0) - node.lineno + 1 - said > MOST_LINES_OF_A_FUNCTION:
                found.append(node.name)
    return found


def test_functions_are_short() -> None:
    for path in code_files():
        known = LONG_FUNCTIONS.get(path.relative_to(ROOT).as_posix())
        assert long_functions(path.read_text()) == ([known] if known else []), f"{path}: what are its parts?"
    assert long_functions("def f():\n" + "    pass\n" * 60) == ["f"]


def launcher_names() -> set[str]:
    from sparring.orchestrator.launchers.registry import working_launchers

    return set(working_launchers())


def compared(path: Path, names: set[str], what: str = "launchers?") -> list[str]:
    """Places where the name of a launcher, or of something else, is compared with one that is known.

    Args:
        path: Of the file.
        names: That are known.
        what: A pattern of the words that such a name is called.
    """
    found = []
    for node in ast.walk(tree_of(path.read_text())):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject, *(p.value for p in ast.walk(node) if isinstance(p, ast.MatchValue))]
        else:
            continue
        constants = (n.value for side in sides for n in ast.walk(side) if isinstance(n, ast.Constant))
        known = {value for value in constants if isinstance(value, str)} & names
        if known and any(re.search(rf"(?<![a-z])({what})(?![a-z])", ast.unparse(side).lower()) for side in sides):
            found.append(f"line {node.lineno}: {', '.join(sorted(known))}")
    return found


def test_nobody_compares_the_name_of_a_launcher() -> None:
    names = launcher_names()
    assert {"process", "docker", "none"} <= names
    for path in code_files():
        if not path.is_relative_to(ROOT / "orchestrator" / "launchers"):
            assert compared(path, names) == [], f"{path}: what differs is the launcher's own business"


def names_of_plug_ins(what: str) -> set[str]:
    from sparring.env_worker.registry import all_benchmarks
    from sparring.orchestrator.export.formats import FORMATS
    from sparring.orchestrator.trackers.registry import tracker_names
    from sparring.policy_server.bridges.wires import WIRES

    known = {
        "benchmarks?": all_benchmarks(),
        "form(at)?s?": FORMATS,
        "track(er)?s?": tracker_names(),
        "wires?": WIRES,
    }
    return set(known[what])


@pytest.mark.parametrize(
    ("what", "home"),
    [
        ("benchmarks?", "env_worker/benchmarks"),
        ("form(at)?s?", "orchestrator/export"),
        ("track(er)?s?", "orchestrator/trackers"),
        ("wires?", "policy_server/bridges/wires.py"),
    ],
)
def test_nobody_compares_the_name_of_what_is_one_file(what: str, home: str) -> None:
    names = names_of_plug_ins(what)
    assert len(names) > 1
    for path in code_files():
        if not path.is_relative_to(ROOT / home):
            assert compared(path, names, what) == [], f"{path}: what differs is its own business"


@pytest.mark.parametrize(
    "wrong",
    [
        'if settings.worker.launcher == "docker": pass',
        'x = launcher.name in ("none", "process")',
        'match run.launcher:\n    case "docker": pass',
    ],
)
def test_the_check_sees_a_name_compared(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "wrong.py").write_text(wrong)
    assert compared(tmp_path / "wrong.py", {"process", "docker", "none"})


def test_the_check_leaves_other_words_alone(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text('if platform == "npz" or form in FORMATS or form == "wide": pass')
    assert compared(tmp_path / "right.py", {"npz", "lerobot"}, "form(at)?s?") == []
    (tmp_path / "wrong.py").write_text('if platform == "npz" or form == "npz": pass')
    assert compared(tmp_path / "wrong.py", {"npz", "lerobot"}, "form(at)?s?") == ["line 1: npz"]


def test_the_episode_knows_no_grpc() -> None:
    code = (
        "import sys, sparring.env_worker.episode.play, sparring.env_worker.episode.recording\n"
        "assert not [n for n in sys.modules if n.partition('.')[0] == 'grpc' or n.startswith('sparring.policy_server')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
    for path in code_files():
        assert "asyncio.wait_for(" not in path.read_text(), path


def short_waits(text: str) -> list[str]:
    """Deadlines of one to thirty seconds for what must happen: a machine with other things to do needs longer."""
    if "virtual_time" in text:
        return []
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    waits = [call for call in calls if ast.unparse(call.func) in ("asyncio.wait_for", "asyncio.timeout") and call.args]
    limits = [(call, call.args[-1]) for call in waits]
    return [
        f"line {call.lineno}: {limit.value} s"
        for call, limit in limits
        if isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)) and 1 <= limit.value < 30
    ]


def test_tests_wait_for_as_long_as_a_busy_machine_may_need() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert short_waits(path.read_text()) == [], (
            f"{path}: nothing is lost by a minute; it is waited only if it fails"
        )


def test_the_check_sees_a_short_wait() -> None:
    assert short_waits("async def test():\n    await asyncio.wait_for(read(), 10)") == ["line 2: 10 s"]
    assert short_waits("async def test():\n    async with asyncio.timeout(5): pass") == ["line 2: 5 s"]
    assert short_waits("async def test():\n    await asyncio.wait_for(read(), 60)\n    asyncio.timeout(0.2)") == []


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
