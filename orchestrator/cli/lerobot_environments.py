"""What LeRobot's environments are here: a benchmark each, what policies see of it, and what its flags may say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_IMAGES: Final = "observation.images."
_IMAGE: Final = "observation.image"
_STATE: Final = "observation.state"
CAMERAS: Final = {
    "agentview_image": f"{_IMAGES}image",
    "robot0_eye_in_hand_image": f"{_IMAGES}image2",
}
"""LIBERO's, by the names that `--env.camera_name_mapping` has for them."""

Allowed = Mapping[str, tuple[Sequence[Any], str]]
"""Flags, with the values that they may have, and why no others."""


@dataclass(frozen=True)
class LeRobotEnvironment:
    """One `--env.type`.

    Attributes:
        observations: What policies are shown, by the names that LeRobot gives it.
        flags: Which of the flags that not all environments have it takes.
        task: If `--env.task` is not given; empty: it must be.
        episode_length: If `--env.episode_length` is not given, and it may say more; 0: it may not.
        vain: Flags that LeRobot takes for it and does not use, and what is so whatever they say.
        fixed: Flags that can say one thing only.
        without_effect: Flags that are taken, with what they may say, and why they change nothing.
    """

    observations: Mapping[str, str]
    flags: Sequence[str] = ()
    task: str = ""
    episode_length: int = 0
    vain: Mapping[str, str] = field(default_factory=dict)
    fixed: Allowed = field(default_factory=dict)
    without_effect: Allowed = field(default_factory=dict)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_SIZE: Final = ("env.observation_height", "env.observation_width")

_CHECKER: Final = ((True, False), "Gymnasium's checker would change nothing that is seen")

ENVIRONMENTS: Final[Mapping[str, LeRobotEnvironment]] = {
    "libero": LeRobotEnvironment(
        observations=_same(*CAMERAS.values(), _STATE),
        flags=(
            "env.task_ids",
            "env.camera_name",
            "env.camera_name_mapping",
            "env.control_mode",
            "env.hard_reset",
            "env.init_states",
            "env.is_libero_plus",
            *_SIZE,
        ),
        task="libero_10",
    ),
    "metaworld": LeRobotEnvironment(
        observations=_same(_IMAGE, _STATE),
        vain={"env.episode_length": "LeRobot does not hand it to Meta-World either; episodes have up to 500 steps"},
    ),
    "pusht": LeRobotEnvironment(
        observations=_same(_IMAGE, _STATE, "observation.environment_state"),
        flags=(*_SIZE, "env.visualization_height", "env.visualization_width"),
        task="PushT-v0",
        episode_length=300,
        vain=dict.fromkeys(_SIZE, "LeRobot does not hand it to PushT either; images are 96×96"),
        fixed=dict.fromkeys(
            ("env.visualization_height", "env.visualization_width"), ((384,), "films of PushT are 384×384")
        ),
        without_effect={
            "env.obs_type": (
                ("pixels", "pixels_agent_pos", "environment_state_agent_pos"),
                "a policy sees what it asks for",
            ),
            "env.disable_env_checker": _CHECKER,
            "env.fps": ((10,), "PushT has 10 steps per second, and LeRobot has no use for it either"),
        },
    ),
    "aloha": LeRobotEnvironment(
        observations=_same(f"{_IMAGES}top", _STATE),
        flags=_SIZE,
        task="AlohaInsertion-v0",
        episode_length=400,
        vain=dict.fromkeys(_SIZE, "LeRobot does not hand it to ALOHA either; images are 480×640"),
        without_effect={
            "env.disable_env_checker": _CHECKER,
            "env.fps": ((50,), "ALOHA has 50 steps per second, and LeRobot has no use for it either"),
        },
    ),
}
"""By `--env.type`, which is the benchmark's name, too."""

FIXED: Final[Allowed] = {
    "env.render_mode": (("rgb_array",), "frames are rendered to arrays and nothing else"),
    "env.init_states": ((True,), "episodes begin in LIBERO's own initial states"),
    "env.hard_reset": ((True,), "episodes begin as after a hard reset"),
    "env.camera_name": (
        ("agentview_image,robot0_eye_in_hand_image",),
        "LIBERO has these two cameras, and a policy sees those it asks for",
    ),
    "env.is_libero_plus": ((False,), "LIBERO-plus is not among the benchmarks"),
    "eval.recording": (
        (False,),
        "`sparring run --record DIR` records episodes, in a format of its own (docs/recordings.md)",
    ),
    "eval.recording_repo_id": ((None,), "recordings are not pushed anywhere"),
    "eval.recording_private": ((False,), "recordings are not pushed anywhere"),
}
"""Flags that can say one thing only, whatever the environment."""

WITHOUT_EFFECT: Final[Allowed] = {
    "env.obs_type": (("pixels", "pixels_agent_pos"), "a policy sees what it asks for"),
    "env.fps": ((20, 30, 80), "a simulator has the rate of its benchmark: LIBERO 20, Meta-World 80"),
    "env.multitask_eval": ((True, False), "it has no effect on an evaluation by LeRobot either"),
    "env.disable_env_checker": ((True, False), "it has no effect on this benchmark in LeRobot either"),
    "eval.use_async_envs": ((True, False), "simulators always run in processes of their own"),
    "trust_remote_code": ((True, False), "no code is fetched"),
}
"""Flags that are taken, with what they may say, and why they change nothing; environments may know better."""
