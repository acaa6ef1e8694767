"""The files of tests that take longest go first, so that no run ends with one of them alone.

Tests of one file stay together (`--dist loadfile`), and a file that begins last ends last: where others wait for it, a
core has nothing to do. pytest-xdist itself begins with the files that have most tests, which are the quick ones.
"""

from __future__ import annotations

from typing import Final

import pytest

RUNS: Final = frozenset(
    {
        "env_worker/test_check_benchmark.py",
        *(
            f"orchestrator/test_{name}.py"
            for name in (
                *("changed_programs", "compare_page", "diff", "early_stopping", "film_command", "finished_runs"),
                *("policy_seeds", "replayed_recordings", "verify"),
            )
        ),
        "policy_server/test_torch_policy.py",
        "policy_server/test_torch_proof.py",
        "preflight/test_preflight_command.py",
    }
)
"""They play whole runs in this process, or torch's kernels in many forms: a third of the time of make test-unit, for a
tenth of its tests. They are in make test."""

LONGEST: Final = (
    # Minutes in make test-all.
    "chaos/test_chaos.py",
    "lerobot/test_cpu_kinds.py",
    "docker/test_docker_launcher.py",
    "docker/test_compose.py",
    "docker/test_smoke.py",
    "docker/test_kubernetes_pods.py",
    "pages/test_pages.py",
    "e2e/test_metaworld_runs.py",
    "test_wheel.py",
    "policy_server/test_torch_proof.py",
    "e2e/test_torch_runs.py",
    "e2e/test_renderers_of_runs.py",
    # By the seconds that they take on a machine that does nothing else.
    "preflight/test_metaworld_mistakes.py",
    "lerobot/test_parity.py",
    "lerobot/test_libero_parity.py",
    "lerobot/test_families.py",
    "lerobot/test_preflight.py",
    "e2e/test_run.py",
    "e2e/test_serving.py",
    "e2e/test_in_process.py",
    "e2e/test_evaluate.py",
    "e2e/test_persistent_workers.py",
    "e2e/test_faults.py",
    "e2e/test_secured_runs.py",
    "orchestrator/test_early_stopping.py",
    "e2e/test_hung.py",
    "bridges/test_runs.py",
    "lerobot/test_lerobot_policy.py",
    "lerobot/test_drop_in.py",
    "e2e/test_joining.py",
    "e2e/test_nobody_watching.py",
    "env_worker/test_check_benchmark.py",
    "env_worker/test_metaworld.py",
    "env_worker/test_assets.py",
    "orchestrator/test_check_launcher.py",
    "simulation/test_schedules.py",
    "fuzz/test_targets.py",
    "orchestrator/test_finished_runs.py",
    "e2e/test_full_server.py",
    "e2e/test_earlier_releases.py",
    "e2e/test_containers_needs.py",
    "e2e/test_evaluate_again.py",
    "policy_server/test_serve_command.py",
    "policy_server/test_access.py",
    "orchestrator/test_environments.py",
    "e2e/test_behaviour_cloning.py",
    "e2e/test_lerobot_eval.py",
    "env_worker/test_heartbeat.py",
    "lerobot/test_peft.py",
    "lerobot/test_hub.py",
    "lerobot/test_xvla.py",
)
"""By their place below `tests`, longest first; all others follow."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {config.rootpath / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
