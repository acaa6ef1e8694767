"""Two small networks and the policy around either: what `sparring run --policy` serves and `evaluate()` takes.

As a flag: `--policy examples.behaviour_cloning.policy:ClonedPolicy --policy-arg checkpoint=PATH`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from sparring import Batch, Instruction, PolicySpec, TensorSpec, TorchPolicy, TorchSession, UsageError
from sparring.policy_server.policies.checkpoints import check_safetensors

STATE = "environment_state"
"""Meta-World's raw state, the goal included: what its experts see."""
IMAGE = "observation.image"
PROPRIOCEPTION = "observation.state"
"""Where the hand is and how far it is open; nothing about the world around it."""

ACTION_DIM = 4


class StateNet(nn.Module):
    """A multilayer perceptron on states and a learned embedding of the task's sentence.

    Args:
        sentences: The tasks it can be told to do.
        width: Of its hidden layers.
    """

    kind = "states"
    chunk = 1
    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, sentences: list[str], width: int = 256) -> None:
        super().__init__()
        self.sentences = sentences
        self.settings = {"sentences": sentences, "width": width}
        self.needs = {STATE: TensorSpec("float64", (39,))}
        self.embedding = nn.Embedding(len(sentences), 32)
        self.register_buffer("mean", torch.zeros(39))
        self.register_buffer("scale", torch.ones(39))
        self.layers = nn.Sequential(
            nn.Linear(39 + 32, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, ACTION_DIM),
        )  # fmt: skip

    def normalise(self, observations: dict[str, torch.Tensor]) -> None:
        """Learns what states look like, so that every input is of the same size."""
        states = observations[STATE].float()
        self.mean.copy_(states.mean(0))
        # Many entries never change (unused objects); the floor keeps a surprise in one of them from being amplified.
        self.scale.copy_(states.std(0).clamp(min=0.01))

    def forward(self, observations: dict[str, torch.Tensor], task: torch.Tensor) -> torch.Tensor:
        """Actions, (rows, 1, action_dim)."""
        state = (observations[STATE].float() - self.mean) / self.scale
        answers: torch.Tensor = self.layers(torch.cat([state, self.embedding(task)], dim=1))
        return answers.unsqueeze(1).tanh()


class PixelNet(nn.Module):
    """A small convolutional network on an image and where the hand is; answers with a chunk of actions.

    Args:
        sentences: The tasks it can be told to do.
        side: Height and width of its image, in pixels.
        chunk: Actions per look.
    """

    kind = "images"
    mean: torch.Tensor
    scale: torch.Tensor
    across: torch.Tensor

    def __init__(self, sentences: list[str], side: int = 64, chunk: int = 5) -> None:
        super().__init__()
        self.sentences = sentences
        self.settings = {"sentences": sentences, "side": side, "chunk": chunk}
        self.side = side
        self.chunk = chunk
        self.needs = {IMAGE: TensorSpec("uint8", (side, side, 3)), PROPRIOCEPTION: TensorSpec("float32", (4,))}
        self.embedding = nn.Embedding(len(sentences), 32)
        self.eyes = nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.Conv2d(64, 32, 3, padding=1),
        )  # fmt: skip
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("scale", torch.ones(4))
        self.layers = nn.Sequential(
            nn.Linear(64 + 4 + 32, 256), nn.ReLU(),
            nn.Linear(256, 256), nn.ReLU(),
            nn.Linear(256, chunk * ACTION_DIM),
        )  # fmt: skip
        self.register_buffer("across", torch.linspace(-1.0, 1.0, side // 4))

    def normalise(self, observations: dict[str, torch.Tensor]) -> None:
        """Learns where the hand goes."""
        states = observations[PROPRIOCEPTION]
        self.mean.copy_(states.mean(0))
        self.scale.copy_(states.std(0).clamp(min=0.01))

    def forward(self, observations: dict[str, torch.Tensor], task: torch.Tensor) -> torch.Tensor:
        """Actions, (rows, chunk, action_dim)."""
        image = observations[IMAGE].float().permute(0, 3, 1, 2) / 127.5 - 1.0
        hand = (observations[PROPRIOCEPTION].float() - self.mean) / self.scale
        features = torch.cat([self._where(self.eyes(image)), hand, self.embedding(task)], dim=1)
        answers: torch.Tensor = self.layers(features)
        return answers.reshape(-1, self.chunk, ACTION_DIM).tanh()

    def _where(self, maps: torch.Tensor) -> torch.Tensor:
        """The place in the image where each feature map is strongest: what reaching for things takes."""
        attention = maps.flatten(2).softmax(2).reshape(maps.shape)
        x = (attention.sum(2) * self.across).sum(2)
        y = (attention.sum(3) * self.across).sum(2)
        return torch.cat([x, y], dim=1)


Network = StateNet | PixelNet
KINDS: dict[str, type[StateNet] | type[PixelNet]] = {"states": StateNet, "images": PixelNet}


class ClonedPolicy(TorchPolicy):
    """Does what the demonstrations did. Told what to do by the task's sentence.

    Args:
        checkpoint: A file that `save` wrote.
        network: Instead of a checkpoint: a network that lives here and may be in training. It is left as it is.
        options: Those of every torch policy: device, dtype, …
    """

    def __init__(self, checkpoint: str = "", *, network: Network | None = None, **options: Any) -> None:
        super().__init__(**options)
        if (network is None) == (not checkpoint):
            raise UsageError("give a checkpoint: --policy-arg checkpoint=PATH.")
        self.network = network if network is not None else self.load(_network_of(Path(checkpoint)), checkpoint)
        self.spec = PolicySpec(self.network.needs, action_dim=ACTION_DIM, chunk_length=self.network.chunk)

    def warm_up(self) -> None:
        """Nothing: networks as small as these are no slower the first time, and zeros come without a sentence."""

    def new_session(self, task: Instruction, seed: int) -> TorchSession:
        if task not in self.network.sentences:
            known = ", ".join(map(repr, self.network.sentences))
            raise UsageError(f"this policy has not learned to {str(task)!r}, only: {known}.")
        return super().new_session(task, seed)

    def forward(self, batch: Batch) -> torch.Tensor:
        sentences = self.network.sentences
        task = torch.tensor([sentences.index(sentence) for sentence in batch.tasks], device=batch.device)
        return self.network(batch, task)  # type: ignore[no-any-return]


def save(network: Network, path: Path) -> None:
    """Writes a checkpoint: the weights, and in the file's own metadata what network they are of."""
    metadata = {"kind": network.kind, "settings": json.dumps(network.settings)}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, str(path), metadata)


def _network_of(path: Path) -> Network:
    check_safetensors(path)
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata() or {}
    if metadata.get("kind") not in KINDS:
        raise UsageError(f"{str(path)!r} is not a checkpoint of this example.")
    return KINDS[metadata["kind"]](**json.loads(metadata["settings"]))
