"""What is looked at: what was played, what is known of the training, and which is which in the two."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Final

import numpy as np

from sparring.env_worker.benchmark_settings import not_taken
from sparring.orchestrator.export.recorded import ActionBounds, RecordedEpisode
from sparring.orchestrator.preflight.data_set import DataEpisode, DataSet
from sparring.orchestrator.preflight.facts import CheckpointFacts, Feature
from sparring.orchestrator.preflight.pictures import SIDE, mean_picture
from sparring.orchestrator.preflight.script import EVERY, Script
from sparring.protos.advice import Hint, together
from sparring.protos.chunk import Chunk
from sparring.protos.errors import UsageError
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import Array

FIRST_FRAMES: Final = 8
"""Episodes of a data set whose first frames are compared."""
_ALIASES: Final = {
    # What a LeRobot policy is shown when these are named: the same cameras, as LeRobot's data sets have them.
    "agentview_image": "observation.images.image",
    "robot0_eye_in_hand_image": "observation.images.image2",
}
_ADDRESS: Final = re.compile(r"[\w+-]+:/{2}")
_PREFIXES: Final = ("observation.images.", "observation.")

Ask = Callable[[str, Mapping[str, Array]], Chunk]
"""Asks the policy: a sentence, and what it is shown at the beginning of an episode."""


@dataclass(frozen=True)
class PolicyNames:
    """What is known of a policy's name and arguments.

    Attributes:
        name: As users know it; of a server, what it says.
        rename: What the benchmark calls an observation of the policy.
        elsewhere: Whether it is hosted elsewhere, so that its arguments are given there.
    """

    name: str
    rename: Mapping[str, str] = field(default_factory=dict)
    elsewhere: bool = False

    @property
    def is_lerobot(self) -> bool:
        """Whether it is a LeRobot checkpoint."""
        return self.name.startswith("lerobot:")

    @property
    def is_foreign(self) -> bool:
        """Whether it speaks somebody else's wire."""
        return _ADDRESS.match(self.name) is not None


