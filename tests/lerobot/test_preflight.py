"""What `sparring preflight` finds by the statistics of a real LeRobot checkpoint alone, without a data set."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import ACTION, IMAGE, STATE, STATISTICS, act_config, save
from lerobot.policies.factory import make_pre_post_processors
from tiny_models import LEROBOT

from sparring.orchestrator.execution.in_process import run_in_process
from sparring.orchestrator.export.export import chosen_recordings, export
from sparring.orchestrator.export.formats import ExportOptions
from sparring.orchestrator.preflight.evidence import Evidence
from sparring.orchestrator.preflight.facts import read_checkpoint
from sparring.orchestrator.preflight.pictures import small
from sparring.orchestrator.preflight.preflight import PreflightRequest, observe, preflight, verdicts_of
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings

SIDE = 64
ON = {"benchmark": "metaworld", "task": "reach-v3", "benchmark_arg": {"resolution": SIDE}, "in_process": True}
NORMALISED = f"{STATE}: there are statistics to normalise it with."
BEGINS = f"{STATE}: it begins as in training: same numbers, same order, signs and units."
VALUES = f"{IMAGE}: its values have the range that it was trained on."
COLOURS = f"{IMAGE}: red and blue are not exchanged."
ANSWERS = "The policy answers frames of its training as the training set does."
STEPS = 300
"""Of a training."""
RANGE = "The training set's actions have the range of the action space."

Statistics = dict[str, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(act_config(SIDE), tmp_path_factory.mktemp("act") / "checkpoint")


@pytest.fixture(scope="module")
def evidence(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A checkpoint that fits, played once; what its statistics are is changed afterwards, in its files."""
    found: list[Evidence] = []
    wanted = {**ON, "policy": f"lerobot:{checkpoint}", "policy_arg": {"device": "cpu"}}
    observe(PreflightRequest(tmp_path_factory.mktemp("seen"), wanted, steps=16), found.append)
    return found[0]


def trained_with(evidence: Evidence, checkpoint: Path, folder: Path, statistics: Statistics) -> Evidence:
    """The same policy, as LeRobot saves it with other statistics."""
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("model.safetensors", "policy_p*"))
    for processor in make_pre_post_processors(act_config(SIDE), dataset_stats=statistics):
        processor.save_pretrained(folder)
    return replace(evidence, checkpoint=read_checkpoint(folder))


def of(feature: str, **values: Any) -> Callable[[Evidence], Statistics]:
    """LeRobot's statistics with some of one feature's replaced."""

    def made(evidence: Evidence) -> Statistics:
        shape = STATISTICS[feature]["mean"].shape
        changed = {name: torch.tensor(value, dtype=torch.float32).reshape(shape) for name, value in values.items()}
        return {**STATISTICS, feature: {**STATISTICS[feature], **changed}}

    return made


def bgr(evidence: Evidence) -> Statistics:
    shown = np.mean([small(image) for image in evidence.first(IMAGE)], axis=(0, 1, 2))
    return of(IMAGE, mean=shown[::-1].tolist())(evidence)


