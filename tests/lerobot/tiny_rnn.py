"""A LeRobot policy that remembers in every way there is, none of which its reset() tells: a plug-in gone wild."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from tiny_vla import TinyVLAConfig, make_tiny_vla_pre_post_processors

LOADED: list[Any] = []
"""The networks that were loaded late, as those of gigabytes are."""


@PreTrainedConfig.register_subclass("tiny_rnn")
@dataclass
class TinyRNNConfig(TinyVLAConfig):
    late: bool = False
    new_parts: bool = False


class Leaky(torch.nn.Module):
    """A part of the network with memories of its own: a buffer that is changed in place, and a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("level", torch.zeros(1, 4))
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        self.level.mul_(0.7).add_(x)
        before, self.last = self.last, x
        return self.level + (0.0 if before is None else 0.3 * before)


class TinyRNNPolicy(PreTrainedPolicy):
    config_class = TinyRNNConfig  # type: ignore[assignment]
    name = "tiny_rnn"  # type: ignore[assignment]

    def __init__(self, config: TinyRNNConfig, **_: Any) -> None:
        super().__init__(config)
        self.cell = torch.nn.GRUCell(3 + 4, 8)
        self.head = torch.nn.Linear(8, 4)
        self.leaky = Leaky()
        self._seen: list[Any] = []
        self._frozen: dict[str, Any] = {}
        # A closure over this very object: a copy of the policy would still write here.
        self.head.register_forward_hook(lambda module, inputs, output: self._seen.append(output))
        self.reset()

    def reset(self) -> None:
        self._action_queue: deque[Any] = deque(maxlen=self.config.n_action_steps)
        self._seen.clear()
        if self.config.new_parts:
            self.leaky = Leaky()

    def get_optim_params(self) -> dict[str, Any]:
        raise NotImplementedError

    def forward(self, batch: dict[str, Any]) -> Any:
        raise NotImplementedError

    def predict_action_chunk(self, batch: dict[str, Any], **_: Any) -> Any:
        raise AssertionError("this one only has its own loop")

    def select_action(self, batch: dict[str, Any], **_: Any) -> Any:
        seen = torch.cat([batch["observation.image"].mean(dim=(2, 3)), batch["observation.state"]], dim=1)
        if self.config.late and not self._frozen:
            # As a file would fill it: nothing is drawn.
            network = torch.nn.utils.skip_init(torch.nn.Linear, 7, 7, bias=False)
            torch.nn.init.eye_(network.weight)
            LOADED.append(network)
            self._frozen["network"] = network
        if self._frozen:
            seen = self._frozen["network"](seen)
        self._hidden = self.cell(seen, getattr(self, "_hidden", None))
        action = self.leaky(self.head(self._hidden)) + 0.1 * torch.stack(self._seen).mean(0)
        return action + 0.1 * torch.randn(len(seen), 4)


def make_tiny_rnn_pre_post_processors(config: TinyRNNConfig, dataset_stats: Any = None) -> Any:
    return make_tiny_vla_pre_post_processors(config, dataset_stats)
