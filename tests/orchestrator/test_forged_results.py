"""Results that somebody has made up, with all checksums right; and replays that nothing came of."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import Sparring

from sparring.env_worker.protocol import WholeProtocol, protocols_of, whole
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay import replays
from sparring.orchestrator.replay.bundle import opened, write_bundle
from sparring.orchestrator.replay.protocol_check import protocol_problems
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.results.document_parts import RunProtocol, RunRate
from sparring.orchestrator.results.finite import finite, numbers_again
from sparring.orchestrator.results.results import Results, write_results
from sparring.orchestrator.results.row import COLUMNS, EpisodeRow, checksum, is_sound
from sparring.orchestrator.run.protocols import protocols_played
from sparring.orchestrator.settings import read_settings
from sparring.orchestrator.settings.saved_protocol import SavedProtocol
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import UsageError

HERE = ("--in-process", "--json")
Forge = Callable[[dict[str, Any], list[dict[str, Any]]], None]
"""Changes run.json and the episodes of a bundle."""


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: two tasks, two episodes of each."""
    from toy_policies import Wanderer

    from sparring import Evaluator

    folder = tmp_path_factory.mktemp("pristine") / "run"
    with Evaluator() as evaluator:
        evaluator.evaluate(
            Wanderer(), benchmark="toy", tasks="short,long", episodes=2, in_process=True, output=folder, seed=7
        )
    return folder


@pytest.fixture
def recorded(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    shutil.copytree(pristine, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def bundle(pristine: Path, tmp_path: Path) -> Path:
    write_bundle(pristine, tmp_path / "b.zip")
    return tmp_path / "b.zip"


def forged(bundle: Path, forge: Forge) -> None:
    """Rewrites a bundle, with checksums that are right."""
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != "SHA256SUMS"}
    run, episodes, contents = (json.loads(members[name]) for name in ("run.json", "episodes.json", "bundle.json"))
    forge(run, episodes)
    members["run.json"], members["episodes.json"] = json.dumps(run).encode(), json.dumps(episodes).encode()
    contents["files"]["run.json"] = hashlib.sha256(members["run.json"]).hexdigest()
    members["bundle.json"] = json.dumps(contents).encode()
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in members.items()]
    members["SHA256SUMS"] = "".join(sums).encode()
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def told(run: dict[str, Any], episodes: list[dict[str, Any]], plan: Any) -> None:
    """Makes run.json tell what the episodes come to."""
    rows = [EpisodeRow.from_cells({name: entry[name] for name in COLUMNS}) for entry in episodes]
    results = Results(plan=plan, rows=rows, seconds=0.0, folder=None)
    run["recorded"] = len(rows)
    run["overall"] = RunRate.of(results.overall).model_dump(mode="json", by_alias=True)
    for name, summaries in (("task_rates", results.tasks), ("group_rates", results.groups)):
        run[name] = {key: RunRate.of(one).model_dump(mode="json", by_alias=True) for key, one in summaries.items()}


def problems(place: Path) -> str:
    with opened(place) as source:
        return " ".join(source.problems)


def test_a_bundle_that_nobody_has_changed_has_no_problem(bundle: Path) -> None:
    assert problems(bundle) == ""
    forged(bundle, lambda run, episodes: None)
    assert problems(bundle) == ""


@pytest.mark.parametrize(
    ("part", "name", "said"),
    [("task_rates", "long", "task long"), ("group_rates", "long", "group long"), ("task_rates", "more", "task more")],
)
def test_the_rate_of_a_task_or_a_group_of_a_bundle_is_that_of_its_episodes(
    bundle: Path, part: str, name: str, said: str
) -> None:
    def better(run: dict[str, Any], episodes: list[dict[str, Any]]) -> None:
        rate = next(iter(run[part].values()))
        run[part][name] = {**rate, "success_rate": 0.987, "n": 50}

    forged(bundle, better)
    assert said in problems(bundle)


