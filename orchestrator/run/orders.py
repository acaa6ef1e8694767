"""What whoever plays a run's episodes is told, in the contract's messages."""

from __future__ import annotations

import json
from collections.abc import Callable

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.films import Films
from sparring.orchestrator.run.scheduler import Lease
from sparring.orchestrator.settings import Evaluation, RunSettings
from sparring.orchestrator.settings.assets import benchmark_settings
from sparring.protos import evaluation_pb2 as pb

LeaseOrder = Callable[[EpisodeId, pb.Lease], None]
"""Adds to the lease of an episode what is wanted of it, beside what settings say."""


def unchanged(episode: EpisodeId, lease: pb.Lease) -> None:
    """Wants nothing else."""


def assignment_message(settings: RunSettings, part: Evaluation) -> pb.Assignment:
    """Says how the episodes of a benchmark are played; not where the policy is, and what else a worker needs."""
    return pb.Assignment(
        benchmark=part.benchmark,
        benchmark_settings=json.dumps(benchmark_settings(settings, part)),
        rules=settings.plan.rules_of(part).to_message(),
        video_fps=settings.output.video_fps,
        render_device=settings.worker.render_device,
    )


def lease_message(
    settings: RunSettings, plan: Plan, films: Films, lease: Lease, order: LeaseOrder = unchanged
) -> pb.Lease:
    """Says which episode to play."""
    message = pb.Lease(
        lease=lease.number,
        slot=lease.slot.number,
        task=lease.episode.task,
        index=lease.episode.index,
        seed=plan.seed_of(lease.episode),
        film=films.live(lease.episode),
        film_later=films.later(lease.episode),
        film_seen=films.seen(lease.episode),
        record=settings.output.record is not None,
        keep_actions=settings.output.actions,
    )
    if plan.repeats > 1:
        message.episode = plan.round_of(lease.episode.index)
        message.policy_seed = plan.policy_seed_of(lease.episode)
    order(lease.episode, message)
    return message
