"""run.json: documented, versioned, and readable by anybody."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel
from support import ROOT

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.document import (
    RUN_SCHEMA,
    RunDocument,
    read_document,
    tasks_of,
    to_json,
    write_document,
)
from sparring.orchestrator.results.document_parts import RunHost, RunPolicy
from sparring.protos.errors import UsageError

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"
PLAN = Plan(
    {
        "toy": [Task("short", "Go", "good", number=0), Task("long", "Go far", "good", number=1)],
        "other": [Task("suite/3", "Take", "suite", initial_states=50, number=3), Task("short", "Stop", "short")],
    },
    episodes=3,
    seed=11,
)


def document(**changes: Any) -> RunDocument:
    values: dict[str, Any] = {
        "status": "finished",
        "settings": {"episodes": 3, "policy_arg": {}},
        "seed": PLAN.seed,
        "episodes": PLAN.episodes,
        "tasks": tasks_of(PLAN),
        "policy": RunPolicy(name="zero", arguments={}, checkpoint_sha256=None, server_version="0.2.0"),
        "versions": {"orchestrator": {"sparring": "0.2.0"}},
        "host": RunHost.here(),
        "seconds": 1.5,
        "server_stats": None,
        "out_of_range": 0,
    }
    return RunDocument(**{**values, **changes})


def strictly(text: str) -> Any:
    """As a reader that knows JSON and nothing else."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_document(tmp_path, document())
    assert read_document(tmp_path) == document()
    assert strictly((tmp_path / "run.json").read_text())["schema"] == RUN_SCHEMA
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_plan_comes_back_whole() -> None:
    assert document().plan() == PLAN
    assert set(document().tasks) == {"toy/short", "long", "suite/3", "other/short"}, "labels tell them apart"


def test_numbers_that_are_not_finite_are_words_in_the_file_and_numbers_in_the_settings(tmp_path: Path) -> None:
    arguments = {"limit": math.inf, "low": [-math.inf, 1.0], "what": math.nan}
    policy = RunPolicy(name="p", arguments=arguments, checkpoint_sha256=None, server_version="0")
    write_document(tmp_path, document(settings={"policy_arg": arguments}, policy=policy))
    content = strictly((tmp_path / "run.json").read_text())
    assert content["settings"]["policy_arg"] == {"limit": "Infinity", "low": ["-Infinity", 1.0], "what": "NaN"}
    assert content["policy"]["arguments"]["limit"] == "Infinity"
    found = read_document(tmp_path).settings["policy_arg"]
    assert (found["limit"], found["low"]) == (math.inf, [-math.inf, 1.0])
    assert math.isnan(found["what"])
    assert strictly(to_json({"a": (1.0, math.nan)})) == {"a": [1.0, "NaN"]}


@pytest.mark.parametrize("name", ["finished", "unfinished"])
def test_release_0_1_0_is_read(name: str) -> None:
    found = read_document(OLD / name)
    assert (found.schema_version, found.status, found.seed) == (RUN_SCHEMA, name, 7)
    assert found.policy is not None
    assert found.policy.name == "toy_policies:Wanderer"
    assert found.server_stats is not None
    assert found.server_stats.batches == found.server_stats.observations > 0, "it was called `serving`"
    info = json.loads((OLD / name / "eval_info.json").read_text())
    labels = found.plan().labels()
    numbered = [(group, labels[label][1].number) for group, names in found.plan().groups().items() for label in names]
    assert numbered == [(task["task_group"], task["task_id"]) for task in info["per_task"]]


def test_numbers_of_libero_tasks_in_old_documents_are_those_in_their_names(tmp_path: Path) -> None:
    old = json.loads((OLD / "finished" / "run.json").read_text())
    task = {"benchmark": "libero", "group": "libero_goal", "instruction": "Take it", "initial_states": 50}
    old["tasks"] = {"libero_goal/7": task, "libero_goal/9": task}
    (tmp_path / "run.json").write_text(json.dumps(old))
    plan = read_document(tmp_path).plan()
    assert [(t.name, t.number, t.initial_states) for t in plan.tasks["libero"]] == [
        ("libero_goal/7", 7, 50),
        ("libero_goal/9", 9, 50),
    ]


def change(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / "run.json").read_text())
    for path, value in changes.items():
        content[path] = value
    (folder / "run.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / "run.json").unlink(), "not the output folder of a run: it has no run.json"),
        (shutil.rmtree, "there is no folder '.*'"),
        (lambda f: (f / "run.json").write_text("{"), "is damaged"),
        (lambda f: (f / "run.json").write_bytes(b"\xff\xfe"), "is damaged"),
        (lambda f: (f / "run.json").write_text("[]"), "is damaged: it names no schema"),
        (lambda f: change(f, schema=None), "is damaged: it names no schema"),
        (lambda f: change(f, schema=0), "is damaged: it names no schema"),
        (lambda f: change(f, schema=99), r"newer release \(schema 99; this one knows 2 and below\). Update sparring."),
        (lambda f: change(f, seed="many"), "is damaged: seed: Input should be a valid integer"),
        (lambda f: change(f, status="gone"), "is damaged: status"),
        (lambda f: change(f, tasks=None), "is damaged: tasks"),
    ],
)
@pytest.mark.parametrize("schema", [1, RUN_SCHEMA])
def test_what_cannot_be_read_is_refused_with_a_sentence(
    tmp_path: Path, damage: Any, sentence: str, schema: int
) -> None:
    if schema == 1:
        shutil.copy(OLD / "finished" / "run.json", tmp_path)
    else:
        write_document(tmp_path, document())
    damage(tmp_path)
    if schema == 1 and sentence == "is damaged: tasks":
        sentence = "is damaged"
    with pytest.raises(UsageError, match=sentence):
        read_document(tmp_path)


def test_fields_that_a_later_release_added_are_ignored(tmp_path: Path) -> None:
    write_document(tmp_path, document())
    change(tmp_path, mood="good")
    assert read_document(tmp_path) == document()


def described(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Every field of the document by its path, with its description; what is in mappings stands behind a `*`."""
    found = {}
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        found[path] = field.description or ""
        deeper = f"{path}.*." if get_origin(field.annotation) is dict else f"{path}."
        for kind in _models(field.annotation) - {model}:
            found |= described(kind, deeper)
    return found


def _models(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return set().union(*(_models(inner) for inner in get_args(annotation)))


def test_every_field_is_described_in_the_docs_and_the_docs_describe_no_other() -> None:
    fields = described(RunDocument)
    assert "tasks.*.instruction" in fields
    assert "server_stats.inference_s.total" in fields
    text = (ROOT / "docs" / "results.md").read_text()
    section = re.search(r"^## run\.json$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert section
    rows = dict(re.findall(r"^\| `([\w.*]+)` \| (.+) \|$", section[1], re.MULTILINE))
    assert rows == fields
    assert all(fields.values()), "a field without a description"
