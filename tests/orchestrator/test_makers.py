"""Who has made a row: in the journal, in episodes.csv, run.json and `sparring show`, and not in what is compared."""

from __future__ import annotations

import asyncio
import csv
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from coordinated import Hand, Run
from rows import ROW
from support import ROOT, Sparring, read_csv

from sparring.orchestrator.results.makers import Maker, mixed_versions
from sparring.orchestrator.results.results import Results
from sparring.protos import evaluation_pb2 as pb

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"


class Registered(Hand):
    """A worker by hand, that says where it is and what it has."""

    def __init__(self, run: Run, name: str, host: str, **versions: str) -> None:
        self.name, self.run, self.inbox = name, run, []
        register = pb.Register(worker=name, host=host, versions=versions)
        run.coordinator.join(register, pb.Assignment(benchmark="toy", slots=1), self.inbox.append)


def test_every_row_refers_to_the_worker_the_machine_and_the_versions_that_made_it(tmp_path: Path) -> None:
    async def work() -> None:
        run = Run(tmp_path, episodes=4)
        run.journal.set_meta("programs", {"orchestrator": {"sparring": "9"}, "policy_server": {"sparring": "8"}})
        first, second = Registered(run, "a", "north", numpy="1"), Registered(run, "b", "south", numpy="2")
        for worker in (first, second, first):
            worker.finishes(worker.takes())
        first.leaves()
        again = Registered(run, "a", "east", numpy="1")  # of the same name, on another machine
        again.finishes(again.takes())
        rows = run.journal.rows()
        assert [(row.worker, row.host, row.maker) for row in rows] == [
            ("a", "north", 1), ("b", "south", 2), ("a", "north", 1), ("a", "east", 3),
        ]  # fmt: skip
        assert [row.worker for row in run.watcher.rows] == ["a", "b", "a", "a"], "listeners hear of it, too"
        beside = {"orchestrator": {"sparring": "9"}, "policy_server": {"sparring": "8"}}
        found = run.journal.makers()[2]
        assert set(found.programs) == {"benchmark"}, "nobody has said what the policy is"
        known = Maker(worker="b", host="south", versions={"worker": {"numpy": "2"}, **beside}, programs=found.programs)
        assert found == known

    asyncio.run(asyncio.wait_for(work(), 60))


def test_who_has_lost_an_episode_for_the_last_time_is_in_its_row(tmp_path: Path) -> None:
    async def work() -> None:
        run = Run(tmp_path, episodes=1)
        for number in range(3):
            worker = Registered(run, f"w{number}", "north")
            worker.takes()
            worker.leaves()
        assert [(row.outcome, row.worker, row.host) for row in run.journal.rows()] == [("error", "w2", "north")]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_what_a_worker_says_of_itself_has_a_limit() -> None:
    versions = {f"{n}" * 300: "1" * 10_000 for n in range(10_000)}
    maker = Maker.of("w", "h" * 10_000, versions, {})
    assert len(maker.model_dump_json()) < 300_000


def maker(**versions: str) -> Maker:
    return Maker(worker="w", host="h", versions={"worker": versions})


def test_different_versions_in_one_benchmark_are_told_and_in_two_they_are_not() -> None:
    makers = {1: maker(numpy="1", mujoco="3"), 2: maker(numpy="2", mujoco="3"), 3: maker(numpy="5")}
    rows = [ROW.__class__(**{**vars(ROW), "index": n, "maker": n}) for n in (1, 2)]
    other = ROW.__class__(**{**vars(ROW), "benchmark": "other", "maker": 3})
    assert mixed_versions([*rows, other], makers) == [
        "episodes of toy were made with different versions of numpy (worker): 1 and 2."
    ]
    assert mixed_versions([rows[0], other], makers) == []


def lines(folder: Path) -> list[dict[str, str]]:
    with (folder / "episodes.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.processes
def test_a_run_says_who_has_made_its_rows_and_a_resumed_one_keeps_what_was_said(
    sparring: Sparring, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    before = read_csv(folder)
    done = sparring("resume", "out", "--in-process")
    assert done.returncode == 0, done.stderr
    here = socket.gethostname()
    made = [(line["worker"], line["host"], line["maker"]) for line in lines(folder)]
    assert sorted(set(made)) == [("", "", "0"), ("in-process", here, "1")]
    assert made.count(("", "", "0")) == len(before), "rows of the release before do not say it"
    assert all(line.keys().isdisjoint({"worker", "host", "maker"}) for line in before), "it is not compared"

    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert document["makers"]["1"]["host"] == here
    assert document["makers"]["1"]["versions"]["orchestrator"]["sparring"]
    assert document["makers"]["1"]["versions"]["policy_server"]["sparring"]
    assert document["makers"]["1"]["versions"]["worker"]["numpy"]
    shown = json.loads(sparring("show", "out", "--json").stdout)
    assert shown["makers"] == {"1": {**document["makers"]["1"], "episodes": 24 - len(before)}}
    assert Results.load(folder).makers[1].worker == "in-process"
