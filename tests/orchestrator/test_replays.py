"""Episodes of recorded runs, played again: by the same workers, without the policy, for whatever is wanted of them."""

from __future__ import annotations

import shutil
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from click.testing import CliRunner
from support import Sparring
from toy_benchmark import Toy, ToySimulator

from sparring.orchestrator.cli.main import cli
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted, replay, working_folder
from sparring.orchestrator.replay.settings import NOW, ReplaySettings
from sparring.orchestrator.replay.side_by_side import frames_of
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.action_list import unpack
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.trace import Trace

PLAN = ("run", "--benchmark", "toy", "--task", "short,long", "--policy", "toy_policies:Wanderer", "--episodes", "3")
HERE = {"in_process": True}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run: two tasks, three episodes of each."""
    from toy_policies import Wanderer

    from sparring import Evaluator

    folder = tmp_path_factory.mktemp("recorded") / "run"
    with Evaluator() as evaluator:
        evaluator.evaluate(
            Wanderer(), benchmark="toy", tasks="short,long", episodes=3, in_process=True, output=folder, seed=7
        )
    return folder


def play(run: RecordedRun, tmp_path: Path, selection: str = "all", **wanted: Any) -> list[Replayed]:
    heard: list[Replayed] = []
    episodes = [row.id for row in run.choose(selection)]
    with working_folder(tmp_path / "work") as folder:
        assert replay(run, episodes, Wanted(**{"now": HERE, **wanted}), folder, heard.append) == {}
    assert not (tmp_path / "work").exists(), "something was left"
    return sorted(heard, key=lambda each: each.recorded.id)


@pytest.mark.processes
@pytest.mark.parametrize("now", [HERE, {"slots": 2}])
def test_replays_are_what_was_recorded_to_the_bit(recorded: Path, tmp_path: Path, now: dict[str, Any]) -> None:
    run = RecordedRun.in_folder(recorded)
    heard = play(run, tmp_path, now=now)
    assert [each.recorded.id for each in heard] == sorted(run.rows)
    for each in heard:
        assert each.difference == ""
        for name in ("outcome", "steps", "reward_sum", "reward_max", "metrics", "seed"):
            assert getattr(each.again, name) == getattr(each.recorded, name), name
        then, now_ = Trace.unpack(each.kept.trace), Trace.unpack(each.trace)
        assert then == now_
        assert (then.steps, sum(then.rewards)) == (each.recorded.steps, each.recorded.reward_sum)
        assert each.maker is not None
        assert "python" in each.maker.versions["worker"]
        assert each.film is None
        assert each.recording is None


def test_what_is_watched_is_recorded_at_every_step(recorded: Path, tmp_path: Path) -> None:
    run = RecordedRun.in_folder(recorded)
    seen: dict[EpisodeId, dict[str, Any]] = {}

    def heard(each: Replayed) -> None:
        assert each.recording is not None
        with np.load(each.recording) as archive:
            seen[each.recorded.id] = {name: archive[name] for name in archive.files}

    with working_folder(tmp_path) as folder:
        replay(
            run, [row.id for row in run.choose("short:1")], Wanted(watch=["posi*", "image"], now=HERE), folder, heard
        )
    ((episode, arrays),) = seen.items()
    row, kept = run.rows[episode], run.kept([episode])[0][episode]
    assert arrays["observations/image"].shape == (row.steps + 1, 16, 16, 3)
    assert np.array_equal(arrays["actions"], unpack(kept.actions))
    assert arrays["looks"].tolist() == list(range(row.steps + 1))
    assert arrays["observations/position"][1:, 0].tolist() == arrays["rewards"].tolist()  # as in this toy


def test_films_are_there_when_a_replay_is_told(recorded: Path, tmp_path: Path) -> None:
    run = RecordedRun.in_folder(recorded)
    films: list[bytes] = []

    def heard(each: Replayed) -> None:
        assert each.film is not None
        films.append(each.film.read_bytes())

    with working_folder(tmp_path) as folder:
        replay(run, [EpisodeId("toy", "short", 0)], Wanted(film=pb.FilmStyle(), now=HERE), folder, heard)
    assert b"ftyp" in films[0][:16]


@pytest.mark.parametrize("steps", [(0, 1), (3, 4), (900, 901)])
def test_of_named_steps_no_other_frame_is_drawn(
    recorded: Path, tmp_path: Path, steps: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, episode = RecordedRun.in_folder(recorded), EpisodeId("toy", "short", 0)
    shades: list[float] = []
    drawn: list[str] = []
    picture = ToySimulator.picture
    monkeypatch.setattr(ToySimulator, "picture", lambda self, name: drawn.append(name) or picture(self, name))

    def heard(each: Replayed) -> None:
        assert each.film is not None
        with av.open(str(each.film)) as file:
            shades.extend(float(frame.to_ndarray(format="rgb24").mean()) for frame in file.decode(video=0))
        assert len(drawn) == len(shades)
        assert [float(one.mean()) for one in frames_of(each.film, steps)] == [shades[0], shades[-1]]

    style = pb.FilmStyle(cameras=["above"], fps=20.0)
    with working_folder(tmp_path) as folder:
        replay(run, [episode], Wanted(film=style, steps={episode: steps}, now=HERE), folder, heard)
    ended = run.rows[episode].steps
    expected = [8 * step for step in dict.fromkeys(min(step, ended) for step in steps)]  # as in this toy
    assert shades == pytest.approx(expected, abs=4)


def test_who_raises_when_told_ends_it_and_is_heard(recorded: Path, tmp_path: Path) -> None:
    def heard(each: Replayed) -> None:
        raise SparringError("no room.") if each.recorded.index else OSError(28, "No space left on device")

    run = RecordedRun.in_folder(recorded)
    for episode, said in ((EpisodeId("toy", "short", 1), "no room"), (EpisodeId("toy", "long", 0), "No space left")):
        with working_folder(tmp_path) as folder, pytest.raises(SparringError, match=said):
            replay(run, [episode], Wanted(now=HERE), folder, heard)


def test_whatever_is_raised_when_told_is_heard(recorded: Path, tmp_path: Path) -> None:
    def heard(each: Replayed) -> None:
        raise TypeError("must be a real number")

    run = RecordedRun.in_folder(recorded)
    with working_folder(tmp_path) as folder, pytest.raises(SparringError, match=r"toy/short#1.*TypeError: must be a"):
        replay(run, [EpisodeId("toy", "short", 1)], Wanted(now=HERE), folder, heard)


def test_an_episode_that_nobody_is_told_of_is_returned_with_the_reason(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no way in which this happens that is known, so it is made up.
    monkeypatch.setattr("sparring.orchestrator.replay.replays._Telling.on_result", lambda self, row: None)
    run = RecordedRun.in_folder(recorded)
    episode = EpisodeId("toy", "short", 1)
    with working_folder(tmp_path) as folder:
        left_out = replay(run, [episode], Wanted(now=HERE), folder, lambda each: None)
    assert left_out == {episode: "nothing came of its replay."}


def test_simulators_draw_on_what_is_there_now(recorded: Path, tmp_path: Path) -> None:
    saved = RecordedRun.in_folder(recorded).document.settings
    assert "render_device" in NOW
    made = ReplaySettings({"render_device": "software"}).of({**saved, "render_device": "7"}, tmp_path, ["toy"])
    assert made.worker.render_device == "software"
    assert ReplaySettings().of({**saved, "render_device": "7"}, tmp_path, ["toy"]).worker.render_device == "auto"


@pytest.mark.parametrize("command", ["film", "export", "verify", "diff"])
def test_the_help_has_flags_on_workers_and_exit_codes_on_lines_of_their_own(command: str) -> None:
    said = CliRunner().invoke(cli, [command, "--help"]).output
    assert "--render-device" in said
    assert "\n  Exit codes: 0 " in said


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        ("long:2,short:0", [("short", 0), ("long", 2)]),
        ("toy/short:1", [("short", 1)]),
        ("all", [(task, index) for task in ("short", "long") for index in range(3)]),
    ],
)
def test_episodes_are_chosen_by_name_in_the_order_of_the_plan(
    recorded: Path, selection: str, chosen: list[tuple[str, int]]
) -> None:
    rows = RecordedRun.in_folder(recorded).choose(selection)
    assert [(row.task, row.index) for row in rows] == chosen


def test_a_name_that_two_episodes_have_is_refused_with_their_full_ones(usage: Sparring) -> None:
    Path("twice.yaml").write_text(
        "policy: toy_policies:Wanderer\nepisodes: 2\nin_process: true\nevaluations:\n"
        "  - {name: calm, benchmark: toy, task: [short, long]}\n"
        "  - {name: noisy, benchmark: toy, task: short, benchmark_arg: {noise: 32}}\n"
    )
    done = usage("run", "--config", "twice.yaml", "--output", "o")
    assert done.returncode == 0, done.stderr
    run = RecordedRun.in_folder(Path("o"))
    with pytest.raises(UsageError, match=r"'short:0' is the name of several.*: calm/short:0, noisy/short:0") as refused:
        run.choose("short:0")
    assert "short:1" not in str(refused.value)
    chosen = run.choose("noisy/short:0,long:1")
    assert [str(row.id) for row in chosen] == ["calm/long#1", "noisy/short#0"]


def test_episodes_are_chosen_by_outcome(recorded: Path) -> None:
    run = RecordedRun.in_folder(recorded)
    by_outcome = {name: {row.id for row in run.choose(name)} for name in ("failures", "successes")}
    assert by_outcome["failures"] | by_outcome["successes"] == set(run.rows)
    assert all(run.rows[episode].outcome == "failure" for episode in by_outcome["failures"])


def test_a_run_without_failures_says_which_episodes_it_has(recorded: Path) -> None:
    run = RecordedRun.in_folder(recorded)
    won = {row.id: row for row in run.choose("successes")}
    with pytest.raises(UsageError, match=r"has no failures\. Choose other episodes: all, successes, or TASK:INDEX"):
        with_other(run, rows=won).choose("failures")
    with pytest.raises(UsageError, match=r"has no failures\.$"):
        with_other(run, rows={}).choose("failures")


@pytest.mark.parametrize(
    ("selection", "said"), [("short:9", "'short:9'"), ("nothing", "'nothing'"), (" , ", "say which episodes")]
)
def test_episodes_that_there_are_not_are_refused(recorded: Path, selection: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RecordedRun.in_folder(recorded).choose(selection)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"watch": ["imagge"]}, "no observation 'imagge' here. There are: image, position, step"),
        ({"seen": {"resolution": 64}}, "no setting 'resolution'.* It has: noise"),
        ({"seen": {"reach": 1.0}}, "no setting 'reach'.* It has: noise"),
    ],
)
def test_what_cannot_be_seen_is_refused_with_what_can(
    recorded: Path, tmp_path: Path, wanted: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        play(RecordedRun.in_folder(recorded), tmp_path, "short:0", **wanted)


def test_a_simulator_that_does_not_repeat_its_episodes_is_not_played_again(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "replays", False)
    with pytest.raises(UsageError, match=r"do not repeat an episode \(replays = False\)"):
        play(RecordedRun.in_folder(recorded), tmp_path)


def test_a_folder_without_actions_says_why_and_what_to_do(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*PLAN, "--no-actions", "--in-process", "--output", "none")
    assert done.returncode == 0, done.stderr
    with pytest.raises(UsageError) as refused:
        play(RecordedRun.in_folder(tmp_path / "none"), tmp_path)
    said = refused.value.told(FLAGS)
    assert "no actions of these episodes (it was run with --no-actions)" in said
    assert "Run the same command without that and with another --output" in said


def test_a_folder_of_an_earlier_release_says_so(tmp_path: Path) -> None:
    from support import ROOT

    old = next((ROOT / "tests" / "fixtures" / "release-0.1.0").rglob("journal.sqlite")).parent
    shutil.copytree(old, tmp_path / "old")
    with pytest.raises(UsageError, match=r"releases before 0\.2 did not keep them"):
        play(RecordedRun.in_folder(tmp_path / "old"), tmp_path)
