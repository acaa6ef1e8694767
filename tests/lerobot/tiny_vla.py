"""A language-conditioned LeRobot policy of a few hundred weights, registered as a plug-in would be.

The real ones (SmolVLA, pi0, ...) build on models from a hub that tests cannot reach; what Sparring touches is LeRobot's
common interface, and that is the same: sentences in the batch, noise from torch's global generator, a queue of actions.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import NormalizationMode
from lerobot.policies.pretrained import PreTrainedPolicy

HEARD: list[str] = []


@PreTrainedConfig.register_subclass("tiny_vla")
@dataclass
class TinyVLAConfig(PreTrainedConfig):
    n_obs_steps: int = 1
    chunk_size: int = 6
    n_action_steps: int = 4
    odd_draws: bool = False
    diary: str = ""
    picky: bool = False
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: dict.fromkeys(("VISUAL", "STATE", "ACTION"), NormalizationMode.MEAN_STD)
    )

    observation_delta_indices = None
    action_delta_indices = None
    reward_delta_indices = None

    def get_optimizer_preset(self) -> Any:
        raise NotImplementedError

    def get_scheduler_preset(self) -> None:
        raise NotImplementedError

    def validate_features(self) -> None:
        pass


class Diary(torch.nn.Module):
    """A part of the network that remembers what it saw when it was last asked, where no policy object shows it."""

    last: Any = None

    def forward(self, seen: Any) -> Any:
        before, self.last = self.last, seen
        return seen if before is None else seen + before.flip(1)


class TinyVLAPolicy(PreTrainedPolicy):
    config_class = TinyVLAConfig  # type: ignore[assignment]
    name = "tiny_vla"  # type: ignore[assignment]

    def __init__(self, config: TinyVLAConfig, **_: Any) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(3 + 4 + 8, 4 * config.chunk_size)
        self.diary = Diary()
        self.reset()

    def reset(self) -> None:
        self._action_queue: deque[Any] = deque(maxlen=self.config.n_action_steps)
        if self.config.diary == "cleared":
            self.diary.last = None

    def get_optim_params(self) -> dict[str, Any]:
        raise NotImplementedError

    def forward(self, batch: dict[str, Any]) -> Any:
        raise NotImplementedError

    def predict_action_chunk(self, batch: dict[str, Any], **_: Any) -> Any:
        HEARD.extend(batch["task"])
        if self.config.picky and any("goal" not in sentence for sentence in batch["task"]):
            raise ValueError("what is the goal?")
        state = batch["observation.state"]
        words = torch.tensor([[float(zlib.crc32(s.encode()) >> bit & 1) for bit in range(8)] for s in batch["task"]])
        seen = torch.cat([batch["observation.image"].mean(dim=(2, 3)), state, words], dim=1)
        if self.config.diary:
            seen = self.diary(seen)
        noise = torch.normal(mean=0.0, std=1.0, size=(len(state), self.config.chunk_size, 4))
        if self.config.odd_draws:
            noise = noise + torch.bernoulli(torch.full((len(state), 1, 1), 0.5))
        return torch.tanh(self.layer(seen)).view(len(state), self.config.chunk_size, 4) + noise

    def select_action(self, batch: dict[str, Any], **_: Any) -> Any:
        if not self._action_queue:
            self._action_queue.extend(self.predict_action_chunk(batch)[:, : self.config.n_action_steps].transpose(0, 1))
        return self._action_queue.popleft()


def make_tiny_vla_pre_post_processors(config: TinyVLAConfig, dataset_stats: Any = None) -> Any:
    from lerobot.policies.act.processor_act import make_act_pre_post_processors

    return make_act_pre_post_processors(config, dataset_stats=dataset_stats)
