"""Every limit in the code is named by a test, so that a new one cannot come without."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = ("protos", "policy_server", "env_worker", "orchestrator")
LIMIT: Final = re.compile(r"(^|_)(MOST|LONGEST|LARGEST|DEEPEST|MAX|MIN|LIMIT|DEPTH)(_|$)")

SHOWN: Final = ("orchestrator/display/", "orchestrator/report/", "orchestrator/trackers/moving_picture.py")
"""How much of a result is put on a screen or a page: what is over is left out, and nothing is refused."""
PLAYED: Final = ("policy_server/policies/_aloha/", "policy_server/policies/_libero/", "policy_server/policies/_pusht/")
"""How scripted experts move."""

OWED: Final = frozenset(
    [
        "env_worker/benchmarks/_libero/scene.py:MAX_FRAMES",
        "env_worker/benchmarks/_libero/scene.py:MAX_JOINTS",
        "env_worker/compliance/episodes.py:_LONGEST",
        "env_worker/episode/live_frames.py:_MOST_PIXELS",
        "env_worker/rendering/probe.py:_MOST_DEVICES",
        "env_worker/rendering/probe.py:_MOST_SAID",
        "env_worker/rendering/renderer.py:MAX_NAME",
        "env_worker/worker/replicas.py:_LONGEST_PAUSE",
        "orchestrator/cli/commands/submit.py:_MOST",
        "orchestrator/cli/commands/verify.py:_MOST_TOLD",
        "orchestrator/comparison/planning.py:MOST",
        "orchestrator/comparison/significance.py:_MOST_BOSCHLOO",
        "orchestrator/comparison/significance.py:_MOST_SUMS",
        "orchestrator/coordination/program_check.py:_MOST_LINES",
        "orchestrator/coordination/recorder.py:_MOST_WARNINGS",
        "orchestrator/coordination/work_service.py:_MOST_STREAMS",
        "orchestrator/launchers/ray/actor.py:_MOST_HELD",
        "orchestrator/launchers/ray/cluster.py:_LONGEST",
        "orchestrator/launchers/slurm/server_program.py:_LONGEST_PAUSE",
        "orchestrator/machine/capacity.py:MAX_SLOTS",
        "orchestrator/machine/capacity.py:_NO_LIMIT",
        "orchestrator/machine/sockets.py:_LONGEST_SOCKET",
        "orchestrator/preflight/data_set.py:_MOST_NUMBERS",
        "orchestrator/preflight/data_set.py:_MOST_TEXT",
        "orchestrator/preflight/facts.py:_MOST_JSON",
        "orchestrator/preflight/facts.py:_MOST_STATISTICS",
        "orchestrator/replay/bundle.py:_MOST_MEMBERS",
        "orchestrator/replay/bundle.py:_MOST_TEXT",
        "orchestrator/results/document.py:MOST_EPISODES",
        "orchestrator/results/files.py:MOST_BYTES",
        "orchestrator/results/finite.py:_MOST_DEPTH",
        "orchestrator/results/makers.py:_LONGEST_NAME",
        "orchestrator/results/makers.py:_MOST_PACKAGES",
        "orchestrator/run/scheduler.py:_MOST_LEASES",
        "orchestrator/serving/images.py:_MOST",
        "orchestrator/serving/stats.py:_MOST",
        "orchestrator/settings/config_file.py:_DEEPEST",
        "orchestrator/settings/config_file.py:_MOST_ENTRIES",
        "orchestrator/settings/plan.py:MAX_SEED",
        "orchestrator/trackers/kept_ids.py:_LONGEST",
        "orchestrator/trackers/mlflow.py:_LONGEST",
        "orchestrator/view/access.py:_MOST_FORM",
        "orchestrator/view/library.py:_DEPTH",
        "orchestrator/view/model.py:_MOST_NOTES",
        "orchestrator/view/pages.py:_MOST_COMPARED",
        "orchestrator/view/pages.py:_MOST_DIGITS",
        "orchestrator/view/pages.py:_MOST_KEPT",
        "orchestrator/view/pages.py:_MOST_LARGE",
        "policy_server/bridges/arrays.py:LONGEST_TYPE",
        "policy_server/bridges/clients/lerobot_async.py:_LONGEST_ACTION",
        "policy_server/bridges/front.py:_LONGEST_TOLD",
        "policy_server/bridges/peer.py:_LONGEST",
        "policy_server/bridges/pickles/budget.py:_DEEPEST",
        "policy_server/bridges/pickles/budget.py:_MOST_STEPS",
        "policy_server/bridges/pickles/reading.py:_LARGEST_KEY",
        "policy_server/bridges/pickles/reading.py:_MOST_CALLS",
        "policy_server/bridges/pickles/reading.py:_MOST_UNFINISHED",
        "policy_server/bridges/servers/lerobot_async.py:_LARGEST_STEP",
        "policy_server/bridges/servers/lerobot_async.py:_LONGEST_NAME",
        "policy_server/bridges/servers/lerobot_async.py:_MOST_FEATURES",
        "policy_server/bridges/servers/lerobot_async.py:_MOST_NAMES",
        "policy_server/bridges/servers/vla_eval.py:_LONGEST_VERSION",
        "policy_server/bridges/servers/websockets_front.py:_LONGEST_REASON",
        "policy_server/calls.py:_LONGEST",
        "policy_server/policies/_lerobot/inspection.py:_MOST_OTHER_JSON",
        "policy_server/policies/_lerobot/module_state.py:_DEPTH",
        "policy_server/policies/preserve.py:_DEPTH",
        "policy_server/policies/preserve.py:_LONGEST",
        "policy_server/policies/replay.py:_MOST_WARNINGS",
        "policy_server/session_client.py:_LONGEST",
        "policy_server/session_client.py:_LONGEST_DESCRIPTION",
        "policy_server/session_client.py:_MOST_ENTRIES",
        "policy_server/stats.py:_MOST_WARNINGS",
        "protos/net/frames.py:_LONGEST_PATH",
        "protos/net/rpc.py:_LONGEST_DETAILS",
        "protos/net/rpc.py:_MOST_DETAIL_BYTES",
        "protos/pieces.py:MOST_BYTES",
        "protos/sources.py:_MOST_FILES",
        "protos/trace.py:MOST_BYTES",
        "protos/tracebacks.py:_MOST_FILES",
    ]
)
"""Limits that no test names so far; some are shown by what they do. It may only become shorter."""


def limits() -> Iterator[tuple[Path, str]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            place = path.relative_to(ROOT)
            if "_pb2" in path.name or str(place).startswith(SHOWN + PLAYED):
                continue
            for node in ast.parse(path.read_text()).body:
                targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
                for target in targets:
                    if isinstance(target, ast.Name) and target.id.isupper() and LIMIT.search(target.id):
                        yield place, target.id


@cache
def unnamed() -> set[str]:
    """Returns the limits that no test names which has their module, too: many have the same name."""
    own = Path(__file__).resolve()
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.resolve() != own]
    found = set()
    for place, name in limits():
        module = ".".join(("sparring", *place.with_suffix("").parts)).removesuffix(".__init__")
        parent, _, last = module.rpartition(".")
        imported = re.compile(rf"from {re.escape(parent)} import (\([^)]*|[^\n]*)\b{last}\b")
        word = re.compile(rf"\b{name}\b")
        # That it is in there at all is found out much sooner than the rest.
        if not any(name in text and word.search(text) and (module in text or imported.search(text)) for text in texts):
            found.add(f"{place.as_posix()}:{name}")
    return found


def test_every_limit_is_named_by_a_test() -> None:
    missing = unnamed() - OWED
    assert not missing, f"limits without a test that shows both sides of them: {sorted(missing)}"


def test_what_is_owed_is_a_limit_that_no_test_names() -> None:
    paid = OWED - unnamed()
    assert not paid, f"these have a test, or are gone: take them out of OWED: {sorted(paid)}"
