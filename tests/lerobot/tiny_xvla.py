"""X-VLA checkpoints of a few thousand random weights, with a tokenizer of a few words beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from checkpoints import ACTION, STATE
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.xvla.configuration_xvla import XVLAConfig

IMAGES = ("observation.images.image", "observation.images.image2")
SENTENCES = ("put the bowl on the plate", "open the top drawer", "turn on the stove")
TRAINED_ONLY = {"xvla_image_to_float", "xvla_imagenet_normalize", "xvla_add_domain_id"}
"""Steps of a pre-processor that lerobot-train saves, and that published checkpoints for LIBERO lack."""


def xvla_config(side: int, cameras: tuple[str, ...] = IMAGES, *, size: int = 20, **settings: Any) -> XVLAConfig:
    words = len(_vocabulary())
    small: dict[str, Any] = {
        "chunk_size": 6,
        "n_action_steps": 4,
        "hidden_size": 32,
        "depth": 2,
        "num_heads": 4,
        "num_domains": 4,
        "len_soft_prompts": 4,
        "dim_time": 16,
        "max_len_seq": 96,
        "max_state_dim": 20,
        "num_denoising_steps": 3,
        "tokenizer_max_length": 12,
        "florence_config": {
            "projection_dim": 32,
            "vocab_size": words,
            "pad_token_id": 1,
            "vision_config": {
                "dim_embed": [8, 16, 16, 32],
                "num_heads": [1, 2, 2, 4],
                "num_groups": [1, 2, 2, 4],
                "depths": [1, 1, 1, 1],
                "window_size": 4,
                "projection_dim": 32,
                "image_pos_embed": {"type": "learned_abs_2d", "max_pos_embeddings": 50},
            },
            "text_config": {
                "vocab_size": words,
                "d_model": 32,
                "encoder_layers": 1,
                "encoder_ffn_dim": 64,
                "encoder_attention_heads": 4,
                "decoder_layers": 1,
                "decoder_ffn_dim": 64,
                "decoder_attention_heads": 4,
                "max_position_embeddings": 96,
            },
        },
    }
    return XVLAConfig(
        input_features={
            **{camera: PolicyFeature(FeatureType.VISUAL, (3, side, side)) for camera in cameras},
            STATE: PolicyFeature(FeatureType.STATE, (8,)),  # of the published ones, though they are shown twenty
        },
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (size,))},
        device="cpu",
        push_to_hub=False,
        **{**small, **settings},
    )


def save_xvla(config: XVLAConfig, folder: Path, *, published: bool = True, seed: int = 0) -> Path:
    """A checkpoint as it was published for LIBERO, or as lerobot-train leaves it behind."""
    torch.manual_seed(seed)
    policy = get_policy_class("xvla")(config)
    # As they are initialised the weights hardly let through what is seen; parity of such ones would say little.
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.25)
    policy.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    config.tokenizer_name = str(folder)
    pre, post = make_pre_post_processors(config)
    if published:
        pre.steps = [step for step in pre.steps if type(step)._registry_name not in TRAINED_ONLY]
    pre.save_pretrained(folder)
    post.save_pretrained(folder)
    return folder


def _vocabulary() -> dict[str, int]:
    words = dict.fromkeys(" ".join(SENTENCES).split())
    return {word: number for number, word in enumerate(("<s>", "<pad>", "</s>", "<unk>", *words))}


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(_vocabulary(), unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>")
