"""A LeRobot checkpoint as a policy: what it needs, what it answers, whose memory is whose, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_vla
import torch
from checkpoints import act_config, diffusion_config, features, save, saving, vqbet_config
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import make_pre_post_processors
from sessions import IMAGE, LOOKS, OFFER, SIDE, STATE, STEPS, alone, by_lerobot, load, together
from support import sampled
from tiny_vla import TinyVLAConfig

from sparring.policy_server.policies._lerobot.episode_rng import EpisodeRng, Unsplittable
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer, SpecMismatch, TensorSpec

CONFIGS: dict[str, Callable[[], Any]] = {
    "act": lambda: act_config(SIDE),
    "act-ensembling": lambda: act_config(SIDE, n_action_steps=1, temporal_ensemble_coeff=0.01),
    "diffusion": lambda: diffusion_config(SIDE),
    "diffusion-ddim": lambda: diffusion_config(SIDE, noise_scheduler_type="DDIM", n_obs_steps=3, n_action_steps=2),
    "vqbet": lambda: vqbet_config(SIDE),
    "tiny_vla": lambda: TinyVLAConfig(**features(SIDE)),
    "tiny_vla-odd": lambda: TinyVLAConfig(**features(SIDE), odd_draws=True),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return saving(CONFIGS, tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture
def copied(saved: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A checkpoint of one's own, to spoil."""
    return lambda name: Path(shutil.copytree(saved(name), tmp_path / name))


# ------------------------------------------------------------------------------------ the same numbers as LeRobot's


@pytest.mark.parametrize("name", CONFIGS)
def test_a_session_alone_does_what_select_action_does(name: str, saved: Any) -> None:
    policy, theirs = load(saved(name)), by_lerobot(saved(name), 7)
    assert policy.warnings == [], "it was tried out, and found to remember nothing but queues"
    ours = alone(policy, 7)
    policy.in_training = True  # as evaluate() has it, without inference mode
    assert alone(policy, 7).tobytes() == ours.tobytes()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.ptp(theirs, axis=0).max() > 0.05, "a policy that always does the same would prove nothing"


@pytest.mark.parametrize("name", CONFIGS)
def test_sessions_that_share_batches_do_what_they_do_alone(name: str, saved: Any) -> None:
    policy = load(saved(name))
    sentences = ["Open a door", "Press a button", "Reach a goal position"]
    expected = [alone(policy, seed, sentence) for seed, sentence in zip((1, 2, 3), sentences, strict=True)]
    assert not np.allclose(expected[0], expected[1], atol=1e-3)
    # The last bits depend on how many rows a batch has; with another session's memory or numbers it would be the first.
    np.testing.assert_allclose(together(policy, (1, 2, 3), sentences), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["diffusion", "tiny_vla-odd"])
def test_a_program_that_trains_keeps_its_own_random_numbers(name: str, saved: Any) -> None:
    """Made and used in a training process, it draws, and so does LeRobot, but not what training would have drawn."""
    folder = saved(name)
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    policy = load(folder)
    policy.warm_up()
    together(policy, (1, 2, 3), ["Open a door"] * 3)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("name", sampled(["act-ensembling", "diffusion", "vqbet", "tiny_vla"], "diffusion", "tiny_vla"))
def test_in_deterministic_mode_they_do_exactly_that(name: str, saved: Any) -> None:
    policy = load(saved(name), deterministic=True, pad_to=4)
    try:
        expected = [alone(policy, seed) for seed in (1, 2, 3)]
        mixed = together(policy, (1, 2, 3), ["Reach a goal position"] * 3)
    finally:
        torch.use_deterministic_algorithms(False)
    assert np.asarray(mixed).tobytes() == np.asarray(expected).tobytes()


def test_the_sentence_and_never_the_name_reaches_the_policy(saved: Any) -> None:
    policy = load(saved("tiny_vla"))
    tiny_vla.HEARD.clear()
    alone(policy, 1, "Open a door with a revolving joint")
    assert set(tiny_vla.HEARD) == {"Open a door with a revolving joint"}
    assert {type(sentence) for sentence in tiny_vla.HEARD} == {str}


def test_draws_that_cannot_be_taken_apart_are_made_row_by_row(saved: Any, caplog: pytest.LogCaptureFixture) -> None:
    policy = load(saved("tiny_vla-odd"))
    with caplog.at_level(logging.WARNING):
        together(policy, (1, 2, 3), ["Reach a goal position"] * 3)
    assert "draws its random numbers for the batch as a whole; going on with at most 1" in caplog.text