MISTAKES: dict[str, tuple[Callable[[Evidence], Statistics], str, str]] = {
    "no statistics of the state": (
        lambda _: {name: found for name, found in STATISTICS.items() if name != STATE},
        NORMALISED,
        "has no mean and no std",
    ),
    "a number that never moved": (
        of(STATE, mean=[0, 0.6, 0.2, 0.5], std=[0.1, 0.1, 0.1, 0]),
        NORMALISED,
        "its number 3 was always 0.5",
    ),
    "statistics that are no numbers": (of(STATE, std=[0.1, float("nan"), 0.1, 0.1]), NORMALISED, "is not finite"),
    "another order": (
        of(STATE, min=[0.1, 0.5, -0.1, 0.5], max=[0.3, 0.7, 0.1, 1.0]),
        BEGINS,
        "numbers 0 and 2 exchanged",
    ),
    "another sign": (
        of(STATE, min=[-0.2, -0.9, 0, 0], max=[0.2, -0.3, 0.5, 1]),
        BEGINS,
        "another sign of number 1",
    ),
    "another benchmark": (of(STATE, min=[3, 3, 3, 3], max=[4, 4, 4, 4]), BEGINS, "number"),
    "images from 0 to 255": (of(IMAGE, mean=[115, 115, 115]), VALUES, "from 0 to 255"),
    "BGR": (bgr, COLOURS, "it is BGR"),
    "metres": (of(ACTION, min=[-0.03] * 3 + [-1], max=[0.03] * 3 + [1]), RANGE, "metres"),
    "degrees": (of(ACTION, min=[-90] * 3 + [-1], max=[90] * 3 + [1]), RANGE, "degrees"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_statistics_tell(mistake: str, evidence: Evidence, checkpoint: Path, tmp_path: Path) -> None:
    statistics, rule, words = MISTAKES[mistake]
    changed = trained_with(evidence, checkpoint, tmp_path / "checkpoint", statistics(evidence))
    found = {verdict.rule: verdict.detail for verdict in verdicts_of(changed) if verdict.kind == "FAILED"}
    assert rule in found, found
    assert words in found[rule]


def test_statistics_that_fit_find_nothing(evidence: Evidence, checkpoint: Path, tmp_path: Path) -> None:
    assert [str(verdict) for verdict in verdicts_of(evidence) if verdict.kind == "FAILED"] == []
    imagenet = of(IMAGE, mean=[0.485, 0.456, 0.406])(evidence)
    kinds = {v.rule: v for v in verdicts_of(trained_with(evidence, checkpoint, tmp_path / "other", imagenet))}
    assert kinds[COLOURS].kind == "skipped"
    assert "ImageNet" in kinds[COLOURS].detail


@pytest.mark.everything
@pytest.mark.skipif(LEROBOT < (0, 6), reason="LeRobot 0.4 reads videos by what torchvision no longer has")
def test_a_checkpoint_that_lerobot_trained_is_left_alone(tmp_path: Path) -> None:
    """Trained by LeRobot on what Meta-World's expert did, until its answers are those of its training."""
    from lerobot.configs.default import DatasetConfig
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.scripts.lerobot_train import train

    seen = {"policy": "expert", "policy_arg": {"look": [IMAGE, STATE]}}
    given = {**ON, **seen, "episodes": 2, "max_steps": 40, "seed": 7}
    settings = read_settings({**given, "record": tmp_path / "seen", "output": tmp_path / "run"})
    run_in_process(settings, make_plan(settings), tmp_path / "run")
    export(chosen_recordings(tmp_path / "seen"), tmp_path / "set", "lerobot", ExportOptions([IMAGE, STATE]))
    train(
        TrainPipelineConfig(
            dataset=DatasetConfig(repo_id="sparring/exported", root=str(tmp_path / "set"), video_backend="pyav"),
            policy=act_config(SIDE, optimizer_lr=3e-4, optimizer_lr_backbone=3e-4, dropout=0.0),
            output_dir=tmp_path / "trained", steps=STEPS, batch_size=8, num_workers=0, save_freq=STEPS,
        )
    )  # fmt: skip
    checkpoint = tmp_path / f"trained/checkpoints/{STEPS:06d}/pretrained_model"
    given = {**ON, "policy": f"lerobot:{checkpoint}", "policy_arg": {"device": "cpu"}}
    found = preflight(**given, dataset=tmp_path / "set", steps=16)
    assert [str(finding) for finding in found.findings] == []
    assert {verdict.rule: verdict.kind for verdict in found.verdicts}[ANSWERS] == "ok"


def test_an_image_of_another_size_is_found_where_the_policy_takes_any(checkpoint: Path) -> None:
    on = {**ON, "benchmark_arg": {"resolution": 96}, "policy": f"lerobot:{checkpoint}"}
    found = preflight(**on, policy_arg={"any_resolution": True, "device": "cpu"}, episodes=1, steps=4)
    (finding,) = found.findings
    assert "96×96, and 64×64 in training" in finding.detail
    assert "{{benchmark_arg.resolution=64}}" in finding.detail
    refused = preflight(**on, policy_arg={"device": "cpu"}, episodes=1, steps=4)
    assert "{{benchmark_arg.resolution=64}}" in refused.findings[0].detail
