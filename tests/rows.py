"""A row of a journal, for tests to vary."""

from __future__ import annotations

from sparring.orchestrator.results.row import EpisodeRow

ROW = EpisodeRow(
    benchmark="toy",
    task="x",
    index=0,
    seed=5,
    outcome="success",
    reward_sum=1.5,
    reward_max=1.0,
    steps=3,
    seconds=0.1,
    physics_s=0.1,
    render_s=0.0,
    policy_s=0.0,
    transport_s=0.0,
    renders=0,
    round_trips=3,
    attempts=1,
    video="",
    error="",
    out_of_range=0,
)