@pytest.mark.skipif(
    importlib.util.find_spec("lerobot.processor.relative_action_processor") is None,
    reason="LeRobot 0.4 has no relative actions",
)
def test_relative_actions_are_relative_to_what_the_chunk_was_planned_from(copied: Any) -> None:
    from lerobot.processor import AbsoluteActionsProcessorStep, RelativeActionsProcessorStep

    folder = copied("act")
    pre, post = make_pre_post_processors(PreTrainedConfig.from_pretrained(folder), pretrained_path=str(folder))
    pre.steps.insert(0, RelativeActionsProcessorStep(enabled=True))
    post.steps.append(AbsoluteActionsProcessorStep(enabled=True))
    for processor in (pre, post):
        processor.save_pretrained(folder)
    policy = load(folder)
    ours = [alone(policy, seed) for seed in (1, 2, 3)]
    np.testing.assert_allclose(ours[0], by_lerobot(folder, 1, every=policy.spec.chunk_length), rtol=1e-6, atol=1e-6)
    assert not np.allclose(ours[0], by_lerobot(folder, 1), atol=0.05), "LeRobot's own loop adds the state of each step"
    np.testing.assert_allclose(together(policy, (1, 2, 3), ["Reach a goal position"] * 3), ours, atol=1e-4)
    edit(folder, n_action_steps=1)
    np.testing.assert_allclose(alone(load(folder), 1), by_lerobot(folder, 1), rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------------------------ random numbers


def generators(count: int) -> list[Any]:
    return [torch.Generator().manual_seed(seed) for seed in range(count)]


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: torch.randn(n, 5, 4),
        lambda n: torch.randn((n, 5, 4), dtype=torch.float64),
        lambda n: torch.randn(size=(n, 20), device="cpu"),
        lambda n: torch.rand(n, 5),
        lambda n: torch.randn_like(torch.zeros(n, 17)),
        lambda n: torch.rand_like(torch.zeros(n, 3)),
        lambda n: torch.randint(0, 100, (n, 6)),
        lambda n: torch.randint(high=100, size=(n, 6)),
        lambda n: torch.normal(mean=0.0, std=1.0, size=(n, 32)),
        lambda n: torch.normal(torch.zeros(n, 20), torch.ones(n, 20)),
        lambda n: torch.multinomial(torch.ones(n, 50), 5),
        lambda n: torch.multinomial(torch.ones(n * 3, 50), 1).reshape(n, 3),
        lambda n: torch.empty(n, 20).normal_(),
        lambda n: torch.empty(n, 20).uniform_(2, 3),
        lambda n: torch.distributions.Normal(torch.zeros(n, 20), 1.0).sample(),
        lambda n: torch.distributions.Categorical(logits=torch.zeros(n, 9)).sample(),
        lambda n: torch.stack([torch.randn(n, 4), torch.rand(n, 4)], 1),
    ],
)
def test_each_row_draws_what_it_would_draw_alone(draw: Callable[[int], Any]) -> None:
    rng, many = EpisodeRng(torch.device("cpu")), generators(3)
    before = torch.get_rng_state()
    drawn = [rng.run(lambda: draw(3), many) for _ in range(2)]
    expected = []
    for seed in range(3):
        torch.manual_seed(seed)
        expected.append([draw(1), draw(1)])
    for row in range(3):
        for turn in range(2):
            assert torch.equal(drawn[turn][row], expected[row][turn][0]), (row, turn)
    torch.set_rng_state(before)
    (one,) = alone = generators(1)
    assert torch.equal(rng.run(lambda: draw(1), alone)[0], expected[0][0][0])
    assert torch.equal(torch.get_rng_state(), before), "nobody else's generator has moved"
    assert not torch.equal(one.get_state(), torch.Generator().manual_seed(0).get_state())


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randn(7),
        lambda: torch.randperm(3),
        lambda: torch.bernoulli(torch.full((3,), 0.5)),
        lambda: torch.nn.functional.dropout(torch.ones(3, 9), 0.5),
    ],
)
def test_a_draw_that_cannot_be_taken_apart_is_noticed(draw: Callable[[], Any]) -> None:
    rng, many = EpisodeRng(torch.device("cpu")), generators(3)
    with pytest.raises(Unsplittable):
        rng.run(draw, many)
    assert rng.row_by_row
    for seed, generator in enumerate(many):
        assert torch.equal(generator.get_state(), torch.Generator().manual_seed(seed).get_state())


# ------------------------------------------------------------------------------------ what it needs


