"""LeRobot's language-conditioned families, tiny but of the real classes: the same actions as LeRobot's own loop.

What the adapter relies on is the common interface; these tests say which families have it in which LeRobot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import save, saving
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from sessions import IMAGE, SIDE, STATE, Player, alone, by_lerobot, load, looks, together
from support import sampled
from tiny_models import (
    LEROBOT,
    eo1_config,
    groot_config,
    multi_task_dit_config,
    pi0_config,
    pi0_fast_config,
    pi05_config,
    smolvla_config,
    tiny_gemmas,
    tokenizer,
)

from sparring.protos.spec import TensorSpec

FAMILIES: dict[str, Callable[..., Any]] = {
    "smolvla": smolvla_config,
    # As the published ones are: what comes from SmolVLM is in half precision, the rest is not.
    "smolvla-mixed": lambda **settings: smolvla_config(load_vlm_weights=True, **settings),
    "smolvla-longest": lambda **settings: smolvla_config(pad_language_to="longest", **settings),
}
# The pi family of LeRobot 0.4 wants a transformers of its own, which is on no index; GR00T N1.7 is new in 0.6.
if LEROBOT >= (0, 6):
    FAMILIES |= {
        "pi0": pi0_config,
        "pi05": pi05_config,
        "pi0_fast": pi0_fast_config,
        "pi0_fast-sampling": lambda **settings: pi0_fast_config(temperature=1.0, **settings),
        "groot": groot_config,
        "groot-float32": lambda **settings: groot_config(use_bf16=False, **settings),
        "multi_task_dit": multi_task_dit_config,
        "multi_task_dit-flow": lambda **settings: multi_task_dit_config(objective="flow_matching", **settings),
        "eo1": eo1_config,
    }
PLAIN = [name for name in FAMILIES if "-" not in name]
HALF = {"smolvla-mixed", "groot"}
"""Those that compute in bfloat16 unasked."""
SENTENCES = ["Open a door with a revolving joint", "Press a button", "Pick and place a puck onto a shelf"]
CAMERAS = tuple(f"observation.images.camera{i}" for i in (1, 2, 3))


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with ExitStack() as stack:
        if LEROBOT >= (0, 6):
            stack.enter_context(tiny_gemmas())
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return saving(FAMILIES, tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def loaded(saved: Any) -> Callable[[str], Any]:
    """Policies that several tests share, as sessions do."""
    return cache(lambda name: load(saved(name)))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_session_alone_does_what_select_action_does(name: str, saved: Any, loaded: Any) -> None:
    ours, theirs = alone(loaded(name), 7), by_lerobot(saved(name), 7)
    expected = ("as a whole", "trusted")
    assert all(any(words in said for words in expected) for said in loaded(name).warnings), "it has nothing but queues"
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.ptp(theirs, axis=0).max() > 0.05, "a policy that always does the same would prove nothing"


@pytest.mark.parametrize("name", FAMILIES)
def test_sessions_that_share_batches_do_what_they_do_alone(
    name: str, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = loaded(name)
    sentences = [*SENTENCES, SENTENCES[0]]
    expected = [alone(policy, seed, sentence) for seed, sentence in zip((1, 2, 3, 4), sentences, strict=True)]
    assert not np.allclose(expected[0], expected[3], atol=1e-3)
    rows, forward = [], policy.forward
    monkeypatch.setattr(policy, "forward", lambda batch: rows.append(len(batch)) or forward(batch))
    last_bits = 1e-2 if name in HALF else 1e-5
    np.testing.assert_allclose(together(policy, (1, 2, 3, 4), sentences), expected, atol=last_bits)
    assert max(rows) > 1


@pytest.mark.parametrize("name", sampled(FAMILIES, "smolvla", *(["pi0"] if LEROBOT >= (0, 6) else [])))
@pytest.mark.parametrize("pad_to", sampled([1, 3], 3))
def test_in_deterministic_mode_they_do_exactly_that(name: str, pad_to: int, saved: Any) -> None:
    policy = load(saved(name), deterministic=True, pad_to=pad_to)
    try:
        expected = [alone(policy, seed, sentence) for seed, sentence in zip((1, 2, 3), SENTENCES, strict=True)]
        mixed = together(policy, (1, 2, 3), SENTENCES)
    finally:
        torch.use_deterministic_algorithms(False)
    assert np.asarray(mixed).tobytes() == np.asarray(expected).tobytes()
    if pad_to == 1:
        np.testing.assert_allclose(mixed[0], by_lerobot(saved(name), 1, SENTENCES[0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_the_sentence_and_never_the_name_reaches_the_model(
    name: str, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, heard = loaded(name), []
    predict = policy._module.predict_action_chunk

    def listening(batch: Any) -> Any:
        (tokens,) = [v for k, v in batch.items() if k.endswith(("language.tokens", "input_ids"))]
        heard.extend(tokenizer().batch_decode(tokens, skip_special_tokens=True))
        return predict(batch)

    monkeypatch.setattr(policy._module, "predict_action_chunk", listening)
    first = alone(policy, 7, SENTENCES[0])
    assert all(SENTENCES[0].lower() in sentence.lower() for sentence in heard)
    assert not any("reach-v3" in sentence for sentence in heard)
    assert np.abs(first - alone(policy, 7, SENTENCES[1])).max() > 1e-3


@pytest.mark.parametrize("name", PLAIN)
def test_n_action_steps(name: str, saved: Any) -> None:
    policy = load(saved(name), n_action_steps=2)
    assert policy.spec.chunk_length == 2
    theirs = by_lerobot(saved(name), 7, overrides=["--n_action_steps=2"])
    np.testing.assert_allclose(alone(policy, 7), theirs, rtol=1e-6, atol=1e-6)


def test_two_cameras_renamed_and_a_third_left_empty(saved: Any) -> None:
    shown = looks(IMAGE, "wrist")
    rename = {"camera1": IMAGE, "camera2": "wrist"}
    names = {IMAGE: CAMERAS[0], "wrist": CAMERAS[1], "observation.state": "observation.state"}
    # Families that know empty cameras mask them; without one of their own they have to be told how many (SmolVLA).
    for name, overrides in {"smolvla": ["--empty_cameras=1"], "pi0": [], "pi05": []}.items():
        if name not in FAMILIES:
            continue
        folder = saved(name, cameras=CAMERAS)
        policy = load(folder, rename=rename, empty=["camera3"])
        assert set(policy.spec.named) == set(shown)
        ours = alone(policy, 7, shown=shown)
        theirs = by_lerobot(folder, 7, shown=shown, names=names, overrides=overrides)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
        black = load(folder, rename={**rename, "camera3": "black"})
        with_black = {**shown, "black": shown[IMAGE]}
        assert np.abs(alone(black, 7, shown=with_black) - ours).max() > 1e-4, "masked, not merely black"
        # A family may look at how many it was told of, and not only at what is missing.
        assert policy._module.config.empty_cameras == 1
        assert not any("empty" in camera for camera in policy._module.config.image_features)


@pytest.mark.parametrize("name", [name for name in ("smolvla", "pi0", "pi05", "pi0_fast") if name in FAMILIES])
def test_a_checkpoint_that_was_trained_with_an_empty_camera(name: str, saved: Any) -> None:
    folder = saved(name, empty_cameras=1)
    policy = load(folder)
    assert set(policy.spec.named) == {IMAGE, "observation.state"}
    np.testing.assert_allclose(alone(policy, 7), by_lerobot(folder, 7), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_images_of_any_size(name: str, saved: Any) -> None:
    shown = looks(IMAGE, side=50)
    policy = load(saved(name), any_resolution=True)
    theirs = by_lerobot(saved(name), 7, shown=shown)
    np.testing.assert_allclose(alone(policy, 7, shown=shown), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_half_precision(name: str, saved: Any, loaded: Any) -> None:
    policy = load(saved(name), dtype="bfloat16")
    assert torch.bfloat16 in {parameter.dtype for parameter in policy._module.parameters()}
    rough, exact = alone(policy, 7), alone(loaded(name), 7)
    assert rough.dtype == np.float32
    if "fast" not in name:  # whose actions are words: one that is another changes everything that follows
        np.testing.assert_allclose(rough, exact, atol=0.1)
    if name.startswith("pi"):
        theirs = by_lerobot(saved(name), 7, overrides=["--dtype=bfloat16"])
        np.testing.assert_allclose(rough, theirs, rtol=1e-6, atol=1e-6)


def test_a_policy_that_writes_on_its_observations(tmp_path: Path) -> None:
    """SmolVLA for Aloha turns joints round in the state that it is given, where it lies."""
    joints = 14
    config = smolvla_config(
        input_features={
            IMAGE: PolicyFeature(FeatureType.VISUAL, (3, SIDE, SIDE)),
            STATE: PolicyFeature(FeatureType.STATE, (joints,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (joints,))},
        normalization_mapping=dict.fromkeys(("VISUAL", "STATE", "ACTION"), NormalizationMode.IDENTITY),
        adapt_to_pi_aloha=True,
        max_state_dim=16,
        max_action_dim=16,
    )
    folder = save(config, tmp_path / "checkpoint", statistics={})
    shown = {**looks(IMAGE), STATE: TensorSpec("float32", (joints,))}
    theirs = [by_lerobot(folder, seed, shown=shown) for seed in (1, 2)]
    players = [Player(policy := load(folder), seed, shown=shown) for seed in (1, 2)]
    while not all(player.done for player in players):
        chunks = policy.act([player.look() for player in players], [player.state for player in players])
        for player, chunk in zip(players, chunks, strict=True):
            player.play(chunk)
    np.testing.assert_allclose([player.actions for player in players], theirs, atol=1e-5)
