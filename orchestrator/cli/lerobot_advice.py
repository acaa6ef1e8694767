"""How somebody who uses LeRobot's flags gives a setting."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparring.orchestrator.cli.lerobot_environments import ENVIRONMENTS
from sparring.protos.advice import Hint, flag, word

_SETTINGS: Final = {
    "benchmark": ("env.type",),
    "task": ("env.task",),
    "episodes": ("eval.n_episodes",),
    "seed": ("seed",),
    "max_parallel_tasks": ("env.max_parallel_tasks",),
    "output": ("output_dir",),
    "policy": ("policy.path",),
}
_BENCHMARK_ARGUMENTS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "libero": {
        "resolution": ("env.observation_height", "env.observation_width"),
        "control": ("env.control_mode",),
    },
    "aloha": {"max_steps": ("env.episode_length",)},
    "pusht": {"max_steps": ("env.episode_length",)},
}


@dataclass(frozen=True)
class LeRobotFlags:
    """The words of `lerobot-eval`: `--env.observation_height=224 --env.observation_width=224`.

    What LeRobot has no flag for is given as to `sparring run`, after a lone `--`.

    Attributes:
        benchmark: Which one; each has flags of its own.
    """

    benchmark: str = ""

    def phrase(self, hints: Sequence[Hint]) -> str:
        """Says LeRobot's flags first, then ours."""
        theirs: list[str] = []
        ours: list[str] = []
        names: dict[str, str] = {}
        for hint in hints:
            if hint.setting == "rename" and (not hint.key or hint.value in self._observations):
                names |= {hint.value: hint.key} if hint.key else {}  # LeRobot maps the other way round
                if not hint.key:
                    theirs.append("--rename_map")
            elif flags := self._flags(hint):
                value = f"={word(hint.value)}" if hint.has_value else ""
                theirs += [f"--{name}{value}" for name in flags]
            else:
                ours.append(flag(hint))
        if names:
            theirs.insert(0, f"--rename_map={shlex.quote(json.dumps(names))}")
        said = list(dict.fromkeys(theirs))
        return " ".join([*said, "--", *dict.fromkeys(ours)] if ours else said)

    @property
    def _observations(self) -> Mapping[str, str]:
        known = ENVIRONMENTS.get(self.benchmark)
        return {} if known is None else known.observations

    def _flags(self, hint: Hint) -> Sequence[str]:
        if hint.setting == "policy_arg" and hint.key:
            return (f"policy.{hint.key}",)
        if hint.setting == "benchmark_arg" and hint.key:
            return _BENCHMARK_ARGUMENTS.get(self.benchmark, {}).get(hint.key, ())
        return () if hint.key else _SETTINGS.get(hint.setting, ())