def test_the_spec_comes_from_the_configuration(saved: Any) -> None:
    spec = load(saved("diffusion")).spec
    assert spec.named == {IMAGE: TensorSpec("uint8", (SIDE, SIDE, 3)), STATE: TensorSpec(None, (4,))}
    assert (spec.action_dim, spec.chunk_length, spec.history) == (4, 4, 2)
    assert load(saved("vqbet")).spec.chunk_length == 3
    assert load(saved("act-ensembling")).spec.chunk_length == 1
    spec.settle(OFFER)


def test_fields_of_the_configuration_can_be_replaced(saved: Any) -> None:
    assert load(saved("act"), n_action_steps=7).spec.chunk_length == 7
    assert len(alone(load(saved("act"), n_action_steps=7), 1)) == STEPS
    ensembling = load(saved("act"), n_action_steps=1, temporal_ensemble_coeff=0.01)
    np.testing.assert_allclose(alone(ensembling, 1), by_lerobot(saved("act-ensembling"), 1), rtol=1e-6, atol=1e-6)
    with pytest.raises(UsageError, match=r"unknown argument .* 'n_action_step'.*'n_action_steps'"):
        load(saved("act"), n_action_step=7)
    with pytest.raises(UsageError, match=r"cannot be used with n_action_steps=11: .*chunk_size"):
        load(saved("act"), n_action_steps=11)
    with pytest.raises(UsageError, match=r"cannot be used with n_action_steps='many'"):
        load(saved("act"), n_action_steps="many")


