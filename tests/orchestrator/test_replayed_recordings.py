"""Recordings say what they were made with, and are not played by anything else without a word."""

from __future__ import annotations

import io
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Sparring, read_csv

from sparring.protos.conditions import Conditions

PLAN = ("run", "--benchmark", "toy", "--task", "short", "--episodes", "2", "--in-process")


def record(usage: Sparring, *more: str) -> None:
    done = usage(*PLAN, "--policy", "toy_policies:Forward", "--policy-arg", "gain=0.9", "--output", "out", *more,
                 "--record", "demos")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {row["outcome"] for row in read_csv(Path("out"))} == {"success"}


def replay(usage: Sparring, *more: str) -> Any:
    return usage(*PLAN, "--policy", "replay", "--policy-arg", "file=demos", "--output", "again", *more)


def about(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as episode:
        said: dict[str, Any] = json.loads(episode["about"].tobytes())
        return said


def change(**changes: Any) -> None:
    """Writes every recording again with something else said about it: as another machine or release would have."""
    for path in Path("demos").rglob("*.npz"):
        with np.load(path, allow_pickle=False) as episode:
            arrays = {name: episode[name] for name in episode.files}
        said = {**json.loads(arrays["about"].tobytes()), **changes}
        said = {name: value for name, value in said.items() if value is not ...}
        arrays["about"] = np.frombuffer(json.dumps(said).encode(), np.uint8)
        content = io.BytesIO()
        np.savez(content, **arrays)
        path.write_bytes(content.getvalue())


def test_a_recording_says_what_it_was_made_with(usage: Sparring) -> None:
    record(usage, "--benchmark-arg", "noise=8")
    said = about(Path("demos/toy/short/0001.npz"))
    assert (said["format"], said["benchmark"], said["task"], said["index"], said["seed"]) == (
        4,
        "toy",
        "short",
        1,
        1001,
    )
    assert (said["control_hz"], said["history"]) == (20.0, 1)
    assert said["action_space"] == {"low": [-1.0], "high": [1.0], "control": ""}
    assert said["settings"] == {"step_seconds": 0.0, "flag_folder": "", "noise": 8, "reach": 0.1}
    assert said["conditions"]["settings"] == {"step_seconds": 0.0, "flag_folder": "", "reach": 0.1}, (
        "noise is only seen"
    )
    assert said["conditions"]["rules"]["max_steps"] == 0
    assert said["conditions"]["versions"] == {"psutil": version("psutil"), "toy-benchmark": "1.0"}
    policy = said["policy"]
    assert (policy["name"], policy["arguments"]) == ("toy_policies:Forward", {"gain": 0.9})
    assert len(policy["program_sha256"]) == 64


def test_it_comes_to_the_same_end_by_the_same_conditions_and_others_that_are_only_seen(usage: Sparring) -> None:
    record(usage)
    done = replay(usage, "--benchmark-arg", "noise=8")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout
    same = ("outcome", "steps", "reward_sum")
    assert [[row[name] for name in same] for row in read_csv(Path("again"))] == [
        [row[name] for name in same] for row in read_csv(Path("out"))
    ]


@pytest.mark.parametrize(
    ("more", "told", "advice"),
    [
        (("--benchmark-arg", "reach=0.05"), "settings reach: 0.1 there, 0.05 now", "--benchmark-arg reach=0.1"),
        (("--max-steps", "5"), "rules max_steps: 0 there, 5 now", "--max-steps 0"),
    ],
)
def test_other_conditions_are_refused_with_the_difference(
    more: tuple[str, ...], told: str, advice: str, usage: Sparring
) -> None:
    record(usage)
    done = replay(usage, *more)
    assert done.returncode == 2, done.stdout
    assert f"\n  {told}\n" in done.stderr
    assert f"Play it as it was recorded, with {advice}" in done.stderr
    assert not Path("again").exists(), "an episode was played"
    done = replay(usage, *more, "--policy-arg", "strict=false")
    assert done.returncode == 0, done.stderr
    assert told in " ".join(done.stdout.split()), "the results do not say it"
    assert {row["outcome"] for row in read_csv(Path("again"))} == {"failure"}, "so it had been a silent 0 %"


def test_another_version_of_the_simulator_is_refused(usage: Sparring) -> None:
    record(usage)
    said = about(Path("demos/toy/short/0000.npz"))["conditions"]
    change(conditions={**said, "versions": {"psutil": "0.1", "toy-benchmark": "1.0"}})
    done = replay(usage)
    assert done.returncode == 2, done.stdout
    assert '\n  versions psutil: "0.1" there, ' in done.stderr


def test_recordings_of_earlier_releases_are_played_with_a_warning(usage: Sparring) -> None:
    record(usage)
    change(format=1, conditions=..., settings=..., policy=...)
    done = replay(usage, "--benchmark-arg", "reach=0.05")
    assert done.returncode == 0, done.stderr
    assert "recordings in 'demos' do not say by what settings, rules and versions they were made" in " ".join(
        done.stdout.split()
    )


def test_conditions_go_over_the_wire_and_to_files_as_they_are() -> None:
    one = Conditions({"kwargs": {"a": [1, None]}, "least": "nan"}, {"max_steps": 3}, {"mujoco": "3"})
    assert Conditions.from_message(one.to_message()) == one
    assert Conditions.from_json(json.loads(json.dumps(one.to_json()))) == one
    other = Conditions({"kwargs": {}, "new": 1}, {}, {"mujoco": "4"})
    assert one.differences(other) == [("settings", "kwargs", {"a": [1, None]}, {}), ("versions", "mujoco", "3", "4")]
    with pytest.raises(ValueError, match="no mappings"):
        Conditions.from_json({"settings": []})


def test_other_recordings_are_another_policy(usage: Sparring) -> None:
    record(usage)
    assert replay(usage).returncode == 0
    for path in Path("demos").rglob("*.npz"):
        with np.load(path, allow_pickle=False) as episode:
            arrays = {name: episode[name] for name in episode.files}
        arrays["actions"] = arrays["actions"] * 0.5
        np.savez(path, **arrays)
    done = replay(usage, "--episodes", "3")
    assert done.returncode == 2, done.stdout
    assert "  what it has read: was changed\n" in done.stderr
