"""The rules by which other projects evaluate policies on LIBERO.

Read from their code, and held against it: tests/foreign and tests/lerobot play the same actions in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparring.env_worker.protocol import Protocol

_OPENPI_LIMITS: Final = {
    "limit_spatial": 220,
    "limit_object": 280,
    "limit_goal": 300,
    "limit_10": 520,
    "limit_90": 400,
}
_ERRORS: Final = "an episode that raises counts as a failure there, and is an error here"
_FIFTY: Final = "there are 50 episodes at most there; here later ones begin in the same states again"

PROTOCOLS: Final[Sequence[Protocol]] = (
    Protocol(
        "lerobot-0.6",
        1,
        "lerobot-eval --env.type=libero of LeRobot 0.6.1",
        settings={
            "resolution": 360,
            "limit_spatial": 280,
            "limit_object": 280,
            "limit_goal": 300,
            "limit_10": 520,
            "limit_90": 400,
            "settling_steps": 10,
        },
        differs=(
            "how many actions are played before the policy looks again is the checkpoint's n_action_steps in both",
            "LeRobot computes the rotation of the state in single precision: its last bit may differ",
        ),
    ),
    Protocol(
        "openpi",
        1,
        "examples/libero/main.py of openpi, as of 2025 and 2026",
        seed=7,
        settings={"resolution": 256, **_OPENPI_LIMITS, "settling_steps": 10, "seeding": "task"},
        rules={"actions_per_look": 5},
        layout="openpi",
        differs=(
            _ERRORS,
            _FIFTY,
            "images are scaled to 224 by its client: here by the bridge openpi://, and not for other policies",
            "a policy that plans fewer than 5 actions is refused there; here it looks again sooner",
        ),
    ),
    Protocol(
        "vla-eval",
        1,
        "vla-eval 0.8.0, its LIBERO benchmark by default, in one shard",
        seed=7,
        settings={"resolution": 256, **_OPENPI_LIMITS, "settling_steps": 10, "seeding": "task"},
        layout="vla-eval",
        differs=(
            _ERRORS,
            _FIFTY,
            "it takes the sign of the gripper, with 0 for closing: here the bridge vla-eval:// does; robosuite takes "
            "the sign of whatever comes, so that only an exact 0 differs for other policies",
            "how many actions are played before the policy looks again is decided by its model server's buffer",
            "with several shards its fixtures stand where the order of episodes in each shard has them",
            "a model server may ask it for other settings (observation_params), such as env_seed=0 for OpenVLA-OFT",
        ),
    ),
    Protocol(
        "gr00t",
        1,
        "gr00t/eval/rollout_policy.py of Isaac GR00T N1.6 and N1.7, as its LIBERO example calls it",
        settings={
            "resolution": 256,
            **dict.fromkeys(_OPENPI_LIMITS, 720),
            "settling_steps": 0,
            "initial_states": "sampled",
        },
        rules={"actions_per_look": 8},
        layout="gr00t",
        differs=(
            "its episodes are not seeded: no two of its evaluations play the same; here each has its seed",
            "its gripper of 0 to 1, with 1 for open, is turned into LIBERO's by the bridge gr00t://; a policy that is "
            "not behind it must give LIBERO's own, -1 for open",
        ),
    ),
)

FIXED: Final[Mapping[str, str]] = {
    "success": "checked after every step; the first one ends the episode",
    "cameras": "agentview as observation.images.image, robot0_eye_in_hand as observation.images.image2",
    "images": "turned by 180 degrees, as large as they are rendered",
    "state": "position, rotation, gripper joints, as observation.state",
    "rotation": "axis-angle from 0 to 2 pi",
    "actions": "7 numbers; robosuite clips those outside [-1, 1]",
    "gripper": "as given; robosuite takes its sign: -1 opens",
    "order": "episode k begins in number k of the task's initial states, modulo 50, where initial_states is official",
    "sentence": "from the name of the task's file, without its scene",
    "control rate": "20 Hz",
}
"""What no setting changes."""

_AS_OPENPI: Final = {
    "cameras": "agentview as observation/image, robot0_eye_in_hand as observation/wrist_image",
    "images": "turned by 180 degrees, then scaled to 224 with black bars",
    "state": "position, rotation, gripper joints, as observation/state",
}
_AS_VLA_EVAL: Final = {
    "cameras": "agentview, and robot0_eye_in_hand as wrist, which a server may do without",
    "state": "position, rotation, gripper joints, as states, which a server may do without",
    "rotation": "axis-angle from 0 to 2 pi; at most pi for a server that asks for states without quat_no_antipodal",
    "gripper": "its sign: below 0 opens",
}
_AS_GROOT: Final = {
    "cameras": "agentview as video.image, robot0_eye_in_hand as video.wrist_image",
    "state": "position, rotation, gripper joints, as state.x, y, z, roll, pitch, yaw and gripper",
    "rotation": "axis-angle from 0 to 2 pi, called roll, pitch and yaw",
    "gripper": "0 to 1 becomes 1 to -1, and then its sign: 1 opens",
}
FIXED_BY_LAYOUT: Final[Mapping[str, Mapping[str, str]]] = {
    "openpi": _AS_OPENPI,
    "vla-eval": _AS_VLA_EVAL,
    "gr00t": _AS_GROOT,
}
"""What of that is otherwise for policies behind their servers: the bridge does it."""
