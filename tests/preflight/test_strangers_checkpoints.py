"""Checkpoints and servers of strangers in a preflight: what is read of them, and what is not."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from preflight.made_evidence import recorded, scene, still

from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.preflight.facts import read_checkpoint, read_tensors
from sparring.orchestrator.preflight.playing import Rehearsed
from sparring.orchestrator.preflight.preflight import PreflightRequest
from sparring.protos.chunk import Chunk
from sparring.protos.errors import UsageError

STEPS = {"steps": [{"registry_name": "normalizer_processor", "config": {}, "state_file": "state.safetensors"}]}
FILES = ("policy_preprocessor.json", "policy_postprocessor.json", "state.safetensors", "config.json")


def tensors(*offsets: tuple[int, int]) -> bytes:
    about = {
        f"x.{number}": {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
        for number, (begin, end) in enumerate(offsets)
    }
    header = json.dumps(about).encode()
    return struct.pack("<Q", len(header)) + header + b"\1" * 8


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"type": "act", "input_features": {"x": {"shape": [8]}}}))
    for name in FILES[:2]:
        (folder / name).write_text(json.dumps(STEPS))
    (folder / "state.safetensors").write_bytes(tensors((0, 8)))
    return folder


def test_links_to_files_are_read_as_in_a_hubs_cache(checkpoint: Path) -> None:
    for name in FILES:
        kept = checkpoint.parent / f"kept-{name}"
        (checkpoint / name).rename(kept)
        (checkpoint / name).symlink_to(kept)
    assert len(read_checkpoint(checkpoint).features["x"].statistics["0"]) == 8


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("what", ["a device", "a pipe"])
def test_devices_and_pipes_are_not_read(name: str, what: str, checkpoint: Path) -> None:
    (checkpoint / name).unlink()
    if what == "a pipe":
        os.mkfifo(checkpoint / name)
    else:
        (checkpoint / name).symlink_to("/dev/null" if name.endswith(".json") else "/dev/zero")
    with pytest.raises(UsageError, match="it is no regular file"):
        read_checkpoint(checkpoint)


def test_what_is_too_large_is_not_read(checkpoint: Path) -> None:
    os.truncate(checkpoint / "state.safetensors", 1 << 40)  # a hole: it takes no room
    with pytest.raises(UsageError, match="more than"):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize("offsets", [[(0, 8), (0, 8)], [(4, 0)], [(-8, 0)], [(0, 9)]])
def test_tensors_of_the_same_bytes_are_none(offsets: list[tuple[int, int]], tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(tensors(*offsets))
    with pytest.raises(UsageError, match="cannot be read"):
        read_tensors(path)


def test_a_server_does_not_choose_which_folder_is_read(checkpoint: Path, tmp_path: Path) -> None:
    seen = {"image": still(scene(1))}
    hosted: dict[str, Any] = {"name": f"lerobot:{checkpoint}", "arguments": {"rename": {"a": "image"}}}
    episode = RecordedEpisode(recorded(tmp_path / "seen", 0, seen))
    episode.about.provenance["policy"] = hosted
    toy = {"benchmark": "toy_benchmark:Toy", "task": "short"}

    def evidence(**given: Any) -> Any:
        asked = PreflightRequest(tmp_path / "out", {**toy, **given})
        return asked.evidence(Rehearsed([episode], None), ask)

    assert evidence(policy=f"lerobot:{checkpoint}").checkpoint is not None
    told = evidence(policy_server="localhost:1")
    assert (told.checkpoint, told.policy.name) == (None, hosted["name"])
    assert told.policy.rename == {"a": "image"}
    for odd in ("abc", [1], 1, {"a": ["image"]}):
        hosted["arguments"]["rename"] = odd
        assert evidence(policy_server="localhost:1").policy.rename == {}, odd


def ask(sentence: str, seen: Any) -> Chunk:
    raise AssertionError("it is not asked")
