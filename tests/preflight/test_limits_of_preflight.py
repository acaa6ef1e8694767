"""How much of a training set and of a checkpoint is read: what just fits, and what is one more."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from preflight.test_strangers_data_sets import made

from sparring.orchestrator.preflight import data_set, facts
from sparring.orchestrator.preflight.data_set import DataSet
from sparring.protos.errors import UsageError


def test_numbers_of_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in pieces: the one that reaches the limit is the last."""
    rows = 60_000
    found = made(tmp_path / "a", rows=rows, episode_index=pa.array(np.arange(rows) // 30))
    monkeypatch.setattr(data_set, "_MOST_ROWS", 10**9)
    monkeypatch.setattr(data_set, "_MOST_NUMBERS", 2 * rows + 1)  # an action, and which task
    assert len(found.episodes) == rows // 30
    monkeypatch.setattr(data_set, "_MOST_NUMBERS", 1)
    assert len(DataSet(found.folder).episodes) < rows // 30


def test_bytes_of_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(tmp_path / "a")
    size = (found.folder / "meta/tasks.jsonl").stat().st_size
    monkeypatch.setattr(data_set, "_MOST_TEXT", size)
    assert found.episodes[0].sentence == "x"
    monkeypatch.setattr(data_set, "_MOST_TEXT", size - 1)
    with pytest.raises(UsageError, match="more than"):
        DataSet(found.folder).episodes  # noqa: B018


def test_characters_of_sentences_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tasks.parquet"
    pq.write_table(pa.table({"task": ["ab", "cde"], "task_index": [0, 1]}), path)
    whole = 5 + 2 * data_set._ROOM
    monkeypatch.setattr(data_set, "_MOST_TEXT", whole)
    assert data_set._tasks_in(path) == {0: "ab", 1: "cde"}
    monkeypatch.setattr(data_set, "_MOST_TEXT", whole - 1)
    with pytest.raises(ValueError, match="has more than"):
        data_set._tasks_in(path)


def test_bytes_of_a_checkpoints_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}   ")
    header = json.dumps({"x.0": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\1\2")
    monkeypatch.setattr(facts, "_MOST_JSON", 5)
    monkeypatch.setattr(facts, "_MOST_STATISTICS", 10 + len(header))
    assert facts.read_object(tmp_path / "config.json") == {}
    assert facts.read_tensors(tmp_path / "a.safetensors")
    monkeypatch.setattr(facts, "_MOST_JSON", 4)
    monkeypatch.setattr(facts, "_MOST_STATISTICS", 9 + len(header))
    with pytest.raises(UsageError, match="it has more than 4 bytes"):
        facts.read_object(tmp_path / "config.json")
    with pytest.raises(UsageError, match=f"it has more than {9 + len(header)} bytes"):
        facts.read_tensors(tmp_path / "a.safetensors")