@pytest.mark.parametrize("part", ["recorded", "overall", "task_rates", "group_rates"])
def test_numbers_that_were_taken_out_of_run_json_are_missed(bundle: Path, recorded: Path, part: str) -> None:
    def without(run: dict[str, Any], episodes: list[dict[str, Any]]) -> None:
        del run[part]

    forged(bundle, without)
    assert "run.json" in problems(bundle)
    document = json.loads((recorded / "run.json").read_text())
    without(document, [])
    (recorded / "run.json").write_text(json.dumps(document))
    assert "run.json" in problems(recorded)


def change_run(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads((folder / "run.json").read_text())
    change(document)
    (folder / "run.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: run["policy"].update(name="theirs:Better"), "another policy than the journal: name."),
        (lambda run: run["policy"].update(arguments={"gain": 2}), "another policy than the journal: arguments."),
        (lambda run: run["policy"].update(checkpoint_sha256="ab" * 32), "another policy than the journal: checkpoint"),
        (lambda run: run["makers"]["1"]["versions"]["worker"].update(numpy="9.9"), "other makers of episodes"),
        (lambda run: run["makers"].clear(), "other makers of episodes"),
        (lambda run: run["versions"]["orchestrator"].update(sparring="9.9"), "other versions than the journal"),
        (lambda run: run["machines"].clear(), "other machines than the journal"),
    ],
)
def test_what_run_json_tells_of_policy_and_versions_is_what_the_journal_has(
    usage: Sparring, recorded: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    change_run(recorded, change)
    assert said in problems(recorded)
    done = usage("bundle", str(recorded))
    assert (done.returncode, said in done.stderr) == (2, True)


def narrow(**values: Any) -> WholeProtocol:
    """The toy's own protocol, with some of its rules otherwise."""
    toy = get_benchmark("toy")
    return replace(whole(toy, protocols_of(toy)["narrow"]), **values)


def as_told(protocol: WholeProtocol, *changed: str) -> dict[str, Any]:
    return RunProtocol.of(protocol, changed).model_dump(mode="json")


OURS_BY_THEIR_NAME = narrow(settings={"reach": 0.1}, rules=EpisodeRules().that_move())
"""By what the run was really played, which says that it is the toy's own protocol."""


@pytest.mark.parametrize(
    ("told", "saved", "said"),
    [
        (narrow(), None, "its settings have ours@1"),
        (narrow(), None, "its setting reach is 0.05, and by its settings 0.1"),
        (narrow(), narrow(), "its rule actions_per_look is 2, and by its settings 0"),
        (OURS_BY_THEIR_NAME, OURS_BY_THEIR_NAME, "other rules by that name and version than the benchmark"),
        (OURS_BY_THEIR_NAME, narrow(), "with other rules: actions_per_look, reach"),
        (replace(OURS_BY_THEIR_NAME, seed=8), OURS_BY_THEIR_NAME, "its seed is 8, and by its settings 7"),
        (replace(OURS_BY_THEIR_NAME, layout="openpi"), OURS_BY_THEIR_NAME, "its layout is 'openpi'"),
        (replace(OURS_BY_THEIR_NAME, benchmark="gym"), OURS_BY_THEIR_NAME, "it is of 'gym'"),
    ],
)
def test_a_protocol_that_was_not_played_by_is_found_out(
    bundle: Path, recorded: Path, told: WholeProtocol, saved: WholeProtocol | None, said: str
) -> None:
    def claim(run: dict[str, Any]) -> None:
        run["protocols"]["toy"] = as_told(told)
        if saved is not None:
            run["settings"]["protocol"] = SavedProtocol.of(saved).model_dump(mode="json")

    forged(bundle, lambda run, episodes: claim(run))
    assert said in problems(bundle)
    change_run(recorded, claim)
    found = problems(recorded)
    assert said in found
    assert ("run.json has another plan than the journal: protocols." in found) == (saved is not None)


@pytest.mark.parametrize("benchmark", ["toy", "metaworld", "libero", "pusht", "aloha", "gym"])
def test_every_known_protocol_is_what_its_settings_play_by(benchmark: str, pristine: Path) -> None:
    document = read_document(pristine)
    for name in protocols_of(get_benchmark(benchmark)):
        settings = read_settings({"benchmark": benchmark, "task": "any", "policy": "zero", "protocol": name})
        saved = numbers_again(json.loads(json.dumps(finite(settings.flat()))))
        changed = {"settings": saved, "seed": settings.plan.seed, "protocols": protocols_played(settings)}
        run = RecordedRun(pristine, document.model_copy(update=changed), {}, {}, False, lambda episodes: {})
        assert list(protocol_problems(run)) == [], name


def test_runs_by_protocols_have_no_problem(usage: Sparring) -> None:
    plan = ("run", "--benchmark", "toy", "--task", "short", "--policy", "zero", "--episodes", "2", "--in-process")
    given = {
        "a": ("--protocols", "ours,narrow"),
        "b": ("--protocol", "narrow"),
        "c": ("--out-of-range", "clip", "--benchmark-arg", "reach=1"),
    }
    for folder, more in given.items():
        done = usage(*plan, *more, "--output", folder)
        assert done.returncode == 0, done.stderr
        assert problems(Path(folder)) == ""
        done = usage("bundle", folder, "--output", f"{folder}.zip")
        assert done.returncode == 0, done.stderr
        done = usage("verify", f"{folder}.zip", "--all", *HERE)
        assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, [])
    change_run(Path("a"), lambda run: run["protocols"].pop("narrow"))
    assert "run.json has no protocol of 'narrow', unlike its settings." in problems(Path("a"))


