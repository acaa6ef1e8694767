"""Tiny models of the real classes behind LeRobot's language-conditioned policies, with random weights.

The real ones are put together from parts that lie on a hub: tokenizers, image processors, configurations of the models
underneath. Here the same parts are made small and put where a download would have put them, in the hub's cache of the
tests (`HF_HOME`, see conftest.py), so that LeRobot's own code finds them by the names that it has for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from checkpoints import features

LEROBOT = tuple(int(part) for part in version("lerobot").split(".")[:2])
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIDE = 64
PALIGEMMA, FAST, COSMOS = "google/paligemma-3b-pt-224", "lerobot/fast-action-tokenizer", "nvidia/Cosmos-Reason2-2B"


def in_cache(name: str) -> Path:
    """Where the hub's cache has a repository's files; made if it is not there."""
    repository = Path(os.environ["HF_HOME"]) / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    if not snapshot.exists():
        snapshot.mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(COMMIT)
    return snapshot


def tokenizer(**special: str) -> Any:
    """One token per byte, and the special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = ["<pad>", "<bos>", "<eos>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytes_only = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[], unk_token="<unk>")
    )
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bytes_only,
        pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", extra_special_tokens=special,
    )  # fmt: skip


# ------------------------------------------------------------------------------------ SmolVLA


