"""Trackers with their real libraries, offline: what is read back is what came of the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import Sparring
from toy_policies import Wanderer
from trackers.written import READERS, Written

from sparring import Results, evaluate

TRACKERS = tuple(READERS)
STORES = (*((name, "") for name in TRACKERS), ("mlflow", "sqlite"), ("mlflow", "its own"))
"""Trackers, and where MLflow keeps its runs: in files, in a database, or in what it chooses where nobody says."""
RUN = (
    "run", "--benchmark", "toy", "--task", "short,long", "--policy", "toy_policies:Wanderer", "--in-process",
    "--output", "out",
)  # fmt: skip


def id_of(folder: Path, tracker: str) -> str:
    return str(json.loads((folder / "trackers.json").read_text())[tracker])


def choose(store: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has MLflow keep its runs there; the `offline` fixture has named files."""
    if store == "sqlite":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/runs.db")
    elif store:
        monkeypatch.delenv("MLFLOW_TRACKING_URI")


def read(tracker: str, folder: Path, id: str) -> Written:
    return READERS[tracker](folder, id)


@pytest.mark.parametrize(("tracker", "store"), STORES)
def test_a_run_and_its_resumption_are_one_run_of_the_tracker(
    tracker: str, store: str, usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(store, tmp_path, monkeypatch)
    own = ("--track-arg", "films=1", "--track-arg", f"dir={tmp_path}") if tracker == "wandb" else ()
    done = usage(*RUN, "--episodes", "2", "--track", tracker, "--video", "failures", "--json", *own)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)  # and nothing else, whatever the library has to say
    assert "tracker" not in done.stderr.replace("waiting for the tracker", "")
    assert (tmp_path / "mlflow.db").exists() == (store == "its own")
    id = id_of(tmp_path / "out", tracker)
    first = read(tracker, tmp_path, id)
    results = Results.load(tmp_path / "out")

    assert "Wanderer" in json.dumps(first.config)
    progress = first.numbers["progress/success_rate"]
    assert [at for at, _ in progress] == [1, 2, 3, 4]
    assert progress[-1][1] == pytest.approx(results.overall.success_rate)
    assert [at for at, _ in first.numbers["progress/task/long/success_rate"]] == [3, 4]
    assert first.numbers["eval/success_rate"] == [(4, pytest.approx(results.overall.success_rate))]
    assert first.numbers["eval/success_low"] == [(4, pytest.approx(results.overall.interval[0]))]
    shorts = [row for row in results.rows if row.task == "short"]
    mean = sum(row.reward_sum for row in shorts) / len(shorts)
    assert first.numbers["eval/task/short/return"][-1][1] == pytest.approx(mean, rel=1e-6)
    (table,) = first.tables.values()
    assert [row["task"] for row in table] == ["short", "long", "overall"]
    assert float(table[-1]["success_rate"]) == pytest.approx(results.overall.success_rate or 0.0, abs=1e-4)
    failures = [row for row in results.rows if row.outcome == "failure"]
    assert failures, "else nothing is shown of films"
    assert len(first.films) == (1 if own else len(failures))
    begins = b"GIF8" if tracker == "tensorboard" else (tmp_path / "out" / failures[0].video).read_bytes()
    assert any(film.startswith(begins) for film in first.films.values())
    assert first.ended in ("", "0", "FINISHED")

    done = usage("resume", "out", "--episodes", "3")
    assert done.returncode == 0, done.stderr
    assert id_of(tmp_path / "out", tracker) == id
    both = read(tracker, tmp_path, id)
    assert [at for at, _ in both.numbers["progress/success_rate"]] == [1, 2, 3, 4, 5, 6], "it went on"
    rate = Results.load(tmp_path / "out").overall.success_rate
    assert both.numbers["eval/success_rate"][-1] == (6, pytest.approx(rate))
    assert both.ended in ("", "0", "FINISHED")


@contextmanager
def training(tracker: str, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A run of a training that the program has open: its id, and what evaluate() needs to be told."""
    if tracker == "wandb":
        import wandb

        with wandb.init(project="mine", dir=folder, settings=wandb.Settings(silent=True)) as run:
            run.log({"loss": 2.0}, step=100)
            yield run.id, {}
            run.log({"loss": 1.0}, step=300)  # refused, had the evaluation moved wandb's own step on
    elif tracker == "mlflow":
        import mlflow

        with mlflow.start_run() as active:
            yield active.info.run_id, {}
            mlflow.log_metric("loss", 1.0, step=300)
    elif tracker == "trackio":
        import trackio

        run = trackio.init(project="sparring", embed=False)
        yield run.name, {}
        trackio.log({"loss": 1.0}, step=300)
        trackio.finish()
    else:
        yield "events", {"track_arg": {"dir": folder / "events"}}


@pytest.mark.parametrize(("tracker", "store"), STORES)
def test_evaluations_of_a_training_are_a_curve_in_its_own_run(
    tracker: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    choose(store, tmp_path, monkeypatch)
    rates = []
    with training(tracker, tmp_path) as (id, more):
        for step in (100, 200):
            results = evaluate(
                Wanderer(), benchmark="toy", tasks="short", episodes=2, seed=step, in_process=True, track=tracker,
                track_step=step, **more,
            )  # fmt: skip
            rates.append(results.overall.success_rate)
    found = read(tracker, tmp_path, id)
    assert sorted(set(found.numbers["eval/success_rate"])) == [
        (100, pytest.approx(rates[0])),
        (200, pytest.approx(rates[1])),
    ]
    assert not any(name.startswith("progress/") for name in found.numbers), "their beginnings would all be in one place"
    if tracker != "tensorboard":
        assert found.numbers["loss"][-1][1] == 1.0, "the training's own numbers are all there, and its run was open"


@pytest.mark.parametrize(
    ("tracker", "settings", "sentence"),
    [
        ("tensorboard", (), "cannot|not a directory|exists"),
        ("mlflow", ("--track-arg", "run=nobody"), "nobody"),
        ("wandb", ("--track-arg", "run=a/b"), "run id"),
    ],
)
def test_a_tracker_that_fails_is_one_warning(
    tracker: str, settings: tuple[str, ...], sentence: str, usage: Sparring, tmp_path: Path
) -> None:
    if tracker == "tensorboard":
        (tmp_path / "file").write_text("in the way")
        settings = ("--track-arg", "dir=file")
    done = usage(*RUN, "--episodes", "2", "--track", tracker, *settings)
    assert done.returncode == 0
    assert len(Results.load(tmp_path / "out").rows) == 4
    told = [line for line in done.stderr.splitlines() if f"the tracker {tracker} hears nothing more" in line]
    assert len(told) == 1, done.stderr
    assert any(word in done.stderr.lower() for word in sentence.split("|")), done.stderr


def test_without_an_api_key_nothing_starts(usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    done = usage(*RUN, "--track", "wandb")
    assert done.returncode == 2
    assert "wandb login" in done.stderr
    assert not (tmp_path / "out").exists()