def test_an_episode_of_a_bundle_that_is_not_in_the_plan_replaces_none(
    usage: Sparring, bundle: Path, pristine: Path
) -> None:
    plan = Results.load(pristine).plan

    def exchange(run: dict[str, Any], episodes: list[dict[str, Any]]) -> None:
        for number in (0, 1):
            episodes[number] |= {"index": 100 + number, "outcome": "success"}
        told(run, episodes, plan)

    forged(bundle, exchange)
    done = usage("verify", str(bundle), "--all", *HERE)
    found = json.loads(done.stdout)
    assert (done.returncode, found["verified"]) == (1, False)
    assert found["problems"] == ["2 episodes have a row and are not in the plan, the first of them toy/short#100."]
    done = usage("verify", str(bundle), "--all", "--in-process")
    assert "2 episodes of the plan have no row" in done.stdout


def test_an_episode_of_a_folder_that_is_not_in_the_plan_is_told(usage: Sparring, recorded: Path) -> None:
    with closing(sqlite3.connect(recorded / "journal.sqlite", isolation_level=None)) as journal:
        journal.row_factory = sqlite3.Row
        for table in ("episodes", "actions"):
            journal.execute(f'UPDATE {table} SET "index" = 100 WHERE task = \'long\' AND "index" = 1')
        (row,) = journal.execute('SELECT * FROM episodes WHERE "index" = 100').fetchall()
        found = checksum({name: row[name] for name in COLUMNS})
        journal.execute('UPDATE episodes SET checksum = ? WHERE "index" = 100', (found,))
    results = Results.load(recorded)
    assert results.missing == 1
    write_results(results)
    assert problems(recorded) == "1 episode has a row and is not in the plan, the first of them toy/long#100."
    done = usage("verify", str(recorded), "--all", *HERE)
    assert (done.returncode, json.loads(done.stdout)["verified"]) == (1, False)
    assert usage("bundle", str(recorded)).returncode == 2


def test_an_episode_that_is_there_twice_is_refused(bundle: Path) -> None:
    forged(bundle, lambda run, episodes: episodes.append({**episodes[0], "outcome": "success"}))
    with pytest.raises(UsageError, match="twice"), opened(bundle):
        pass