def smolvlm() -> str:
    """A SmolVLM: weights, configuration, tokenizer, image processor."""
    from transformers import (
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    folder = in_cache("tests/tiny-smolvlm")
    if not (folder / "config.json").exists():
        words = tokenizer(
            image_token="<image>",
            fake_image_token="<fake_token_around_image>",
            global_image_token="<global-img>",
            end_of_utterance_token="<end_of_utterance>",
        )
        template = "{{ messages }}"
        SmolVLMProcessor(
            SmolVLMImageProcessor(), words, SmolVLMVideoProcessor(), image_seq_len=4, chat_template=template
        ).save_pretrained(folder)
        config = SmolVLMConfig(
            image_token_id=words.convert_tokens_to_ids("<image>"),
            scale_factor=2,
            pad_token_id=0,
            vision_config={
                "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
                "image_size": 32, "patch_size": 8,
            },
            text_config={
                "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
                "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": len(words),
                "pad_token_id": 0,
            },
        )  # fmt: skip
        torch.manual_seed(0)
        SmolVLMForConditionalGeneration(config).save_pretrained(folder)
    return str(folder)


def smolvla_config(cameras: tuple[str, ...] = ("observation.image",), side: int = SIDE, **settings: Any) -> Any:
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig

    small = {
        "vlm_model_name": smolvlm(),
        "load_vlm_weights": False,
        "resize_imgs_with_padding": (32, 32),
        "chunk_size": 6,
        "n_action_steps": 4,
        "max_state_dim": 8,
        "max_action_dim": 8,
        "num_steps": 3,
        "num_vlm_layers": 2,
        "pad_language_to": "max_length",
    }
    return SmolVLAConfig(**{**features(side, cameras), **small, **settings})


# ------------------------------------------------------------------------------------ pi0, pi0.5, pi0-FAST

_WIDTH, _DEPTH, _VOCABULARY = 32, 2, 260
_PI = ("pi0.modeling_pi0", "pi05.modeling_pi05", "pi0_fast.modeling_pi0_fast")


@contextmanager
def tiny_gemmas() -> Iterator[None]:
    """Lets LeRobot build the pi family from small parts.

    Its sizes cannot be chosen: a configuration names one of two Gemmas of a table, and vocabulary and image encoder are
    written into the constructor. The table is replaced, and the sizes that it does not have are replaced in what
    the constructor passes on; the classes, and everything that they compute, are LeRobot's.
    """

    def small(build: Callable[..., Any]) -> Callable[..., Any]:
        def built(config: Any) -> Any:
            text = getattr(config, "text_config", config)
            text.vocab_size = _VOCABULARY
            if hasattr(config, "vision_config"):
                config.image_token_index = config._vocab_size = _VOCABULARY - 1
                for name, value in {
                    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
                    "image_size": 28, "patch_size": 14, "projection_dim": _WIDTH,
                }.items():  # fmt: skip
                    setattr(config.vision_config, name, value)
            return build(config=config)

        return built

    gemma = SimpleNamespace(width=_WIDTH, depth=_DEPTH, mlp_dim=64, num_heads=2, num_kv_heads=1, head_dim=16)
    with ExitStack() as stack:
        for name in _PI:
            module = import_module(f"lerobot.policies.{name}")
            replaced: dict[str, Any] = {"get_gemma_config": lambda variant: gemma}
            for builder in ("PaliGemmaForConditionalGenerationWithPiGemma", "PiGemmaForCausalLM"):
                if hasattr(module, builder):
                    replaced[builder] = small(getattr(module, builder))
            stack.enter_context(mock.patch.multiple(module, **replaced))
        yield


def paligemma_tokenizer() -> None:
    folder = in_cache(PALIGEMMA)
    if not (folder / "tokenizer.json").exists():
        tokenizer().save_pretrained(folder)
        (folder / "config.json").write_text("{}")


_FAST_CODE = '''
from transformers import AutoTokenizer
from transformers.processing_utils import ProcessorMixin


class TinyFast(ProcessorMixin):
    """Actions as text: a token is a character, and its number is a coefficient."""

    attributes = ["bpe_tokenizer"]
    bpe_tokenizer_class = "AutoTokenizer"

    def __init__(self, bpe_tokenizer=None, scale=100.0, min_token=-386):
        super().__init__(bpe_tokenizer)
        self.bpe_tokenizer, self.scale, self.min_token = bpe_tokenizer, scale, min_token

    @classmethod
    def from_pretrained(cls, folder, **_):
        return cls(AutoTokenizer.from_pretrained(folder))
'''


def fast_tokenizer() -> None:
    """A tokenizer of actions; the real one is code on the hub, too."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    folder = in_cache(FAST)
    if (folder / "processor_config.json").exists():
        return
    letters = Tokenizer(models.BPE(vocab={chr(256 + i): i for i in range(_VOCABULARY)}, merges=[]))
    letters.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=letters).save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    (folder / "processing_tiny_fast.py").write_text(_FAST_CODE)
    (folder / "processor_config.json").write_text(
        json.dumps({"processor_class": "TinyFast", "auto_map": {"AutoProcessor": "processing_tiny_fast.TinyFast"}})
    )


_SMALL_PI: dict[str, Any] = {
    "image_resolution": (28, 28),
    "chunk_size": 6,
    "n_action_steps": 4,
    "max_state_dim": 8,
    "max_action_dim": 8,
}


def pi0_config(cameras: tuple[str, ...] = ("observation.image",), **settings: Any) -> Any:
    from lerobot.policies.pi0.configuration_pi0 import PI0Config

    paligemma_tokenizer()
    return PI0Config(**features(SIDE, cameras), **{**_SMALL_PI, "num_inference_steps": 3, **settings})


def pi05_config(cameras: tuple[str, ...] = ("observation.image",), **settings: Any) -> Any:
    from lerobot.policies.pi05.configuration_pi05 import PI05Config

    paligemma_tokenizer()
    return PI05Config(**features(SIDE, cameras), **{**_SMALL_PI, "num_inference_steps": 3, **settings})


def pi0_fast_config(cameras: tuple[str, ...] = ("observation.image",), **settings: Any) -> Any:
    from lerobot.policies.pi0_fast.configuration_pi0_fast import PI0FastConfig

    paligemma_tokenizer()
    fast_tokenizer()
    small = {
        "max_decoding_steps": 24,
        "tokenizer_max_length": 80,
        "fast_skip_tokens": 0,
        # Random weights do not begin their sentences with "Action: ".
        "validate_action_token_prefix": False,
    }
    return PI0FastConfig(**features(SIDE, cameras), **{**_SMALL_PI, **small, **settings})


# ------------------------------------------------------------------------------------ GR00T N1.7

_QWEN_TOKENS = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
}
_QWEN_IDS = [f"{name}_id" for name in _QWEN_TOKENS]
_TEMPLATE = (
    "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def qwen3_vl() -> str:
    """A Qwen3-VL: its configuration; and, by the name that LeRobot has for it, its tokenizer and processors."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLVideoProcessor

    folder = in_cache("tests/tiny-qwen3-vl")
    if (folder / "config.json").exists():
        return str(folder)
    words = tokenizer(**_QWEN_TOKENS)
    words.chat_template = _TEMPLATE
    parts = in_cache(COSMOS)
    words.save_pretrained(parts)
    size = {"shortest_edge": 32 * 32, "longest_edge": 256 * 256}
    Qwen2VLImageProcessor(patch_size=16, merge_size=2, temporal_patch_size=2, size=size).save_pretrained(parts)
    Qwen3VLVideoProcessor(patch_size=16).save_pretrained(parts)
    (parts / "config.json").write_text("{}")
    Qwen3VLConfig(
        **{name: words.convert_tokens_to_ids(_QWEN_TOKENS[name.removesuffix("_id")]) for name in _QWEN_IDS},
        text_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 16, "vocab_size": len(words), "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32,
            "patch_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
        },
    ).save_pretrained(folder)  # fmt: skip
    return str(folder)


