"""Evaluates robot policies in simulation.

    from sparring import evaluate

    results = evaluate(policy, benchmark="metaworld", tasks="reach-v3", episodes=10)

What users import is here, by its name, and is loaded when it is first used: importing `sparring` itself is fast and
brings neither gRPC nor numpy. Everything below it (`sparring.protos`, `sparring.policy_server`, `sparring.env_worker`,
`sparring.orchestrator`) is how it is made; docs/architecture.md describes it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sparring.env_worker.as_gym import make_env
    from sparring.env_worker.benchmark import (
        Assets,
        Benchmark,
        RenderMeter,
        Simulator,
        SmokeTest,
        Step,
        Task,
        WorkerImage,
        setting,
    )
    from sparring.env_worker.compliance import check_benchmark
    from sparring.env_worker.protocol import Protocol
    from sparring.env_worker.task_table import TaskTable
    from sparring.orchestrator.comparison.comparison import Compared, Comparison, compare
    from sparring.orchestrator.comparison.returns import ComparedReturns, ReturnComparison, ReturnPair, compare_returns
    from sparring.orchestrator.comparison.suite import SuiteMean, suite_mean
    from sparring.orchestrator.compliance.launcher import check_launcher
    from sparring.orchestrator.launchers.base import Launcher, LauncherSettings, WorkerOrder
    from sparring.orchestrator.launchers.command import CommandWorker
    from sparring.orchestrator.launchers.keep_alive import keep_all, keep_worker
    from sparring.orchestrator.live.evaluator import Evaluator, close, evaluate
    from sparring.orchestrator.preflight.preflight import Preflight, preflight
    from sparring.orchestrator.results.results import Results
    from sparring.orchestrator.results.row import EpisodeRow
    from sparring.orchestrator.run.listeners import RunEnd, RunListener, RunStart, SlotActivity, SlotFrame
    from sparring.orchestrator.settings import RunSettings
    from sparring.orchestrator.trackers.base import TrackedRun, Tracker, TrackerSettings
    from sparring.policy_server.client import Identity, PolicyClient
    from sparring.policy_server.policies.base import Instruction, Observation, Policy
    from sparring.policy_server.policies.in_actor import ActorPolicy, PolicyActor
    from sparring.policy_server.policies.torch import Batch, TorchPolicy, TorchSession
    from sparring.protos.advice import Hint
    from sparring.protos.errors import SparringError, UsageError
    from sparring.protos.spec import Offer, PolicySpec, TensorSpec

__all__ = [
    "ActorPolicy",
    "Assets",
    "Batch",
    "Benchmark",
    "CommandWorker",
    "Compared",
    "ComparedReturns",
    "Comparison",
    "EpisodeRow",
    "Evaluator",
    "Hint",
    "Identity",
    "Instruction",
    "Launcher",
    "LauncherSettings",
    "Observation",
    "Offer",
    "Policy",
    "PolicyActor",
    "PolicyClient",
    "PolicySpec",
    "Preflight",
    "Protocol",
    "RenderMeter",
    "Results",
    "ReturnComparison",
    "ReturnPair",
    "RunEnd",
    "RunListener",
    "RunSettings",
    "RunStart",
    "Simulator",
    "SlotActivity",
    "SlotFrame",
    "SmokeTest",
    "SparringError",
    "Step",
    "SuiteMean",
    "Task",
    "TaskTable",
    "TensorSpec",
    "TorchPolicy",
    "TorchSession",
    "TrackedRun",
    "Tracker",
    "TrackerSettings",
    "UsageError",
    "WorkerImage",
    "WorkerOrder",
    "check_benchmark",
    "check_launcher",
    "close",
    "compare",
    "compare_returns",
    "evaluate",
    "keep_all",
    "keep_worker",
    "make_env",
    "preflight",
    "setting",
    "suite_mean",
]

_HOMES: Final = {
    "env_worker.as_gym": ("make_env",),
    "env_worker.benchmark": (
        *("Assets", "Benchmark", "RenderMeter", "Simulator", "SmokeTest", "Step", "Task", "WorkerImage", "setting"),
    ),
    "env_worker.compliance": ("check_benchmark",),
    "env_worker.protocol": ("Protocol",),
    "env_worker.task_table": ("TaskTable",),
    "orchestrator.launchers.base": ("Launcher", "LauncherSettings", "WorkerOrder"),
    "orchestrator.launchers.command": ("CommandWorker",),
    "orchestrator.launchers.keep_alive": ("keep_all", "keep_worker"),
    "orchestrator.compliance.launcher": ("check_launcher",),
    "orchestrator.comparison.comparison": ("Compared", "Comparison", "compare"),
    "orchestrator.comparison.returns": ("ComparedReturns", "ReturnComparison", "ReturnPair", "compare_returns"),
    "orchestrator.comparison.suite": ("SuiteMean", "suite_mean"),
    "orchestrator.live.evaluator": ("Evaluator", "close", "evaluate"),
    "orchestrator.preflight.preflight": ("Preflight", "preflight"),
    "orchestrator.results.results": ("Results",),
    "orchestrator.results.row": ("EpisodeRow",),
    "orchestrator.run.listeners": ("RunEnd", "RunListener", "RunStart", "SlotActivity", "SlotFrame"),
    "orchestrator.settings": ("RunSettings",),
    "orchestrator.trackers.base": ("TrackedRun", "Tracker", "TrackerSettings"),
    "policy_server.client": ("Identity", "PolicyClient"),
    "policy_server.policies.base": ("Instruction", "Observation", "Policy"),
    "policy_server.policies.in_actor": ("ActorPolicy", "PolicyActor"),
    "policy_server.policies.torch": ("Batch", "TorchPolicy", "TorchSession"),
    "protos.advice": ("Hint",),
    "protos.errors": ("SparringError", "UsageError"),
    "protos.spec": ("Offer", "PolicySpec", "TensorSpec"),
}
HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}
"""The module below this one that each public name is in."""


def __getattr__(name: str) -> Any:
    """Loads a public name from where it is defined."""
    if name not in HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Before gRPC is imported: training programs fork (torch's data loaders do), and its handlers for that crash the
    # forks, which do not use it.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