@pytest.mark.parametrize("metric", ['"x"', "NaN", "null", "true", "1e999", "[1]", "1" + "0" * 400])
def test_a_metric_that_is_no_finite_number_is_no_metric(usage: Sparring, bundle: Path, metric: str) -> None:
    def no_number(run: dict[str, Any], episodes: list[dict[str, Any]]) -> None:
        episodes[0] |= {"maker": 77, "metrics": f'{{"distance": {metric}}}'}

    with zipfile.ZipFile(bundle) as archive:
        cells = {name: json.loads(archive.read("episodes.json"))[0][name] for name in COLUMNS}
    assert is_sound({**cells, "metrics": '{"distance": 1.5}'})
    assert not is_sound({**cells, "metrics": f'{{"distance": {metric}}}'})
    assert not is_sound({**cells, "reward_sum": 10**400})
    forged(bundle, no_number)
    assert usage("verify", str(bundle), "--all", *HERE).returncode == 2


def lose(monkeypatch: pytest.MonkeyPatch, *lost: EpisodeId) -> None:
    """Has nobody told of some episodes. Whatever may be the reason: there is none that is known, so it is made up."""
    tell = replays._Telling.on_result

    def on_result(self: replays._Telling, row: EpisodeRow) -> None:
        if row.id not in lost:
            tell(self, row)

    monkeypatch.setattr(replays._Telling, "on_result", on_result)


def test_an_episode_whose_replay_never_came_back_is_not_checked_not_filmed_and_not_exported(
    usage: Sparring, pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(monkeypatch, EpisodeId("toy", "long", 0))
    done = usage("verify", str(pristine), "--all", *HERE)
    found = json.loads(done.stdout)
    assert (done.returncode, found["verified"]) == (3, False)
    verdicts = {(each["task"], each["index"]): each["verdict"] for each in found["episodes"]}
    assert verdicts == {("short", 0): "same", ("short", 1): "same", ("long", 0): "unchecked", ("long", 1): "same"}
    chosen = ("--episodes", "long:0,short:0", "--output", "films")
    done = usage("film", str(pristine), *chosen, *HERE)
    assert done.returncode == 3
    assert json.loads(done.stdout)["missing"] == {"toy/long#0": "nothing came of its replay."}
    done = usage("export", str(pristine), "out", "--format", "npz", "--observation", "position", "--in-process")
    assert (done.returncode, "3 episodes" in done.stdout, "1 left out" in done.stdout) == (3, True, True)


def test_no_picture_of_an_episode_whose_replay_never_came_back(
    usage: Sparring, pristine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("run", "--benchmark", "toy", "--task", "short", "--episodes", "1", "--seed", "7", "--policy", "random")
    assert usage(*run, "--in-process", "--output", "other").returncode == 0
    lose(monkeypatch, EpisodeId("toy", "short", 0))
    done = usage("diff", str(pristine), "other", "--frames", "pictures", *HERE)
    assert (done.returncode, json.loads(done.stdout)["pictures"]) == (3, {})
    assert "there is no picture of toy/short#0: nothing came of its replay" in done.stderr


@pytest.mark.parametrize("left", ["", "WHERE task = 'short'"])
def test_a_sample_without_actions_is_unchecked_unless_the_whole_run_has_none(
    usage: Sparring, recorded: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    import random

    with closing(sqlite3.connect(recorded / "journal.sqlite", isolation_level=None)) as journal:
        journal.execute(f"DELETE FROM actions {left}")
    # Chance would pick others in most runs of this test.
    monkeypatch.setattr(random.SystemRandom, "sample", lambda self, places, size: list(places)[:size])
    done = usage("verify", str(recorded), "--sample", "2", *HERE)
    if not left:
        assert (done.returncode, "no actions of these episodes" in done.stderr) == (2, True)
        return
    assert done.returncode == 3
    assert [each["verdict"] for each in json.loads(done.stdout)["episodes"]] == ["unchecked"] * 2
