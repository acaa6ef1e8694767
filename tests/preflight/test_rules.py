"""Rules of a preflight on episodes that nobody played: what needs no simulator to be seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preflight.made_evidence import SENTENCE, data_set, episodes, scene, still

from sparring.orchestrator.preflight.data_set import DataSet
from sparring.orchestrator.preflight.evidence import Evidence, PolicyNames
from sparring.orchestrator.preflight.facts import CheckpointFacts, read_checkpoint
from sparring.orchestrator.preflight.preflight import PreflightRequest, checkpoint_of, free_settings, verdicts_of
from sparring.protos.chunk import Chunk
from sparring.protos.errors import UsageError
from sparring.protos.rules import Verdict

TOP, WRIST, STATE = "observation.images.top", "observation.images.wrist", "observation.state"
HANGS = "it hangs as in training: not upside down, not mirrored."
CAMERA = "it is of the camera that it was of in training."
BEGINS = "it begins as in training: same numbers, same order, signs and units."
SIZE = "it has the size that it was trained on."
IS_SENTENCE = "The instruction is a sentence, and not a task's name."
RANGE = "its values have the range that it was trained on."
ACTIONS = "The training set's actions have the range of the action space."
SENTENCE_RULE = "The instruction is one of the training set's, word by word."
BEGUN = np.array([0.1, 0.6, 0.2, 3.1, 0.02, -0.02], np.float32)


def frame(**changes: Any) -> dict[str, Any]:
    moved = np.linspace(0, 0.05, 12)[:, None] * np.array([1, -1, 1, 1, 0.2, 0.2])
    return {TOP: still(scene(1)), WRIST: still(scene(2)), STATE: (BEGUN + moved).astype(np.float32), **changes}


def judged(seen: Mapping[str, Any], known: DataSet | None, folder: Path, **more: Any) -> dict[str, Verdict]:
    policy = more.pop("policy", PolicyNames("mine:Policy"))
    played = episodes(folder / "seen", [seen], **{k: more.pop(k) for k in ("instruction",) if k in more})
    evidence = Evidence(policy, played, data_set=known, **more)
    return {verdict.rule: verdict for verdict in verdicts_of(evidence)}


@pytest.fixture
def known(tmp_path: Path) -> DataSet:
    return data_set(tmp_path / "known", [frame(), frame(), frame()])


def failed(found: Mapping[str, Verdict]) -> dict[str, str]:
    return {rule: verdict.detail for rule, verdict in found.items() if verdict.kind == "FAILED"}


def test_what_is_as_in_training_has_no_finding(known: DataSet, tmp_path: Path) -> None:
    found = judged(frame(), known, tmp_path)
    assert failed(found) == {}
    for rule in (f"{TOP}: {HANGS}", f"{WRIST}: {CAMERA}", f"{STATE}: {BEGINS}"):
        assert found[rule].kind == "ok", found[rule]


def test_cameras_that_were_exchanged_are_told_how_to_be_exchanged_back(known: DataSet, tmp_path: Path) -> None:
    found = failed(judged(frame(**{TOP: still(scene(2)), WRIST: still(scene(1))}), known, tmp_path))
    for name, other in ((TOP, WRIST), (WRIST, TOP)):
        assert f"it is like {other!r} of training" in found[f"{name}: {CAMERA}"]
        assert f'{{{{rename.{other}="{name}", rename.{name}="{other}"}}}}' in found[f"{name}: {CAMERA}"]


def test_a_scene_that_is_the_same_mirrored_does_not_tell(tmp_path: Path) -> None:
    picture = still(scene(3, symmetric=True))
    found = judged(frame(**{TOP: picture}), data_set(tmp_path / "k", [frame(**{TOP: picture})]), tmp_path)
    assert found[f"{TOP}: {HANGS}"].kind == "skipped"
    assert "mirrored: the scene does not tell" in found[f"{TOP}: {HANGS}"].detail


def test_another_scene_is_a_finding_of_the_same_sentence_only(known: DataSet, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    other = frame(**{TOP: still(rng.integers(0, 256, (48, 48, 3), np.uint8))})
    assert "they show something else" in failed(judged(other, known, tmp_path))[f"{TOP}: {HANGS}"]
    elsewhere = judged(other, known, tmp_path / "2", instruction="Open the drawer")
    assert elsewhere[f"{TOP}: {HANGS}"].kind == "skipped"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: np.roll(row, -3), "if it began with its number 3"),
        (lambda row: row[::-1], "in the opposite order"),
        (lambda row: np.where(np.arange(6) == 3, np.rad2deg(row), row), "degrees"),
        (lambda row: row * np.array([1, 1, 1, 1, -1, -1]), ""),
        (lambda row: row + np.array([0, 0, 0.7, 0, 0, 0]), "number 2 is 0.9"),
    ],
    ids=["another part first", "backwards", "degrees", "signs of what is small", "somewhere else"],
)
def test_states_that_begin_otherwise(change: Any, words: str, known: DataSet, tmp_path: Path) -> None:
    shown = np.stack([change(row) for row in frame()[STATE]]).astype(np.float32)
    assert words in failed(judged(frame(**{STATE: shown}), known, tmp_path))[f"{STATE}: {BEGINS}"]


def test_floats_of_another_range(known: DataSet, tmp_path: Path) -> None:
    light = still(scene(1)).astype(np.float32)
    found = failed(judged(frame(**{TOP: light}), known, tmp_path))
    assert "values from 0 to 255" in found[f"{TOP}: {RANGE}"]
    assert f"{TOP}: {RANGE}" not in failed(judged(frame(**{TOP: light / 255}), known, tmp_path / "2"))


def reads_them(sentence: str, seen: Mapping[str, Any]) -> Chunk:
    return Chunk(np.full((1, 4), len(sentence) / 100), 0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (SENTENCE, "ok", ""),
        ("put the bowl on the plate.", "FAILED", "the same words, written otherwise"),
        ("put_the_bowl_on_the_plate", "FAILED", "the same words, written otherwise"),
        ("Place the bowl on the plate", "skipped", f"the nearest is {SENTENCE!r}"),
    ],
)
def test_sentences(said: str, kind: str, words: str, known: DataSet, tmp_path: Path) -> None:
    found = judged(frame(), known, tmp_path, instruction=said, ask=reads_them)[SENTENCE_RULE]
    assert found.kind == kind
    assert words in found.detail


def test_no_sentence_is_found_where_the_policy_reads_one(known: DataSet, tmp_path: Path) -> None:
    found = judged(frame(), known, tmp_path, instruction=" ", ask=reads_them)
    assert "does not know what to do" in failed(found)[IS_SENTENCE]


def test_an_image_that_was_scaled_before_it_was_made_bytes_is_found_without_a_data_set(tmp_path: Path) -> None:
    found = judged(frame(**{TOP: still(scene(1) // 255)}), None, tmp_path)
    assert "scaled to 0 to 1 before it was made bytes" in failed(found)[f"{TOP}: the image shows something."]


def test_a_gripper_from_0_to_1_is_told_where_it_goes_from_minus_1_to_1(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (12, 4))
    actions[:, 3] = np.arange(12) % 2
    trained = data_set(tmp_path / "known", [frame()] * 3, actions=actions)
    found = judged(frame(), trained, tmp_path)[ACTIONS]
    assert found.kind == "skipped"
    assert "went from 0 to 1 in training, and goes from -1 to 1 here" in found.detail


def test_names_that_differ_are_paired_by_their_ends_by_what_is_left_or_as_given(tmp_path: Path) -> None:
    theirs = data_set(tmp_path / "k", [{"image": still(scene(1)), "wrist": still(scene(2)), "state": frame()[STATE]}])
    found = judged(frame(), theirs, tmp_path)
    assert {found[f"{name}: {HANGS}"].kind for name in (TOP, WRIST)} == {"ok"}
    assert found[f"{STATE}: {BEGINS}"].kind == "ok"
    two = data_set(tmp_path / "k2", [{"a": still(scene(1)), "b": still(scene(2)), "state": frame()[STATE]}])
    unsure = judged(frame(), two, tmp_path / "2")[f"{TOP}: {HANGS}"]
    assert unsure.kind == "skipped"
    assert "{{dataset_feature." in unsure.detail
    sure = judged(frame(), two, tmp_path / "3", features={TOP: "a", WRIST: "b"})
    assert sure[f"{TOP}: {HANGS}"].kind == "ok"


def test_where_an_object_lies_is_not_known_from_a_few_episodes(tmp_path: Path) -> None:
    """Nobody has moved it in training, and here it lies elsewhere, as it does in every episode."""

    def lying(at: float) -> dict[str, Any]:
        return frame(**{STATE: np.concatenate([frame()[STATE], np.full((12, 1), at)], axis=1).astype(np.float32)})

    few = data_set(tmp_path / "few", [lying(0.3), lying(0.31)])
    assert failed(judged(lying(0.5), few, tmp_path / "1")) == {}
    many = data_set(tmp_path / "many", [lying(0.3 + 0.001 * n) for n in range(6)])
    assert f"{STATE}: {BEGINS}" in failed(judged(lying(0.9), many, tmp_path / "2"))


def test_a_checkpoint_says_where_its_data_set_was(known: DataSet, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    features = {STATE: {"type": "STATE", "shape": [6]}, TOP: {"type": "VISUAL", "shape": [3, 48, 64]}}
    (folder / "config.json").write_text(json.dumps({"type": "act", "input_features": features}))
    for name in ("policy_preprocessor.json", "policy_postprocessor.json"):
        (folder / name).write_text(json.dumps({"steps": [{"registry_name": "tokenizer_processor"}]}))
    found = checkpoint_of(f"lerobot:{folder}")
    assert found is not None
    assert (found.data_set, found.reads_sentences, found.features[TOP].shape) == (None, True, (48, 64, 3))
    (folder / "train_config.json").write_text(json.dumps({"dataset": {"root": str(known.folder)}}))
    again = checkpoint_of(f"lerobot:{folder}")
    assert again is not None
    assert (again.data_set, again.named) == (None, known.folder), "a stranger's word chooses what is read"
    inside = folder / "trained_on"
    shutil.copytree(known.folder, inside)
    (folder / "train_config.json").write_text(json.dumps({"dataset": {"root": str(inside)}}))
    with_it = checkpoint_of(f"lerobot:{folder}")
    assert with_it is not None
    assert (with_it.data_set, with_it.named) == (inside, None)
    (folder / "policy_preprocessor.json").write_text("no JSON")
    with pytest.raises(UsageError, match="cannot be read"):
        checkpoint_of(f"lerobot:{folder}")
    assert checkpoint_of("mine:Policy") is None


def made_checkpoint(folder: Path, *steps: str, **config: Any) -> CheckpointFacts:
    folder.mkdir()
    features = {STATE: {"type": "STATE", "shape": [6]}, TOP: {"type": "VISUAL", "shape": [3, 24, 24]}}
    (folder / "config.json").write_text(json.dumps({"input_features": features, **config}))
    for name in ("policy_preprocessor.json", "policy_postprocessor.json"):
        (folder / name).write_text(json.dumps({"steps": [{"registry_name": step} for step in steps]}))
    return read_checkpoint(folder)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"type": "act"}, "FAILED"),
        ({"type": "multi_task_dit", "image_resize_shape": None}, "FAILED"),
        ({"type": "multi_task_dit", "image_resize_shape": [24, 24]}, "skipped"),
        ({"type": "groot", "image_size": [256, 256]}, "skipped"),
        ({"type": "fastwam", "image_size": [224, 448]}, "skipped"),
        ({"type": "vla_jepa", "resize_images_to": [224, 224]}, "skipped"),
        ({"type": "of_tomorrow"}, "skipped"),
    ],
)
def test_only_a_checkpoint_that_takes_images_as_they_are_minds_their_size(
    config: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    found = judged(frame(), None, tmp_path, checkpoint=made_checkpoint(tmp_path / "checkpoint", **config))
    assert found[f"{TOP}: {SIZE}"].kind == kind, found[f"{TOP}: {SIZE}"]


@pytest.mark.parametrize(
    ("benchmark", "by_protocol", "words"),
    [
        ("pusht", False, "Show it what it knows: {{benchmark_arg.resolution=24}}."),
        ("aloha", False, "Show it what it knows: {{benchmark_arg.height=24, benchmark_arg.width=24}}."),
        ("pusht", True, "in training. Bring it to that size in the policy."),
        ("gym", False, "in training. Bring it to that size in the policy."),
    ],
)
def test_no_setting_is_advised_that_the_benchmark_has_not_or_that_a_protocol_decides(
    benchmark: str, by_protocol: bool, words: str, tmp_path: Path
) -> None:
    settings = free_settings(benchmark, by_protocol=by_protocol)
    known = made_checkpoint(tmp_path / "checkpoint", type="act")
    found = judged(frame(), None, tmp_path, checkpoint=known, settings=settings)
    assert found[f"{TOP}: {SIZE}"].detail.endswith(words)


@pytest.mark.parametrize(
    ("kind", "step", "reads"),
    [
        ("groot", "groot_n1_7_vlm_encode_v1", True),
        ("groot", "groot_eagle_encode_v3", True),
        ("act", "normalizer_processor", False),
        ("of_tomorrow", "a_step_of_tomorrow", None),
    ],
)
def test_whether_a_checkpoint_reads_sentences(kind: str, step: str, reads: bool | None, tmp_path: Path) -> None:
    known = made_checkpoint(tmp_path / "checkpoint", step, type=kind)
    assert known.reads_sentences is reads
    asked = judged(frame(), None, tmp_path, checkpoint=known, ask=answers_always)[IS_SENTENCE]
    assert (asked.kind == "ok") is bool(reads)
    if reads is None:  # the policy tells
        assert "does not read it" in asked.detail
        assert judged(frame(), None, tmp_path / "2", checkpoint=known, ask=reads_them)[IS_SENTENCE].kind == "ok"


def answers_always(sentence: str, seen: Mapping[str, Any]) -> Chunk:
    return Chunk(np.zeros((1, 4)), 0.0, 0.0, 1)


@pytest.mark.parametrize(
    "features",
    [{"x": None}, [1], "abc", {"x": [1]}, {"x": {"type": "STATE", "shape": "abc"}}, {"x": {"shape": [None]}}],
)
def test_features_that_are_none_are_wrong_usage(features: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        made_checkpoint(tmp_path / "checkpoint", type="act", input_features=features)


def test_a_data_set_that_only_the_checkpoint_names_is_said_and_not_read(known: DataSet, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    made_checkpoint(folder, type="act")
    (folder / "train_config.json").write_text(json.dumps({"dataset": {"root": str(known.folder)}}))
    given = {"policy": f"lerobot:{folder}", "benchmark": "toy_benchmark:Toy", "task": "short"}
    asked = PreflightRequest(tmp_path / "out", given)
    assert asked.data_set is None
    (warning,) = asked.warnings
    assert repr(str(known.folder)) in warning
    assert "{{dataset}}" in warning
    named = PreflightRequest(tmp_path / "out", given, dataset=known.folder)
    assert (named.data_set is not None, named.warnings) == (True, [])
