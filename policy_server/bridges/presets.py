"""Layouts that are known: for each wire and benchmark, what the policies behind it were trained to see.

Read from the projects' own evaluation loops; docs/bridges.md says from which versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparring.policy_server.bridges.layout import STATE, BridgeLayout
from sparring.protos.errors import unknown

_AGENT, _WRIST = "observation.images.image", "observation.images.image2"
"""Turned by 180 degrees, as LeRobot, openpi, vla-eval and GR00T all show them."""
_TOP: Final = "observation.images.top"
_LIBERO_STATE: Final = ("robot0_eef_pos", "robot0_eef_quat:axis-angle", "robot0_gripper_qpos")
_POSE: Final = {
    "x": ("robot0_eef_pos[0]",),
    "y": ("robot0_eef_pos[1]",),
    "z": ("robot0_eef_pos[2]",),
    # Called roll, pitch and yaw, and filled with the axis-angle: so were they in training.
    "roll": ("robot0_eef_quat:axis-angle[0]",),
    "pitch": ("robot0_eef_quat:axis-angle[1]",),
    "yaw": ("robot0_eef_quat:axis-angle[2]",),
    "gripper": ("robot0_gripper_qpos",),
}

PRESETS: Final[Mapping[str, Mapping[str, BridgeLayout]]] = {
    "openpi": {
        "libero": BridgeLayout(
            images={"observation/image": _AGENT, "observation/wrist_image": _WRIST},
            side=224,
            states={"observation/state": _LIBERO_STATE},
            play=5,
        ),
        "metaworld": BridgeLayout(
            images={"observation/image": "observation.image"},
            side=224,
            states={"observation/state": ("observation.state",)},
            play=5,
        ),
        # As its examples/aloha_sim: the sentence is the server's own ("Transfer cube", of pi0_aloha_sim).
        "aloha": BridgeLayout(
            images={"images/cam_high": _TOP},
            side=224,
            states={"state": (STATE,)},
            instruction="",
            play=10,
            channels="first",
            nested=True,
        ),
    },
    "roboarena": {
        # What it calls the robot's; on LIBERO it can be played only by a server whose actions are LIBERO's.
        "libero": BridgeLayout(
            images={"observation/exterior_image_0_left": _AGENT, "observation/wrist_image_left": _WRIST},
            states={
                "observation/joint_position": ("robot0_joint_pos",),
                "observation/gripper_position": ("robot0_gripper_qpos[0]",),
            },
            play=100,  # all that is answered, as its own client does
        ),
    },
    "starvla": {
        "libero": BridgeLayout(
            images={"primary": _AGENT, "wrist": _WRIST},
            side=224,
            instruction="lang",
            gripper="zero-one-inverted",
            play=8,
        ),
        "metaworld": BridgeLayout(images={"primary": "observation.image"}, side=224, instruction="lang", play=8),
    },
    "vla-eval": {
        "libero": BridgeLayout(
            images={"agentview": _AGENT, "wrist": _WRIST},
            states={"states": _LIBERO_STATE},
            instruction="task_description",
            gripper="sign",
        ),
        "metaworld": BridgeLayout(
            images={"corner": "observation.image"},
            states={"states": ("observation.state",)},
            instruction="task_description",
        ),
    },
    "gr00t": {
        "libero": BridgeLayout(
            images={"video.image": _AGENT, "video.wrist_image": _WRIST},
            states={f"state.{name}": parts for name, parts in _POSE.items()},
            dtype="float32",
            instruction="annotation.human.action.task_description",
            gripper="zero-one-inverted",
            actions=[f"action.{name}" for name in _POSE],
            play=8,
        ),
    },
    "openvla": {
        "libero": BridgeLayout(
            images={"image": _AGENT}, side=224, instruction="instruction", gripper="zero-one-inverted"
        ),
        "metaworld": BridgeLayout(images={"image": "observation.image"}, side=224, instruction="instruction"),
    },
    "lerobot-async": {
        # Its server makes one state of named numbers, and knows no image whose name begins otherwise.
        "libero": BridgeLayout(
            images={_AGENT: _AGENT, _WRIST: _WRIST},
            states={STATE: _LIBERO_STATE},
            dtype="float32",
            instruction="task",
            play=50,
        ),
        "metaworld": BridgeLayout(
            images={"observation.images.image": "observation.image"},
            states={STATE: (STATE,)},
            dtype="float32",
            instruction="task",
            play=50,
        ),
        "pusht": BridgeLayout(
            images={"observation.images.image": "observation.image"},
            states={STATE: (STATE,)},
            dtype="float32",
            instruction="task",
            play=8,
        ),
        "aloha": BridgeLayout(
            images={_TOP: _TOP},
            states={STATE: (STATE,)},
            dtype="float32",
            instruction="task",
            play=100,  # as its ACT was trained
        ),
    },
    "xvla": {
        # The wrist's picture as it is rendered, the pose of the controller, and nothing of a second arm.
        "libero": BridgeLayout(
            images={"image0": _AGENT, "image1": "robot0_eye_in_hand_image"},
            states={"proprio": ("robot0_eef_pos", "robot0_eef_mat:six-numbers", "zeros[0:11]")},
            instruction="language_instruction",
            gripper="zero-one",
            rotation="six-numbers",
            control="absolute",
            constants={"domain_id": 3, "steps": 10},
            play=30,
        ),
        "metaworld": BridgeLayout(
            images={"image0": "observation.image"},
            states={"proprio": ("observation.state",)},
            dtype="float32",
            instruction="language_instruction",
            constants={"domain_id": 0, "steps": 10},
            play=10,
        ),
    },
}


def presets_of(wire: str) -> Mapping[str, BridgeLayout]:
    """Returns the layouts that are known for a wire, by the names of their benchmarks."""
    return PRESETS.get(wire, {})


def preset(wire: str, name: str) -> BridgeLayout:
    """Returns a layout by its name.

    Raises:
        UsageError: If there is none of that name for the wire.
    """
    known = presets_of(wire)
    if name not in known:
        raise unknown(f"preset of {wire}:", name, known)
    return known[name]
