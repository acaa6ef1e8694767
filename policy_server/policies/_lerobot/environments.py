"""LeRobot's environment processors, for a family that does not see a benchmark as the others do.

Between an environment and a policy's own processors LeRobot has another pair (`make_env_pre_post_processors`). What it
does to LIBERO for most families is what the benchmark shows under LeRobot's names anyway: images mirrored, a state of
eight. X-VLA has a pair of its own: only the agent's camera is mirrored, the state is a pose whose rotation has six
numbers, and actions are such poses, too. That pair is LeRobot's, called here on observations as LeRobot's environment
has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from sparring.policy_server.policies._lerobot.memory import ACTION
from sparring.protos.advice import Hint
from sparring.protos.spec import PolicySpec, SpecMismatch, TensorSpec

STATE: Final = "observation.state"
_ROBOT_STATE: Final = "observation.robot_state"
_POSITION, _ROTATION = "robot0_eef_pos", "robot0_eef_mat"
_SIX_DIMENSIONAL_POSE: Final = 10
"""How many numbers a position, a rotation of six and a gripper are; the pose of a second arm may follow."""


def environments_of(config: Any, steps: Collection[str]) -> Mapping[str, XvlaOnLibero]:
    """Returns the benchmarks that a policy has environment processors of its own for.

    Args:
        config: LeRobot's configuration of the policy.
        steps: The registered names of the steps in its own pre-processor.
    """
    # LeRobot takes LIBERO's for X-VLA whatever the environment. Elsewhere they could only do harm: of what Meta-World
    # shows they change nothing, and its actions have four numbers, theirs seven. There the policy's own have to do.
    return {"libero": XvlaOnLibero(steps)} if config.type == "xvla" and _acts_in_poses(config) else {}


def _acts_in_poses(config: Any) -> bool:
    """Returns whether its actions are poses. Those of an X-VLA that was fine-tuned on LIBERO's own actions are not."""
    mode = str(config.action_mode).lower()
    if mode == "auto":  # the dataset's actions, whatever they were
        return config.action_feature is not None and int(config.action_feature.shape[0]) >= _SIX_DIMENSIONAL_POSE
    return mode.endswith("ee6d")


class XvlaOnLibero:
    """X-VLA's environment processors on LIBERO.

    Args:
        steps: The registered names of the steps in the policy's own pre-processor.
    """

    def __init__(self, steps: Collection[str]) -> None:
        from lerobot.policies.xvla.processor_xvla import make_xvla_libero_pre_post_processors

        self._pre, self._post = make_xvla_libero_pre_post_processors()
        # Checkpoints from lerobot-train have some of these steps (normalised images, a domain) in their own
        # pre-processor, the published ones have not. Twice is wrong, and LeRobot 0.4.4 to 0.6.1 stops at it.
        self._pre.steps = [step for step in self._pre.steps if not _is_among(step, steps)]

    def spec(self, spec: PolicySpec, names: Mapping[str, str]) -> PolicySpec:
        """Returns what the policy needs on LIBERO.

        Args:
            spec: What it needs by its configuration, whose state need not be the one that it is shown.
            names: The policy's names of what it looks at, and the benchmark's.
        """
        state = names.get(STATE, STATE)
        if state != STATE:
            raise SpecMismatch(
                f"the state of an X-VLA on LIBERO is made by LeRobot's environment processor, from {_POSITION} and "
                f"{_ROTATION}; it cannot be {state!r} ({Hint('rename')})."
            )
        needs = {name: need for name, need in spec.named.items() if name != STATE}
        needs |= {_POSITION: TensorSpec(None, (3,)), _ROTATION: TensorSpec(None, (3, 3))}
        return replace(spec, observations=needs, action_dim=7, control="absolute")

    def shown(self, images: Mapping[str, Any], tensors: Mapping[str, Any], tasks: list[str]) -> dict[str, Any]:
        """Returns what LeRobot's environment processor makes of one step, by the benchmark's names.

        Args:
            images: The cameras by LeRobot's names, channel first, from 0 to 1, mirrored as the benchmark shows them.
            tensors: The other observations.
            tasks: The sentences.
        """
        # LeRobot's environment has cameras as they are rendered; which ones are mirrored is the processor's business.
        rendered = {name: image.flip(dims=(-2, -1)) for name, image in images.items()}
        pose = {"pos": tensors[_POSITION], "mat": tensors[_ROTATION]}
        frame: dict[str, Any] = self._pre({**rendered, _ROBOT_STATE: {"eef": pose}, "task": tasks})
        return frame

    def played(self, actions: Any) -> Any:
        """Actions of shape (rows, length, size) as LIBERO takes them."""
        rows, length, size = actions.shape
        turned = self._post({ACTION: actions.reshape(rows * length, size)})[ACTION]
        return turned.view(rows, length, turned.shape[-1])


def _is_among(step: Any, names: Collection[str]) -> bool:
    name = getattr(type(step), "_registry_name", None)  # the step that reads the pose has none
    return name is not None and name in names
