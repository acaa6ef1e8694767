"""Which settings of `evaluate()` start new workers, and which do not."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

from sparring.orchestrator.live.warm_workers import WarmWorkers
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import RunSettings, WorkerSettings, read_settings
from sparring.orchestrator.settings.run import core_fields, fields_of

BASE: dict[str, Any] = {"benchmark": "toy", "task": "good", "policy": "live:toy", "slots": 2}
APART = {
    "benchmark", "benchmark_arg", "evaluations", "protocol", "protocols", "slots", "in_process",
    "policy_server", "policy_token_file", "policy_ca", "policy_tls_cert", "policy_tls_key",
}  # fmt: skip
"""What is compared otherwise, as tests below say, what `evaluate()` does not take, and what has no workers."""
OTHERS: dict[str, Any] = {
    "task": "long", "policy": "live:other", "retries_of": {"simulator": 0}, "max_queue_delay": 0.1, "metrics": ":0",
    "launcher": "none", "listen": "127.0.0.1:0", "video": "all", "slot_memory": "512m", "render_device": "software",
    "until": "half-width=0.05", "alpha": 0.1, "track_step": 1,
}  # fmt: skip
"""Another value, where it cannot be told from the type."""
BESIDE: dict[str, Any] = {
    "alpha": {"until": "half-width=0.05"}, "futility": {"against": "/elsewhere"},
    "track_step": {"track": "wandb"}, "track_arg": {"track": "wandb"},
    **{name: {"serve_on": "slurm"} for name in ("serve_folder", "serve_replicas")},
}  # fmt: skip
"""What a setting goes with, and would be refused without."""


def another(field: FieldInfo) -> Any:
    """A value of the same type that is not the default."""
    if field.annotation is bool:
        return not field.default
    if field.annotation in (int, float):
        return field.default + 1
    if get_origin(field.annotation) is Literal:
        return next(value for value in get_args(field.annotation) if value != field.default)
    return {"a": "b"} if get_origin(field.annotation) is dict else "/elsewhere"


def fits(given: RunSettings, other: RunSettings, plan: Plan | None = None) -> bool:
    workers = WarmWorkers(given, make_plan(given))
    return workers.fits(other, plan or make_plan(given))


@pytest.mark.parametrize("name", sorted(set(core_fields()) - APART))
def test_which_settings_start_new_workers_follows_from_their_group(name: str) -> None:
    base = {**BASE, **BESIDE.get(name, {})}
    given = read_settings(base)
    other = read_settings({**base, name: OTHERS.get(name) or another(core_fields()[name])})
    assert other != given
    assert fits(given, other) == (name not in fields_of(WorkerSettings))


def test_the_launchers_own_settings_are_a_part_of_the_workers() -> None:
    given = read_settings({**BASE, "launcher": "docker"})
    assert fits(given, read_settings({**BASE, "launcher": "docker"}))
    assert not fits(given, read_settings({**BASE, "launcher": "docker", "worker_memory": "1g"}))


def test_slots_are_compared_as_the_number_that_they_come_to() -> None:
    given = read_settings(BASE)
    few = Plan(make_plan(given).tasks, 1, 0)
    assert fits(given, read_settings({**BASE, "slots": "auto"}), few), "two are enough for that"
    assert not fits(given, read_settings({**BASE, "slots": 3}))


def test_workers_hold_their_benchmarks_and_any_task_of_them() -> None:
    given = read_settings(BASE)
    assert not fits(given, read_settings({**BASE, "benchmark_arg": {"step_seconds": 1}}))
    listed = {"policy": "live:toy", "slots": 2, "evaluations": [{"benchmark": "toy", "task": "short"}]}
    assert fits(given, read_settings(listed)), "written in another way, and the same workers"
