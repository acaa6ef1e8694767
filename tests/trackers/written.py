"""What each tracker has written, read back with its own library."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import wait_for


@dataclass
class Written:
    """A run as a tracker has it.

    Attributes:
        config: Settings, and what else stands beside the numbers.
        numbers: By name, in their order: where on the axis, and the value.
        tables: By name: a list of dictionaries, or the text of it.
        films: The files or pictures of films, by name.
        ended: How it ended, if the tracker knows.
    """

    config: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    tables: dict[str, Any] = field(default_factory=dict)
    films: dict[str, bytes] = field(default_factory=dict)
    ended: str = ""


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline run. The messages are wandb's own; its reader of the file around them is not in Python.

    The file is a log of LevelDB: blocks of 32 KiB, in these pieces with checksum, length and kind.
    """
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, whole = path.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # no room for a piece: the rest of the block is empty
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its end
            record = Record()
            with suppress(DecodeError):  # of which the end is not written yet
                record.ParseFromString(whole)
                yield record
            whole = b""


def read_wandb(folder: Path, id: str) -> Written:
    found = Written()
    for path in sorted(folder.glob(f"wandb/offline-run-*-{id}/run-{id}.wandb")):
        # A process of wandb's own writes it, and has the last of it still before it when a run is finished.
        wait_for(lambda path=path: any(r.WhichOneof("record_type") == "exit" for r in wandb_records(path)))
        for record in wandb_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                assert record.run.run_id == id
                found.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "config":
                found.config |= {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.config.update
                }
            elif kind == "exit":
                found.ended = str(record.exit.exit_code)
            elif kind == "history":
                row: dict[str, Any] = {}
                for item in record.history.item:
                    name, *inner = [item.key] if item.key else item.nested_key
                    value = json.loads(item.value_json)
                    row[name] = {**row.get(name, {}), inner[0]: value} if inner else value
                at = row.get("eval/step", row.get("progress/episodes"))
                for name, value in row.items():
                    if isinstance(value, dict) and value.get("_type") == "table-file":
                        table = json.loads((path.parent / "files" / value["path"]).read_text())
                        found.tables[name] = [dict(zip(table["columns"], r, strict=True)) for r in table["data"]]
                    elif isinstance(value, dict) and value.get("_type") == "video-file":
                        found.films[name] = (path.parent / "files" / value["path"]).read_bytes()
                    elif isinstance(value, int | float):
                        found.numbers[name].append((at, value))
    return found


def read_trackio(folder: Path, id: str) -> Written:
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import MEDIA_DIR

    found = Written(config=SQLiteStorage.get_run_config("sparring", id) or {})
    for row in SQLiteStorage.get_logs("sparring", id):
        for name, value in row.items():
            if isinstance(value, dict) and value["_type"] == "trackio.table":
                found.tables[name] = value["_value"]
            elif isinstance(value, dict) and value["_type"] == "trackio.video":
                found.films[name] = (MEDIA_DIR / value["file_path"]).read_bytes()
            elif isinstance(value, dict):
                found.config[name] = value["_value"]
            elif name not in ("step", "timestamp"):
                found.numbers[name].append((row["step"], value))
    return found


def read_tensorboard(folder: Path, id: str) -> Written:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / id), size_guidance={"images": 0, "tensors": 0, "scalars": 0})
    events.Reload()
    found = Written()
    for name in events.Tags()["scalars"]:
        found.numbers[name] = [(event.step, event.value) for event in events.Scalars(name)]
    for name in events.Tags()["images"]:
        found.films[name] = events.Images(name)[0].encoded_image_string
    for name in events.Tags()["tensors"]:
        text = events.Tensors(name)[-1].tensor_proto.string_val[0].decode()
        if name.startswith("eval/tasks"):
            lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
            found.tables[name] = [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
        else:
            found.config[name] = text
    return found


def read_mlflow(folder: Path, id: str) -> Written:
    from mlflow import MlflowClient

    client = MlflowClient()
    run = client.get_run(id)
    found = Written(config={**run.data.params, **run.data.tags}, ended=run.info.status)
    for name in run.data.metrics:
        found.numbers[name] = [(m.step, m.value) for m in client.get_metric_history(id, name)]
    artifacts = Path(run.info.artifact_uri.removeprefix("file://"))
    for path in (path for path in artifacts.rglob("*") if path.is_file()):
        name = str(path.relative_to(artifacts))
        if path.suffix == ".json":
            table = json.loads(path.read_text())
            rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
            found.tables[name.rpartition("-")[0]] = rows
        else:
            found.films[name] = path.read_bytes()
    return found


READERS = {"wandb": read_wandb, "trackio": read_trackio, "tensorboard": read_tensorboard, "mlflow": read_mlflow}
