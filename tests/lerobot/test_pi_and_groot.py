"""What only the pi family and GR00T have: loaders that go on without weights, relative actions, a dtype."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import save
from safetensors.torch import load_file, save_file
from sessions import STEPS, alone, by_lerobot, film, load
from tiny_models import LEROBOT, groot_config, pi0_config, pi0_fast_config, pi05_config, tiny_gemmas

from sparring.protos.errors import UsageError

if LEROBOT < (0, 6):
    pytest.skip("needs LeRobot 0.6, which the tests' other environment has", allow_module_level=True)

PI = {"pi0": pi0_config, "pi05": pi05_config, "pi0_fast": pi0_fast_config}


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with tiny_gemmas():
        yield


@pytest.mark.parametrize("name", PI)
def test_weights_that_lerobots_loader_would_leave_out(name: str, tmp_path: Path) -> None:
    """LeRobot prints a warning and goes on with random weights."""
    folder = save(PI[name](), tmp_path / "checkpoint")
    weights = load_file(folder / "model.safetensors")
    lost = next(key for key in weights if "q_proj" in key)
    save_file({key: value for key, value in weights.items() if key != lost}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=rf"do not fit its config.json .*{lost}.*strict=false"):
        load(folder)
    load(folder, strict=False)
    save_file({**weights, lost: torch.zeros(3, 3)}, folder / "model.safetensors")
    with pytest.raises(UsageError, match="size mismatch"):
        load(folder)
    with pytest.raises(UsageError, match="size mismatch"):
        load(folder, strict=False)


def test_weights_that_are_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(pi0_config(), tmp_path / "checkpoint")

    def failing(*_: Any, **__: Any) -> None:
        raise OSError("the disk is on fire")

    monkeypatch.setattr("safetensors.torch.load_file", failing)  # which LeRobot catches, and goes on
    with pytest.raises(UsageError, match="LeRobot's loader has not loaded them"):
        load(folder)


def test_names_of_weights_that_lerobots_loader_knows(tmp_path: Path) -> None:
    """Checkpoints that were converted from openpi's have names without a prefix."""
    folder = save(pi0_config(), tmp_path / "checkpoint")
    expected = alone(load(folder), 7)
    weights = load_file(folder / "model.safetensors")
    save_file({key.removeprefix("model."): value for key, value in weights.items()}, folder / "model.safetensors")
    assert alone(load(folder), 7).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", PI)
def test_a_checkpoint_in_half_precision_stays_in_it(name: str, tmp_path: Path) -> None:
    folder = save(PI[name](dtype="bfloat16"), tmp_path / "checkpoint")
    policy = load(folder)
    assert {parameter.dtype for parameter in policy._module.parameters()} == {torch.bfloat16, torch.float32}
    np.testing.assert_allclose(alone(policy, 7), by_lerobot(folder, 7), rtol=1e-6, atol=1e-6)
    exact = load(folder, dtype="float32")
    assert {parameter.dtype for parameter in exact._module.parameters()} == {torch.float32}
    with pytest.raises(UsageError, match="float16"):
        load(folder, dtype="float16")


@pytest.mark.parametrize("name", PI)
def test_relative_actions_are_relative_to_what_the_chunk_was_planned_from(name: str, tmp_path: Path) -> None:
    names = {"action_feature_names": ["x", "y", "z", "gripper"]}
    relative = save(PI[name](use_relative_actions=True, **names), tmp_path / "relative")
    absolute = save(PI[name](**names), tmp_path / "absolute")
    difference = alone(load(relative), 7) - alone(load(absolute), 7)
    states = [frame["observation.state"] for frame in film(7)]
    for step in range(STEPS):
        np.testing.assert_allclose(difference[step, :3], states[step // 4 * 4][:3], atol=1e-5)
        assert abs(difference[step, 3]) < 1e-5


def test_groots_relative_actions_are_decoded_as_a_chunk(tmp_path: Path) -> None:
    """LeRobot's select_action() refuses these; its other rollouts decode the chunk right after it was predicted."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    folder = save(groot_config(relative=True), tmp_path / "checkpoint")
    config = PreTrainedConfig.from_pretrained(folder)
    policy = get_policy_class("groot").from_pretrained(folder, config=config)
    pre, post = make_pre_post_processors(config, pretrained_path=str(folder))
    torch.manual_seed(7)
    expected = []
    for frame in film(7)[::4]:
        image = torch.from_numpy(frame["observation.image"])[None].permute(0, 3, 1, 2).float() / 255
        state = torch.from_numpy(frame["observation.state"])[None]
        batch = pre({"observation.image": image, "observation.state": state, "task": ["Reach a goal position"]})
        with torch.inference_mode():
            expected.extend(post(policy.predict_action_chunk(batch)[:, :4])[0].float().numpy())
    ours = load(folder)
    np.testing.assert_allclose(alone(ours, 7), expected[:STEPS], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(alone(ours, 7), expected[:STEPS], rtol=1e-6, atol=1e-6)


def test_steps_that_were_saved_for_another_device(tmp_path: Path) -> None:
    folder = save(groot_config(), tmp_path / "checkpoint")
    expected = alone(load(folder), 7)
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    processor = moved / "policy_preprocessor.json"
    text = processor.read_text()
    assert text.count('"device": "cpu"') == 2
    processor.write_text(text.replace('"device": "cpu"', '"device": "cuda:7"'))
    assert alone(load(moved), 7).tobytes() == expected.tobytes()