@dataclass(frozen=True)
class Evidence:
    """Everything that rules look at.

    Attributes:
        policy: Its name and arguments.
        episodes: That the policy has played.
        probe: An episode with everything that the benchmark shows, in which `script` was played; None: there is none.
        script: Actions of training; None: nothing was done in the probe.
        checkpoint: What a LeRobot checkpoint says of its training; None: it is none, or cannot be read here.
        data_set: That it was trained on; None: it is not here.
        features: What the data set or the checkpoint calls an observation of the benchmark, where the user says so.
        ask: Asks the policy; None: it cannot be asked.
        settings: Of the benchmark, those that nothing else decides.
    """

    policy: PolicyNames
    episodes: Sequence[RecordedEpisode]
    probe: RecordedEpisode | None = None
    script: Script | None = None
    checkpoint: CheckpointFacts | None = None
    data_set: DataSet | None = None
    features: Mapping[str, str] = field(default_factory=dict)
    ask: Ask | None = None
    settings: Mapping[str, Field[Any]] = field(default_factory=dict)

    @property
    def every(self) -> int:
        """After how many steps of the probe it was looked what came of it."""
        return EVERY

    @cached_property
    def looked_at(self) -> Mapping[str, TensorSpec]:
        """What the policy looks at, by the benchmark's names."""
        return self.episodes[0].observations

    @property
    def images(self) -> list[str]:
        """The images among it."""
        return [name for name, spec in self.looked_at.items() if is_picture(spec)]

    @property
    def numbers(self) -> list[str]:
        """The rows of numbers among it."""
        return [name for name, spec in self.looked_at.items() if spec.shape is not None and len(spec.shape) == 1]

    @cached_property
    def actions(self) -> Array:
        """All that the policy has done, (steps, action_dim)."""
        return np.concatenate([episode.actions for episode in self.episodes])

    @property
    def action_space(self) -> ActionBounds | None:
        """What actions may be; None: the worker does not say."""
        return self.episodes[0].about.action_space

    @property
    def instruction(self) -> str:
        """The task's sentence."""
        return self.episodes[0].about.instruction

    def first(self, name: str) -> list[Array]:
        """Returns what was seen at the beginning of each episode."""
        return [array for episode in self.episodes for array in islice(episode.seen(name), 1)]

    def shown(self, name: str) -> Array:
        """Returns what the policy was shown first, with its history."""
        first = self.first(name)[0]
        return self.with_history(first)

    def with_history(self, array: Array) -> Array:
        """Returns an observation as if it had been there before the episode, too, for a policy that looks back."""
        history = self.episodes[0].about.history
        return np.stack([array] * history) if history > 1 else array

    def seen(self, name: str) -> Array:
        """Returns all that was seen, look by look."""
        return np.stack([array for episode in self.episodes for array in episode.seen(name)])

    @cached_property
    def offered(self) -> Mapping[str, Array]:
        """Everything that the benchmark shows when an episode begins; empty: that was not looked at."""
        if self.probe is None:
            return {}
        return {name: next(iter(self.probe.seen(name))) for name in self.probe.observations}

    @cached_property
    def _in_checkpoint(self) -> Mapping[str, str]:
        if self.checkpoint is None:
            return {}
        return pairs(self.looked_at, self.checkpoint.features, {**renamed(self.policy.rename), **self.features})

    @cached_property
    def _in_data_set(self) -> Mapping[str, str]:
        if self.data_set is None:
            return {}
        own = {name: feature for name, feature in self._in_checkpoint.items() if feature in self.data_set.features}
        return pairs(self.looked_at, self.data_set.features, {**own, **self.features})

    def own_name(self, name: str) -> str:
        """Returns what the policy calls an observation of the benchmark, as far as that is known."""
        return self._in_checkpoint.get(name, name)

    def in_checkpoint(self, name: str) -> Feature | None:
        """Returns what the checkpoint says of an observation."""
        own = self._in_checkpoint.get(name)
        return None if own is None or self.checkpoint is None else self.checkpoint.features[own]

    def in_data_set(self, name: str) -> Feature | None:
        """Returns what the data set says of an observation."""
        own = self._in_data_set.get(name)
        return None if own is None or self.data_set is None else self.data_set.features[own]

    @cached_property
    def same_task(self) -> bool:
        """Whether the data set has episodes of the very sentence that is played."""
        return self.data_set is not None and bool(self.data_set.of_sentence(self.instruction))

    @cached_property
    def data_episodes(self) -> Sequence[DataEpisode]:
        """Episodes of the data set to compare with: of the same sentence, if there are any."""
        if self.data_set is None:
            return []
        return self.data_set.of_sentence(self.instruction) or self.data_set.episodes

    def known_picture(self, feature: str) -> Array:
        """Returns the mean of the first frames of some of the data set's episodes, made small."""
        assert self.data_set is not None
        if feature not in self._pictures:
            every = max(1, len(self.data_episodes) // FIRST_FRAMES)
            chosen = self.data_episodes[::every][:FIRST_FRAMES]
            frames = [frame for episode in chosen for frame in self.data_set.frames(feature, episode, [0])]
            if not frames:
                raise UsageError(f"the data set has no images of {feature!r}.")
            self._pictures[feature] = mean_picture(frames)
        return self._pictures[feature]

    @cached_property
    def _pictures(self) -> dict[str, Array]:
        return {}

    def shown_picture(self, name: str) -> Array:
        """Returns the mean of what was seen at the beginning of episodes, made small."""
        return mean_picture(self.first(name), SIDE)

    def benchmark_hint(self, **values: Any) -> str:
        """Returns the settings of the benchmark to give together; empty, if it has no such ones or may not be told."""
        if any(name not in self.settings or not_taken(self.settings[name], value) for name, value in values.items()):
            return ""
        return together([Hint("benchmark_arg", name, value) for name, value in values.items()])

    def advised(self, own: str, name: str) -> Hint | None:
        """Returns the setting that shows another observation of the benchmark to the policy; None: there is none."""
        if self.policy.elsewhere:
            return None
        if self.policy.is_foreign:
            return Hint("policy_arg", "images")
        if self.policy.is_lerobot and name in _ALIASES:
            return None  # which would be turned again
        return Hint("rename", own, name)


def is_picture(spec: TensorSpec) -> bool:
    """Returns whether an observation is an image, of bytes or of floats."""
    return spec.shape is not None and len(spec.shape) == 3 and spec.shape[2] in (1, 3)


def renamed(rename: Mapping[str, str]) -> dict[str, str]:
    """Returns the policy's names by the benchmark's."""
    return {_ALIASES.get(offered, offered): own for own, offered in rename.items()}


def pairs(
    looked_at: Mapping[str, TensorSpec], features: Mapping[str, Feature], given: Mapping[str, str]
) -> dict[str, str]:
    """Returns which feature is which observation: as given, of the same name, of the same end of it, or the only one.

    Args:
        looked_at: Observations, by the benchmark's names.
        features: Of a checkpoint or a data set.
        given: Features by observation, where that is known; prefixes may be left out.
    """
    found: dict[str, str] = {}
    for name, wanted in given.items():
        own = next((full for full in (wanted, *(p + wanted for p in _PREFIXES)) if full in features), None)
        if name in looked_at and own is not None:
            found[name] = own
    fits = {
        name: [own for own, feature in features.items() if _fits(spec, feature)] for name, spec in looked_at.items()
    }
    for same in (lambda a, b: a == b, lambda a, b: _end(a) == _end(b)):
        for name in looked_at:
            left = [own for own in fits[name] if own not in found.values() and same(name, own)]
            if name not in found and len(left) == 1:
                found[name] = left[0]
    for name in looked_at:
        left = [own for own in fits[name] if own not in found.values()]
        rivals = [other for other in looked_at if other not in found and set(fits[other]) & set(left)]
        if name not in found and len(left) == 1 and rivals == [name]:
            found[name] = left[0]
    return found


def _fits(spec: TensorSpec, feature: Feature) -> bool:
    if feature.kind == "image":
        return is_picture(spec)
    return feature.kind == "numbers" and spec.shape is not None and tuple(spec.shape) == feature.shape


def _end(name: str) -> str:
    return re.split(r"[./]", name)[-1]
