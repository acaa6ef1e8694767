"""Advice for those who use LeRobot's flags: theirs where LeRobot has one, ours after a lone -- where it has none."""

from __future__ import annotations

import shlex

import pytest

from sparring.orchestrator.cli.commands.lerobot_eval import _own_settings
from sparring.orchestrator.cli.lerobot_advice import LeRobotFlags
from sparring.orchestrator.cli.lerobot_flags import translate
from sparring.protos.advice import Hint, render, together

SIZE = Hint("benchmark_arg", "resolution", 64)
CONTROL = Hint("benchmark_arg", "control", "absolute")
TOP = Hint("rename", "observation.images.top", "observation.images.image")
WRIST = Hint("rename", "observation.images.wrist", "observation.images.image2")


@pytest.mark.parametrize(
    ("hints", "flags"),
    [
        ([SIZE], "--env.observation_height=64 --env.observation_width=64"),
        ([CONTROL, SIZE], "--env.control_mode=absolute --env.observation_height=64 --env.observation_width=64"),
        (
            [TOP, WRIST],
            '--rename_map=\'{"observation.images.image": "observation.images.top", '
            '"observation.images.image2": "observation.images.wrist"}\'',
        ),
        ([Hint("rename", "top", "corner")], "-- --rename top=corner"),
        ([Hint("policy_arg", "own_loop", True)], "--policy.own_loop=true"),
        ([Hint("output")], "--output_dir"),
        ([Hint("rename")], "--rename_map"),
        ([Hint("policy_timeout")], "-- --policy-timeout"),
        ([Hint("slots"), SIZE], "--env.observation_height=64 --env.observation_width=64 -- --slots"),
    ],
)
def test_libero(hints: list[Hint], flags: str) -> None:
    assert render(f"try {together(hints)}.", LeRobotFlags("libero")) == f"try {flags}."


def test_what_lerobot_has_no_flag_for_on_a_benchmark_is_ours() -> None:
    assert render(f"{SIZE}", LeRobotFlags("metaworld")) == "-- --benchmark-arg resolution=64"


def test_what_is_advised_can_be_given() -> None:
    said = render(together([TOP, SIZE, CONTROL, Hint("out_of_range", value="clip")]), LeRobotFlags("libero"))
    words = shlex.split(said)
    own = words.index("--")
    settings = translate(
        ["--policy.path=x", "--env.type=libero", *words[:own]], own=_own_settings(tuple(words[own + 1 :]))
    ).settings
    assert settings.plan.benchmark_arg == {"resolution": 64, "control": "absolute"}
    assert settings.policy.policy_arg["rename"] == {"observation.images.top": "observation.images.image"}
    assert settings.flat()["out_of_range"] == "clip"
