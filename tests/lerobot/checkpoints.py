"""Small LeRobot checkpoints with random weights, saved by LeRobot itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.tdmpc.configuration_tdmpc import TDMPCConfig
from lerobot.policies.vqbet.configuration_vqbet import VQBeTConfig

IMAGE, STATE, ACTION = "observation.image", "observation.state", "action"
STATISTICS = {
    IMAGE: {"mean": torch.full((3, 1, 1), 0.45), "std": torch.full((3, 1, 1), 0.25)},
    STATE: {"mean": torch.tensor([0.0, 0.6, 0.2, 0.5]), "std": torch.full((4,), 0.1)},
    ACTION: {"mean": torch.tensor([0.1, -0.1, 0.0, 0.2]), "std": torch.full((4,), 0.5)},
}
for _name, _least, _most in ((IMAGE, 0.0, 1.0), (STATE, -1.0, 1.0), (ACTION, -1.0, 1.0)):
    _shape = STATISTICS[_name]["mean"].shape
    STATISTICS[_name] |= {"min": torch.full(_shape, _least), "max": torch.full(_shape, _most)}
    STATISTICS[_name] |= {"q01": 0.9 * STATISTICS[_name]["min"], "q99": 0.9 * STATISTICS[_name]["max"]}

# The defaults of 0.4.4; those of 0.6 are to start from weights that torchvision would download.
UNTRAINED = {"pretrained_backbone_weights": None, "use_group_norm": True}


def features(side: int, cameras: tuple[str, ...] = (IMAGE,)) -> dict[str, Any]:
    return {
        "input_features": {
            **{camera: PolicyFeature(FeatureType.VISUAL, (3, side, side)) for camera in cameras},
            STATE: PolicyFeature(FeatureType.STATE, (4,)),
        },
        "output_features": {ACTION: PolicyFeature(FeatureType.ACTION, (4,))},
        "device": "cpu",
        "push_to_hub": False,
    }


def act_config(side: int, cameras: tuple[str, ...] = (IMAGE,), **settings: Any) -> ACTConfig:
    small = {
        "chunk_size": 10,
        "n_action_steps": 5,
        "dim_model": 64,
        "n_heads": 4,
        "dim_feedforward": 128,
        "n_encoder_layers": 1,
        "n_vae_encoder_layers": 1,
        "latent_dim": 8,
        "pretrained_backbone_weights": None,
    }
    return ACTConfig(**features(side, cameras), **{**small, **settings})


def diffusion_config(side: int, **settings: Any) -> DiffusionConfig:
    small = {
        "n_obs_steps": 2,
        "horizon": 8,
        "n_action_steps": 4,
        "down_dims": (32, 64),
        "diffusion_step_embed_dim": 16,
        "num_train_timesteps": 20,
        "num_inference_steps": 4,
        "spatial_softmax_num_keypoints": 8,
        "crop_shape": None,
        **UNTRAINED,
    }
    return DiffusionConfig(**features(side), **{**small, **settings})


def vqbet_config(side: int, **settings: Any) -> VQBeTConfig:
    small = {
        "n_obs_steps": 3,
        "n_action_pred_token": 2,
        "action_chunk_size": 3,
        "gpt_block_size": 32,
        "gpt_n_layer": 1,
        "gpt_n_head": 2,
        "gpt_hidden_dim": 32,
        "gpt_input_dim": 32,
        "gpt_output_dim": 32,
        "crop_shape": None,
        **UNTRAINED,
        "spatial_softmax_num_keypoints": 8,
        "vqvae_n_embed": 8,
        "vqvae_embedding_dim": 16,
        "vqvae_enc_hidden_dim": 16,
        "offset_loss_weight": 1.0,
    }
    return VQBeTConfig(**features(side), **{**small, **settings})


def tdmpc_config(side: int, **settings: Any) -> TDMPCConfig:
    small = {
        "horizon": 3,
        "latent_dim": 8,
        "mlp_dim": 16,
        "q_ensemble_size": 3,
        "image_encoder_hidden_dim": 8,
        "n_gaussian_samples": 24,
        "n_pi_samples": 4,
        "n_elites": 6,
        "cem_iterations": 2,
    }
    return TDMPCConfig(**features(side), **{**small, **settings})


def save(config: Any, folder: Path, *, seed: int = 0, statistics: dict[str, Any] = STATISTICS) -> Path:
    """What `lerobot-train` leaves behind, but that nothing was learned."""
    torch.manual_seed(seed)
    policy = get_policy_class(config.type)(config)
    # A network as it is initialised hardly reacts to what it sees; parity of such ones would say little.
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if parameter.ndim > 1 and "backbone" not in name:
                parameter.mul_(2.0)
                if not parameter.any():  # what is to grow in training only
                    parameter.normal_(std=0.02)
    policy.save_pretrained(folder)
    statistics = {**statistics, **{name: STATISTICS[IMAGE] for name in config.image_features}}
    for processor in make_pre_post_processors(config, dataset_stats=statistics):
        processor.save_pretrained(folder)
    return folder


def saving(configurations: Mapping[str, Callable[..., Any]], folder: Path) -> Callable[..., Path]:
    """A function that saves checkpoints by name, and by what their configuration is made with, each once."""
    folders: dict[str, Path] = {}

    def saved(name: str, *arguments: Any, **settings: Any) -> Path:
        key = repr((name, arguments, settings))
        if key not in folders:
            config = configurations[name](*arguments, **settings)
            folders[key] = save(config, folder / f"{name}-{len(folders)}" / "checkpoint")
        return folders[key]

    return saved
