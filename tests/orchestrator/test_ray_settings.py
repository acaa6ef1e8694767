"""What is asked of Ray for a worker, and what is said where there is no Ray. tests/ray_cluster has a real cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support import Sparring

from sparring.orchestrator.launchers.ray.cluster import fits
from sparring.orchestrator.launchers.ray.settings import RayRequest, RaySettings, request_for
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError

PLAN = ("run", "--benchmark", "toy", "--task", "short", "--policy", "zero", "--launcher", "ray")


def asked(label: str = "toy", labels: tuple[str, ...] = ("toy", "libero"), **given: Any) -> RayRequest:
    return request_for(RaySettings(ray=given), label, labels)


def test_a_worker_asks_for_a_cpu_for_each_slot_unless_it_is_told() -> None:
    assert asked().bundle(4) == {"CPU": 4}
    assert asked().actor_options(4) == {"num_cpus": 4, "num_gpus": 0}
    request = asked(cpus=0.5, gpus=0.25, memory="2g", resources={"sim": 1})
    assert request.bundle(4) == {"CPU": 0.5, "GPU": 0.25, "memory": 2 * 2**30, "sim": 1}
    options = {"num_cpus": 0.5, "num_gpus": 0.25, "memory": 2 * 2**30, "resources": {"sim": 1}}
    assert request.actor_options(4) == options


def test_a_benchmark_may_have_its_own() -> None:
    given = {"python": "/opt/python", "libero.python": "/opt/libero/bin/python", "libero.runtime_env": {"pip": ["x"]}}
    assert asked("toy", **given).python == "/opt/python"
    assert asked("libero", **given).python == "/opt/libero/bin/python"
    assert asked("libero", **given).actor_options(1)["runtime_env"] == {"pip": ["x"]}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cpu": 3}, "unknown key of --ray: 'cpu'. Did you mean 'cpus'"),
        ({"metaworld.cpus": 3}, "--ray metaworld.cpus=3 is about 'metaworld', which is not part of this run."),
        ({"toy.placement": "PACK"}, "placement is the same for all of a run"),
        ({"cpus": "many"}, "--ray cpus=...: input should be a valid number"),
        ({"memory": "tiny"}, "--ray memory=...: must be auto or an amount"),
        ({"placement": "EVERYWHERE"}, "--ray placement=...: input should be 'PACK', 'SPREAD'"),
        ({"placement": "PACK", "placement_group": "mine"}, "give one of them"),
    ],
)
def test_what_ray_does_not_know_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        asked(**given)
    assert sentence in caught.value.told(FLAGS)


def test_a_node_fits_if_it_has_all_of_it() -> None:
    assert fits({"CPU": 2, "sim": 1}, {"CPU": 2, "sim": 4, "memory": 9})
    assert not fits({"CPU": 2, "sim": 1}, {"CPU": 8})


def test_without_ray_there_is_a_sentence(usage: Sparring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed, which it is not in most environments
    done = usage(*PLAN)
    assert done.returncode == 2
    assert "error: --launcher ray needs the package ray" in done.stderr
    assert "pip install 'sparring[ray]'" in done.stderr


def test_a_dry_run_says_what_would_be_asked_for_and_needs_no_ray(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*PLAN, "--workers", "3", "--slots-per-worker", "2", "--ray", "resources={sim: 1}", "--dry-run")
    assert done.returncode == 0, done.stderr
    line = "toy: 3 actors on the Ray cluster 'auto', each with 2 slots and CPU 2, sim 1"
    assert line in " ".join(done.stdout.split())


@pytest.mark.parametrize(("flag", "sentence"), [("--slots", "--slots is of no use with --launcher ray")])
def test_settings_that_mean_nothing_on_a_cluster_are_refused(usage: Sparring, flag: str, sentence: str) -> None:
    done = usage(*PLAN, flag, "3")
    assert done.returncode == 2
    assert sentence in done.stderr
