"""Checkpoints that are PEFT adapters: what was learned, and the name of the weights that it was learned on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import act_config, save
from lerobot.configs.policies import PreTrainedConfig
from lerobot.envs.configs import MetaworldEnv
from lerobot.policies.factory import get_policy_class, make_policy, make_pre_post_processors
from safetensors.torch import load_file, save_file
from sessions import SIDE, alone, by_lerobot, load, together
from support import ROOT
from test_lerobot_policy import refusal

WITHOUT_PEFT = """
import sys
sys.modules["peft"] = None  # as where it is not installed
from sparring.policy_server.policies import load_policy
from sparring.protos.errors import UsageError
print(load_policy("lerobot:" + sys.argv[1], {"device": "cpu"}).spec.chunk_length)
try:
    load_policy("lerobot:" + sys.argv[2], {"device": "cpu"})
except UsageError as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(act_config(SIDE), tmp_path_factory.mktemp("base") / "checkpoint")


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `lerobot-train --peft.method_type=lora` leaves behind, but that nothing was learned."""
    folder = tmp_path_factory.mktemp("adapter") / "checkpoint"
    config = PreTrainedConfig.from_pretrained(base)
    config.pretrained_path = base
    policy: Any = get_policy_class(config.type).from_pretrained(base, config=config)
    adapted = policy.wrap_with_peft(peft_cli_overrides={"target_modules": r".*\.linear[12]", "r": 4})
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:  # zeros, as they are made: an adapter that adapts nothing
                parameter.normal_(std=0.3)
    adapted.save_pretrained(folder)
    adapted.config.save_pretrained(folder)
    for processor in make_pre_post_processors(config, pretrained_path=str(base)):
        processor.save_pretrained(folder)
    return folder


def test_an_adapter_does_what_it_does_in_lerobot(base: Path, adapter: Path) -> None:
    config = PreTrainedConfig.from_pretrained(adapter)
    config.pretrained_path = adapter
    theirs = make_policy(config, env_cfg=MetaworldEnv(task="reach-v3"), rename_map={"": ""}).eval()
    policy = load(adapter)
    ours = alone(policy, 7)
    np.testing.assert_allclose(ours, by_lerobot(adapter, 7, policy=theirs), rtol=1e-6, atol=1e-6)
    assert not np.allclose(ours, alone(load(base), 7), atol=0.01), "an adapter that changes nothing would prove nothing"
    sentences = ["Reach a goal position"] * 2
    np.testing.assert_allclose(together(policy, (7, 8), sentences), [ours, alone(policy, 8)], atol=1e-4)
    assert policy.checkpoint_sha256 != load(base).checkpoint_sha256


def test_the_weights_that_are_adapted_are_hashed_too(base: Path, adapter: Path, tmp_path: Path) -> None:
    """Or a run would be resumed, and replicas compared, as if it did not matter what is adapted."""
    folder, other = Path(shutil.copytree(adapter, tmp_path / "a")), Path(shutil.copytree(base, tmp_path / "b"))
    before = load(adapter).checkpoint_sha256
    settings = (folder / "adapter_config.json").read_text()
    (folder / "adapter_config.json").write_text(settings.replace(str(base), str(other)))
    copied = load(folder).checkpoint_sha256
    weights = load_file(other / "model.safetensors")
    save_file({name: value * 1.5 for name, value in weights.items()}, other / "model.safetensors")
    assert len({before, copied, load(folder).checkpoint_sha256}) == 3


def test_an_adapter_whose_base_is_gone(adapter: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    settings = (folder / "adapter_config.json").read_text()
    named = next(line for line in settings.splitlines() if "base_model_name_or_path" in line)
    (folder / "adapter_config.json").write_text(
        settings.replace(named, f'  "base_model_name_or_path": "{tmp_path}/gone",')
    )
    assert f"there is no folder '{tmp_path}/gone'" in refusal(folder)
    (folder / "adapter_model.safetensors").unlink()
    assert "has no adapter_model.safetensors" in refusal(folder)


@pytest.mark.everything
def test_without_peft_only_adapters_are_refused(base: Path, adapter: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PEFT, str(base), str(adapter)],
        cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.stdout == "5\n", done.stderr
    assert done.stderr.rstrip().endswith(
        f"{str(adapter)!r} is a PEFT adapter, and peft is not installed: pip install peft."
    )