def groot_base(*, relative: bool = False) -> str:
    """What NVIDIA's repository of a base model has: its weights, and how it wants its images."""
    from lerobot.policies.groot.groot_n1_7 import GR00TN17, GR00TN17Config

    folder = in_cache(f"tests/tiny-gr00t{'-relative' if relative else ''}")
    if (folder / "config.json").exists():
        return str(folder)
    config = GR00TN17Config(
        model_name=qwen3_vl(),
        model_dtype="float32",
        dtype="float32",
        backbone_embedding_dim=32,
        select_layer=2,
        max_state_dim=8,
        max_action_dim=8,
        action_horizon=6,
        hidden_size=32,
        input_embedding_dim=32,
        max_seq_len=64,
        diffusion_model_cfg={
            "positional_embeddings": None, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16,
            "norm_type": "ada_norm", "dropout": 0.2, "final_dropout": True, "output_dim": 32,
            "interleave_self_attention": True,
        },
        vl_self_attention_cfg={
            "positional_embeddings": None, "num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 16,
            "dropout": 0.2, "final_dropout": True,
        },
        max_num_embodiments=32,
    )  # fmt: skip
    torch.manual_seed(0)
    GR00TN17(config, load_backbone_weights=False).save_pretrained(folder)
    processing: dict[str, Any] = {"image_target_size": [64, 64], "image_crop_size": [60, 60]}
    if relative:
        steps = list(range(config.action_horizon))
        action = {"rep": "relative", "type": "non_eef", "format": "default", "state_key": "arm"}
        processing |= {
            "use_relative_action": True,
            "modality_configs": {
                "new_embodiment": {
                    "state": {"modality_keys": ["arm"], "delta_indices": [0]},
                    "action": {"modality_keys": ["arm"], "delta_indices": steps, "action_configs": [action]},
                }
            },
        }
        spread = {"mean": [0.0] * 4, "std": [0.5] * 4, "min": [-1.0] * 4, "max": [1.0] * 4}
        sizes = {"mean": 0.0, "std": 0.05, "min": -0.1, "max": 0.1}
        by_step = {name: [[size * (k + 1)] * 4 for k in steps] for name, size in sizes.items()}
        statistics = {"state": {"arm": spread}, "action": {"arm": spread}, "relative_action": {"arm": by_step}}
        (folder / "statistics.json").write_text(json.dumps({"new_embodiment": statistics}))
    (folder / "processor_config.json").write_text(json.dumps({"processor_kwargs": processing}))
    return str(folder)


def groot_config(cameras: tuple[str, ...] = ("observation.image",), *, relative: bool = False, **settings: Any) -> Any:
    from lerobot.policies.groot.configuration_groot import GrootConfig

    small = {
        "base_model_path": groot_base(relative=relative),
        "chunk_size": 6,
        "n_action_steps": 4,
        "max_state_dim": 8,
        "max_action_dim": 8,
    }
    return GrootConfig(**features(SIDE, cameras), **{**small, **settings})


# ------------------------------------------------------------------------------------ Multi-Task DiT


def clip() -> str:
    from transformers import CLIPConfig, CLIPModel

    folder = in_cache("tests/tiny-clip")
    if not (folder / "config.json").exists():
        words = tokenizer()
        words.save_pretrained(folder)
        small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = CLIPConfig(
            text_config={**small, "vocab_size": len(words), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
            vision_config={**small, "image_size": 32, "patch_size": 8},
            projection_dim=32,
        )
        torch.manual_seed(0)
        CLIPModel(config).save_pretrained(folder)
    return str(folder)


def multi_task_dit_config(cameras: tuple[str, ...] = ("observation.image",), **settings: Any) -> Any:
    from lerobot.policies.multi_task_dit.configuration_multi_task_dit import MultiTaskDiTConfig

    small = {
        "horizon": 8,
        "n_action_steps": 4,
        "num_train_timesteps": 20,
        "num_inference_steps": 3,
        "num_integration_steps": 3,
        "hidden_dim": 32,
        "num_layers": 2,
        "num_heads": 2,
        "timestep_embed_dim": 16,
        "vision_encoder_name": clip(),
        "text_encoder_name": clip(),
        "image_resize_shape": (32, 32),
        "image_crop_shape": None,
    }
    return MultiTaskDiTConfig(**features(SIDE, cameras), **{**small, **settings})


# ------------------------------------------------------------------------------------ EO-1


def qwen25_vl() -> str:
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
    )

    folder = in_cache("tests/tiny-qwen2.5-vl")
    if (folder / "config.json").exists():
        return str(folder)
    words = tokenizer(**_QWEN_TOKENS)
    Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(), words, Qwen2VLVideoProcessor(), chat_template=_TEMPLATE
    ).save_pretrained(folder)
    config = Qwen2_5_VLConfig(
        **{name: words.convert_tokens_to_ids(_QWEN_TOKENS[name.removesuffix("_id")]) for name in _QWEN_IDS},
        text_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "vocab_size": len(words) + 16, "pad_token_id": 0, "dtype": "float32",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32,
            "fullatt_block_indexes": [1], "window_size": 56,
        },
        dtype="float32",
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    return str(folder)


def eo1_config(cameras: tuple[str, ...] = ("observation.image",), **settings: Any) -> Any:
    from lerobot.policies.eo1.configuration_eo1 import EO1Config

    small = {
        "vlm_base": qwen25_vl(),
        "image_min_pixels": 56 * 56,
        "image_max_pixels": 56 * 56,
        "chunk_size": 6,
        "n_action_steps": 4,
        "max_state_dim": 8,
        "max_action_dim": 8,
        "num_denoise_steps": 3,
    }
    return EO1Config(**features(SIDE, cameras), **{**small, **settings})
