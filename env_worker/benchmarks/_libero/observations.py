"""What LIBERO's tasks show and take: names, types, and which of robosuite's sensors they are read from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from sparring.env_worker.benchmarks._libero.scene import MAX_FRAMES, MAX_JOINTS, SCENE_BYTES
from sparring.protos.spec import Offer, TensorSpec
from sparring.protos.tensor import Array

CONTROL_RATE_HZ: Final = 20.0
AGENT, WRIST = "agentview", "robot0_eye_in_hand"
IMAGES: Final[Mapping[str, tuple[str, bool]]] = {
    # Name -> (camera, mirrored). Mirrored is LeRobot's layout: height and width of the raw image flipped.
    "observation.images.image": (AGENT, True),
    "observation.images.image2": (WRIST, True),
    "agentview_image": (AGENT, False),
    "robot0_eye_in_hand_image": (WRIST, False),
}
PARTS: Final[Mapping[str, tuple[int, ...]]] = {
    "robot0_eef_pos": (3,),
    "robot0_eef_quat": (4,),
    "robot0_eef_mat": (3, 3),
    "robot0_gripper_qpos": (2,),
    "robot0_gripper_qvel": (2,),
    "robot0_joint_pos": (7,),
    "robot0_joint_vel": (7,),
}


def offers(*, control: str = "relative", resolution: int = 256) -> Offer:
    """Returns what every LIBERO task shows and takes under these settings. Needs no simulator."""
    observations = dict.fromkeys(IMAGES, TensorSpec("uint8", (resolution, resolution, 3)))
    observations["observation.state"] = TensorSpec("float32", (8,))
    observations |= {name: TensorSpec("float64", shape) for name, shape in PARTS.items()}
    observations["privileged.scene"] = TensorSpec("uint8", (SCENE_BYTES,))
    observations["privileged.poses"] = TensorSpec("float64", (MAX_FRAMES, 7))
    observations["privileged.joints"] = TensorSpec("float64", (MAX_JOINTS,))
    # Absolute poses are bounded by the room and by one turn; the controller itself does not clip them.
    reach = (1.0,) * 6 if control == "relative" else (2.0,) * 3 + (2 * np.pi,) * 3
    return Offer(observations, (*(-bound for bound in reach), -1.0), (*reach, 1.0), CONTROL_RATE_HZ, control)


def lerobot_state(position: Array, quaternion: Array, gripper: Array) -> npt.NDArray[np.float32]:
    """Returns the 8-dim state of LeRobot checkpoints: position, axis-angle, gripper joints.

    The axis-angle comes from the xyzw quaternion without making its sign canonical, so angles span 0 to 2 pi, as in
    the data those checkpoints were trained on.
    """
    w = np.clip(quaternion[3], -1.0, 1.0)
    sine = np.sqrt(1.0 - w * w)
    rotation = np.zeros(3) if sine <= 1e-10 else quaternion[:3] / sine * 2.0 * np.arccos(w)
    return np.concatenate([position, rotation, gripper]).astype(np.float32)


def mirrored(image: Array) -> Array:
    """Returns an upright image in LeRobot's layout, or the other way round."""
    return image[:, ::-1]


def cameras_of(look: frozenset[str]) -> frozenset[str]:
    """Returns the cameras that these names are of."""
    return frozenset(IMAGES[name][0] for name in look if name in IMAGES)


def sensors_of(look: frozenset[str]) -> frozenset[str]:
    """Returns which of robosuite's observables are read for these names."""
    names = {f"{camera}_image" for camera in cameras_of(look)} | (look & PARTS.keys() - {"robot0_eef_mat"})
    if "observation.state" in look:
        names |= {"robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos"}
    return frozenset(names)
