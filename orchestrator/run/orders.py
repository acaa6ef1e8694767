"""What whoever plays a run's episodes is told, in the contract's messages."""

from __future__ import annotations

import json
from typing import Final

from sparring.orchestrator.run.plan import Plan, benchmark_settings
from sparring.orchestrator.run.scheduler import Lease
from sparring.orchestrator.settings import Evaluation, RunSettings
from sparring.protos import evaluation_pb2 as pb

_OUT_OF_RANGE: Final = {
    "pass": pb.OUT_OF_RANGE_PASS,
    "clip": pb.OUT_OF_RANGE_CLIP,
    "error": pb.OUT_OF_RANGE_ERROR,
}


def assignment_message(settings: RunSettings, part: Evaluation) -> pb.Assignment:
    """How the episodes of a benchmark are played; where the policy is, and what else a worker needs, is not in it."""
    return pb.Assignment(
        benchmark=part.benchmark,
        benchmark_settings=json.dumps(benchmark_settings(settings, part)),
        observe_every_step=settings.plan.observe == "every-step",
        video_fps=settings.output.video_fps,
        out_of_range=_OUT_OF_RANGE[settings.plan.out_of_range],
    )


def lease_message(settings: RunSettings, plan: Plan, lease: Lease) -> pb.Lease:
    """Which episode to play."""
    return pb.Lease(
        lease=lease.number,
        slot=lease.slot.number,
        task=lease.episode.task,
        index=lease.episode.index,
        seed=plan.seed_of(lease.episode),
        film=settings.output.films(lease.episode.index),
        max_steps=settings.plan.max_steps,
        record=settings.output.record is not None,
    )
