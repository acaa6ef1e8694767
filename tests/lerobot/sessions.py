"""Sessions as workers play them, and LeRobot's own loop over the same film, for tests that compare the two."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

from sparring.policy_server.policies import load_policy
from sparring.policy_server.policies.base import Array, Instruction, Observation
from sparring.protos.spec import Offer, TensorSpec

SIDE = 64
IMAGE, STATE = "observation.image", "observation.state"
SENTENCE = "Reach a goal position"
STEPS = 9


def looks(*cameras: str, side: int = SIDE) -> dict[str, TensorSpec]:
    """What a benchmark shows: cameras and a state."""
    return {
        **{camera: TensorSpec("uint8", (side, side, 3)) for camera in cameras},
        STATE: TensorSpec("float32", (4,)),
    }


LOOKS = looks(IMAGE)
OFFER = Offer(LOOKS, action_low=(-1.0,) * 4, action_high=(1.0,) * 4)


def load(folder: Path, **arguments: Any) -> Any:
    # A family whose tokenizer is code, also of the tiny ones.
    trusted = {"trust": True} if '"pi0_fast"' in _config(folder) else {}
    return load_policy(f"lerobot:{folder}", {"device": "cpu", **trusted, **arguments})


def _config(folder: Path) -> str:
    file = Path(folder, "config.json")
    if not file.is_file():
        return ""
    with file.open() as content:
        return content.read(1_000_000)


def task(sentence: str = SENTENCE) -> Instruction:
    return Instruction(sentence, benchmark="metaworld", name="reach-v3", offer=OFFER)


def film(seed: int, steps: int = STEPS, shown: Mapping[str, TensorSpec] = LOOKS) -> list[dict[str, Array]]:
    """What a session might see, step by step."""
    rng = np.random.default_rng(seed)

    def seen(spec: TensorSpec) -> Array:
        if spec.dtype == "uint8":
            return rng.integers(0, 256, spec.shape, np.uint8)
        return rng.random(spec.shape, np.float32)

    return [{name: seen(spec) for name, spec in shown.items()} for _ in range(steps)]


class Player:
    """A session as a worker plays it: it looks, with a history, and plays chunks to their end."""

    def __init__(
        self,
        policy: Any,
        seed: int,
        sentence: str = SENTENCE,
        steps: int = STEPS,
        shown: Mapping[str, TensorSpec] = LOOKS,
    ) -> None:
        self.film, self.task = film(seed, steps, shown), task(sentence)
        self.state = policy.new_session(self.task, seed)
        self.history = policy.spec.history
        self.actions: list[Array] = []

    @property
    def done(self) -> bool:
        return len(self.actions) >= len(self.film)

    def look(self) -> Observation:
        step = len(self.actions)
        if self.history == 1:
            return Observation(self.film[step], self.task, step)
        seen: deque[Any] = deque([self.film[0]] * self.history, maxlen=self.history)
        seen.extend(self.film[: step + 1])
        return Observation({name: np.stack([frame[name] for frame in seen]) for name in self.film[0]}, self.task, step)

    def play(self, chunk: Array) -> None:
        self.actions = [*self.actions, *chunk][: len(self.film)]


def alone(policy: Any, seed: int, sentence: str = SENTENCE, shown: Mapping[str, TensorSpec] = LOOKS) -> Array:
    player = Player(policy, seed, sentence, shown=shown)
    while not player.done:
        player.play(policy.act([player.look()], [player.state])[0])
    return np.asarray(player.actions)


def together(policy: Any, seeds: Sequence[int], sentences: Sequence[str]) -> list[Array]:
    """Sessions in random mixes, at different steps of their episodes."""
    players = [Player(policy, seed, sentence) for seed, sentence in zip(seeds, sentences, strict=True)]
    rng = np.random.default_rng(0)
    while waiting := [player for player in players if not player.done]:
        chosen = [player for player in waiting if rng.random() < 0.7] or waiting[:1]
        chunks = policy.act([player.look() for player in chosen], [player.state for player in chosen])
        for player, chunk in zip(chosen, chunks, strict=True):
            player.play(chunk)
    return [np.asarray(player.actions) for player in players]


def by_lerobot(
    folder: Path,
    seed: int,
    sentence: str = SENTENCE,
    *,
    shown: Mapping[str, TensorSpec] = LOOKS,
    names: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    policy: Any = None,
    every: int = 1,
) -> Array:
    """What LeRobot's own loop does with a policy of its own and the global generator.

    Args:
        folder: The checkpoint.
        seed: Of the film and of the generator.
        sentence: The task.
        shown: What there is to see.
        names: The policy's names of it; a camera that is not among them is not given to the policy.
        overrides: Of the configuration, as `lerobot-eval` takes them.
        policy: LeRobot's, if it is not simply the checkpoint's.
        every: It looks every so many steps.
    """
    config = PreTrainedConfig.from_pretrained(folder, cli_overrides=list(overrides))
    policy = policy or get_policy_class(config.type).from_pretrained(folder, config=config)
    pre, post = make_pre_post_processors(config, pretrained_path=str(folder))
    policy.reset()
    torch.manual_seed(seed)
    actions = []
    for step, frame in enumerate(film(seed, shown=shown)):
        if step % every == 0:
            seen = _as_lerobot_shows_it(frame, names or {name: name for name in frame})
            observation = pre({**seen, "task": [sentence]})
        with torch.inference_mode():
            actions.append(post(policy.select_action(observation)).float().numpy()[0])
    return np.asarray(actions)


def _as_lerobot_shows_it(frame: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Any]:
    seen = {own: torch.from_numpy(frame[name])[None] for name, own in names.items()}
    return {
        own: tensor.permute(0, 3, 1, 2).contiguous().float() / 255 if tensor.dtype == torch.uint8 else tensor
        for own, tensor in seen.items()
    }
