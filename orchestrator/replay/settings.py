"""The settings of a replay: what decided a run's numbers is as it was, how its workers are started is as it is here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.settings import Evaluation, RunSettings, read_settings
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import UsageError

_AS_IT_WAS: Final = (
    "benchmark",
    "task",
    "benchmark_arg",
    "evaluations",
    "episodes",
    "policy_seeds",
    "seed",
    "stall_timeout",
    "slot_memory",
    *(rule.name for rule in fields(EpisodeRules)),
)
NOW: Final = (
    "slots",
    "assets",
    "worker_timeout",
    "stall_timeout",
    "in_process",
    "launcher",
    "listen",
    "join_token_file",
    "render_device",
)
"""Settings that are not the run's but of whoever plays it again, beside those of launchers."""
NOBODY: Final = "zero"
"""The policy that a replay names, for every run has one: it is never asked."""


@dataclass(frozen=True)
class ReplaySettings:
    """How episodes are played again.

    Attributes:
        now: Settings of `sparring run` on workers: `slots`, `launcher`, `assets`, …
        seen: Settings of benchmarks that change what is seen and nothing else, such as `resolution`.
        film: Whether films are made.
        record: Whether recordings are made.
        cameras: Of films; empty: the benchmark's own.
        watch: What recordings have, by name.
    """

    now: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)
    film: bool = False
    record: bool = False
    cameras: Collection[str] = ()
    watch: Collection[str] = ()

    def of(self, saved: Mapping[str, Any], folder: Path, parts: Collection[str]) -> RunSettings:
        """Returns the settings of a run that plays episodes of another one again.

        Args:
            saved: The settings of that run.
            folder: Of the replay's own files.
            parts: Of that run that there is something to play of, by their labels.

        Raises:
            UsageError: If a benchmark is not known here, cannot repeat an episode, or has no such setting.
        """
        kept = {name: saved[name] for name in _AS_IT_WAS if name in saved}
        if kept.get("evaluations"):
            kept["evaluations"] = [
                {**part, "benchmark_arg": self._arguments(part["benchmark"], part.get("benchmark_arg") or {})}
                for part in kept["evaluations"]
                if Evaluation.model_validate(part).label in parts
            ]
        else:
            kept["benchmark_arg"] = self._arguments(kept["benchmark"], kept.get("benchmark_arg") or {})
        return read_settings(
            {
                **kept,
                "retries": 1,
                "max_errors": 0,  # each replay has a verdict of its own
                **self.now,
                "policy": NOBODY,
                "video": "all" if self.film else "none",
                "video_live": True,
                "output": folder,
                **({"record": folder / "recordings"} if self.record else {}),
            }
        )

    def _arguments(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        benchmark = get_benchmark(name)
        if not benchmark.replays:
            raise UsageError(
                f"the benchmark {name!r} says that its simulators do not repeat an episode (replays = False): nothing "
                "of it can be played again."
            )
        arguments = dict(given)
        if benchmark.assets is not None:
            arguments.pop(benchmark.assets.setting, None)  # of whoever made the run; here the user says where they are
        known = {setting.name for setting in fields(benchmark.settings) if setting.metadata.get("only_seen")}
        for key in self.seen:
            if key not in known:
                there = f"It has: {', '.join(sorted(known))}." if known else "It has none."
                raise UsageError(
                    f"the benchmark {name!r} has no setting {key!r} that changes what is seen and nothing else. {there}"
                )
        for image, settings in benchmark.shown_with.items():
            if image in self.watch or (self.film and (not self.cameras or image in self.cameras)):
                arguments |= settings  # the run had no use for it, and did not offer it
        return {**arguments, **self.seen}
