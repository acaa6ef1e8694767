"""A new column, as somebody would add it: a line in the record and a line in the contract, in a copy of the code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from support import ROOT

from sparring.protos.record import EpisodeRecord

_PROGRAM = """
import csv, json, sys
from pathlib import Path
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.results import Results, write_results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.plan import Plan
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.record import EpisodeRecord

folder = Path(sys.argv[1])
sent = EpisodeRecord(outcome="success", collisions=3).to_message(1).SerializeToString()
record = EpisodeRecord.from_message(pb.Result.FromString(sent))
journal = Journal(folder)
journal.record(EpisodeRow(benchmark="toy", task="new", index=0, seed=0, attempts=1, video="", **vars(record)))
write_results(Results(Plan({}, 1, 0), journal.rows(), 0.0, folder))
with (folder / "episodes.csv").open() as file:
    lines = list(csv.DictReader(file))
print(json.dumps({"columns": list(lines[0]), "values": {line["task"]: line["collisions"] for line in lines}}))
"""


def add_line(path: Path, after: str, line: str) -> None:
    text = path.read_text()
    assert text.count(after) == 1
    path.write_text(text.replace(after, f"{after}\n{line}"))


@pytest.mark.requires("protoc")
def test_a_new_column_is_one_line_in_the_record_and_one_in_the_contract(tmp_path: Path) -> None:
    code, folder = tmp_path / "code", tmp_path / "out"
    for room in ("protos", "orchestrator", "env_worker", "policy_server"):
        shutil.copytree(ROOT / room, code / "sparring" / room, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (ROOT / "src" / "sparring").glob("*.py"):
        shutil.copy(module, code / "sparring")
    protos = code / "sparring" / "protos"
    last = fields(EpisodeRecord)[-1]
    add_line(
        protos / "record.py",
        f"\n    {last.name}: {last.type} = {last.default!r}".replace("'", '"'),
        "    collisions: int = 0",
    )
    add_line(
        protos / "evaluation.proto", "message Result {", "  uint32 collisions = 99;  // how often it hit something"
    )
    from grpc_tools import protoc

    assert protoc.main(["protoc", f"-I{code}", f"--python_out={code}", "sparring/protos/evaluation.proto"]) == 0
    shutil.copytree(ROOT / "tests" / "fixtures" / "release-0.1.0" / "finished", folder)

    program = f"import sys; sys.path.insert(0, {str(code)!r})\n{_PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["columns"][-1] == "collisions"
    assert found["values"] == {"long": "0", "short": "0", "raises": "0", "new": "3"}
