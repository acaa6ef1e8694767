"""What LIBERO's --benchmark-arg takes, and which way each of these rules moves a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparring.env_worker.benchmark_settings import image_side, setting, step_limit
from sparring.env_worker.benchmarks._libero.tasks import EPISODE_LIMITS
from sparring.protos.effect import Effect


def _limit(suite: str) -> Any:
    return step_limit(EPISODE_LIMITS[suite], f"steps that an episode of {suite} has at most")


@dataclass(frozen=True)
class LiberoSettings:
    """What --benchmark-arg takes.

    Attributes:
        resolution: Height and width of both cameras, in pixels, 16 to 4096. The public datasets are 256.
        control: `relative`: actions are pose deltas in [-1, 1]; `absolute`: position (m), axis-angle (rad), gripper.
        assets: LIBERO's assets folder; else SPARRING_LIBERO_ASSETS, else the user's cache, else a download.
        loop: `fast`: steps with the bits of robosuite's, computed once; `robosuite`: its own, to compare.
        limit_spatial: After how many steps an episode of libero_spatial is truncated; and so on for each suite.
        limit_object: See above.
        limit_goal: See above.
        limit_10: See above.
        limit_90: See above.
        settling_steps: So many steps are played with the arm at rest before the policy begins, 0 to 1000.
        initial_states: `official`: episode k begins in number k of the task's list; `sampled`: objects are placed at
            random in the regions that the task names, by the episode's seed.
        seeding: `episode`: what is placed at random follows from the episode's seed; `task`: from one stream of random
            numbers for all episodes of a task, seeded once.
    """

    resolution: int = image_side(256, "height and width of both images as they are rendered, in pixels")
    control: str = setting(
        "relative",
        choices=("relative", "absolute"),
        what="whether actions are pose deltas or poses",
        effect=Effect(other="to 0 % for a policy that was trained with the other"),
    )
    assets: str = ""
    loop: str = setting("fast", choices=("fast", "robosuite"), in_protocol=False)
    limit_spatial: int = _limit("libero_spatial")
    limit_object: int = _limit("libero_object")
    limit_goal: int = _limit("libero_goal")
    limit_10: int = _limit("libero_10")
    limit_90: int = _limit("libero_90")
    settling_steps: int = setting(
        10,
        least=0,
        most=1000,
        what="steps with the arm at rest, gripper open, before the policy begins",
        effect=Effect(
            more="a little higher, up to about 10: objects have come to rest",
            less="lower: objects still fall when the policy begins, as they seldom do in training data",
        ),
    )
    initial_states: str = setting(
        "official",
        choices=("official", "sampled"),
        what="whether episodes begin in the task's list of states, or with objects placed at random",
        effect=Effect(other="either way, by some points: other scenes; episodes of the same number do not begin alike"),
    )
    seeding: str = setting(
        "episode",
        choices=("episode", "task"),
        what="whether random placements follow from each episode's seed, or from one stream for each task",
        effect=Effect(other="little: fixtures stand up to 1.3 cm elsewhere"),
    )

    def limit_of(self, suite: str) -> int:
        """Returns after how many steps an episode of a suite is truncated."""
        return int(getattr(self, f"limit_{suite.removeprefix('libero_')}"))