def test_loading_leaves_no_file_behind(saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved("act")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    load(folder)
    assert tempfile.gettempdir() == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def two_cameras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cameras = ("observation.images.camera1", "observation.images.camera2")
    return save(act_config(SIDE, cameras), tmp_path_factory.mktemp("cameras") / "checkpoint")


def test_cameras_are_renamed_and_left_empty(two_cameras: Path) -> None:
    policy = load(two_cameras, rename={"camera1": IMAGE}, empty=["camera2"])
    assert set(policy.spec.named) == {IMAGE, STATE}
    black = alone(policy, 1)
    both = load(two_cameras, rename={"camera1": IMAGE, "observation.images.camera2": IMAGE})
    assert not np.allclose(alone(both, 1), black, atol=1e-4)
    with pytest.raises(UsageError, match=r"'camera3'.*It looks at: observation.images.camera1"):
        load(two_cameras, rename={"camera3": IMAGE})
    with pytest.raises(UsageError, match="both renamed and said to be empty"):
        load(two_cameras, rename={"camera1": IMAGE}, empty=["camera1"])
    with pytest.raises(UsageError, match="rename must map"):
        load(two_cameras, rename="camera1")


def test_liberos_own_camera_names_mean_the_images_that_checkpoints_know(two_cameras: Path) -> None:
    policy = load(two_cameras, rename={"camera1": "agentview_image", "camera2": "robot0_eye_in_hand_image"})
    assert {"observation.images.image", "observation.images.image2"} < set(policy.spec.named)


def test_a_benchmark_that_does_not_fit_is_answered_with_the_flags_that_would_help(two_cameras: Path) -> None:
    larger = Offer(
        {IMAGE: TensorSpec("uint8", (480, 480, 3)), "wrist": TensorSpec("uint8", (SIDE, SIDE, 3)), STATE: LOOKS[STATE]},
        action_low=(-1.0,) * 4,
        action_high=(1.0,) * 4,
    )
    with pytest.raises(SpecMismatch) as caught:
        load(two_cameras).spec.settle(larger)
    for part in (
        "--rename observation.images.camera1=wrist",
        f"--rename observation.images.camera2={IMAGE}",
        f"--benchmark-arg resolution={SIDE}",
        "policy needs",
        "not offered",
    ):
        assert part in caught.value.told(FLAGS)
    with pytest.raises(SpecMismatch) as caught:
        load(two_cameras, rename={"camera1": IMAGE, "camera2": "wrist"}).spec.settle(larger)
    assert f"try --benchmark-arg resolution={SIDE}:" in caught.value.told(FLAGS)
    load(two_cameras, rename={"camera1": IMAGE, "camera2": "wrist"}, any_resolution=True).spec.settle(larger)


def test_images_of_another_size_are_taken_with_a_warning_if_that_is_asked_for(saved: Any) -> None:
    larger = Offer({**LOOKS, IMAGE: TensorSpec("uint8", (96, 96, 3))}, action_low=(-1.0,) * 4, action_high=(1.0,) * 4)
    spec = load(saved("act"), any_resolution="warn").spec
    spec.settle(larger)
    (sentence,) = spec.warnings(larger)
    assert f"trained on images of {SIDE}×{SIDE} as '{IMAGE}' and is shown 96×96" in sentence
    assert spec.warnings(OFFER) == []
    assert load(saved("act"), any_resolution=True).spec.warnings(larger) == [], "that is what was asked for"
    assert "any_resolution must be true, false or warn, not 'maybe'" in refusal(saved("act"), any_resolution="maybe")


def test_half_precision(saved: Any) -> None:
    exact = alone(load(saved("act")), 1)
    for options in ({"dtype": "bfloat16"}, {"autocast": "bfloat16"}):
        policy = load(saved("act"), **options)
        rough = alone(policy, 1)
        assert rough.dtype == np.float32
        assert not np.array_equal(rough, exact)
        np.testing.assert_allclose(rough, exact, atol=0.2)
    assert next(load(saved("act"), dtype="bfloat16")._module.parameters()).dtype == torch.bfloat16


def test_weights_and_processors_are_hashed(saved: Any, copied: Any) -> None:
    folder = copied("act")
    first = load(folder).checkpoint_sha256
    assert first == load(saved("act")).checkpoint_sha256
    from safetensors.torch import load_file, save_file

    (statistics,) = folder.glob("policy_postprocessor*.safetensors")
    save_file({name: value + 0.5 for name, value in load_file(statistics).items()}, statistics)
    second = load(folder).checkpoint_sha256
    assert second != first
    statistics.rename(folder / "mine.safetensors")  # a step says which file it is, by any name
    about = folder / "policy_postprocessor.json"
    about.write_text(about.read_text().replace(statistics.name, "mine.safetensors"))
    third = load(folder).checkpoint_sha256
    save_file(
        {name: value + 0.5 for name, value in load_file(folder / "mine.safetensors").items()},
        folder / "mine.safetensors",
    )
    assert len({first, second, third, load(folder).checkpoint_sha256}) == 4


# ------------------------------------------------------------------------------------ bad checkpoints


def refusal(folder: Any, **arguments: Any) -> str:
    with pytest.raises(UsageError) as caught:
        load(folder, **arguments)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_folders_that_are_missing_or_not_whole(copied: Any, tmp_path: Path) -> None:
    assert "there is no folder '/no/such/folder'" in refusal("/no/such/folder")
    (tmp_path / "a_file").write_text("")
    assert "is a file" in refusal(tmp_path / "a_file")
    (tmp_path / "empty").mkdir()
    assert "no config.json; it has no files" in refusal(tmp_path / "empty")
    folder = copied("act")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "not a whole safetensors file" in refusal(folder)
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors; was it written or copied to the end?" in refusal(folder)
    torch.save({"weight": torch.zeros(1)}, folder / "pytorch_model.bin")
    assert "is a pickle" in refusal(folder)
    torch.save({"weight": torch.zeros(1)}, folder / "model.safetensors")
    assert "is a pickle" in refusal(folder)
    (folder / "model.safetensors").write_bytes(whole)
    load(folder)
    next(folder.glob("policy_preprocessor_*.safetensors")).unlink()
    assert "there is no checkpoint file" in refusal(folder)
    (folder / "policy_preprocessor.json").unlink()
    assert "migrate_policy_normalization" in refusal(folder)
    (folder / "config.json").write_text('{"type": "ac')
    assert "cannot be read as JSON" in refusal(folder)


def test_the_folder_above_will_do(copied: Any) -> None:
    folder = copied("act")
    (folder.parent / "005000").mkdir()
    folder.rename(folder.parent / "005000" / "pretrained_model")
    load(folder.parent / "005000")


def edit(folder: Path, **fields: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


def test_types_that_are_not_known(copied: Any) -> None:
    folder = copied("act")
    edit(folder, type="acd")
    message = refusal(folder)
    assert "unknown LeRobot policy type 'acd'" in message
    assert all(known in message for known in ("act", "diffusion", "smolvla", "pi0"))
    edit(folder, type=None)
    assert "does not say which type" in refusal(folder)


def test_weights_that_do_not_fit(copied: Any) -> None:
    folder = copied("act")
    edit(folder, dim_model=128)
    assert "do not fit its config.json" in refusal(folder)
    assert "size mismatch" in refusal(folder)
    edit(folder, dim_model=64, n_encoder_layers=2)
    message = refusal(folder)
    assert "do not fit its config.json" in message
    assert "encoder.layers.1" in message
    load(folder, strict=False)  # asked for


def test_a_hub_that_cannot_be_reached() -> None:
    message = refusal("someone/some_policy")
    assert "there is no folder 'someone/some_policy', and as a hub id it cannot be fetched" in message


def test_cuda_that_is_not_there(saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "'cuda' was asked for" in refusal(saved("act"), device="cuda")
