"""`sparring film`: films of recorded episodes, afterwards, from the cameras that somebody wants to see."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import av
import gymnasium
import numpy as np
import pytest
from support import ROOT, Sparring

from sparring.env_worker.episode.film_file import GifFile
from sparring.orchestrator.machine.owner import owner
from sparring.orchestrator.replay.replays import working_folder
from sparring.orchestrator.results.journal import Journal

HERE = "--in-process"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two episodes, which fail, and one that succeeds."""
    from toy_policies import Forward

    from sparring import Evaluator

    folder = tmp_path_factory.mktemp("pristine") / "run"
    with Evaluator() as evaluator:
        evaluator.evaluate(
            Forward(gain=0.8), benchmark="toy", tasks="short", episodes=3, in_process=True, output=folder, seed=7
        )
    return folder


@pytest.fixture
def recorded(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it, to be filmed."""
    shutil.copytree(pristine, tmp_path / "run")
    return tmp_path / "run"


def rows(folder: Path) -> dict[int, sqlite3.Row]:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        journal.row_factory = sqlite3.Row
        return {row["index"]: row for row in journal.execute("SELECT * FROM episodes")}


def frames(path: Path) -> list[np.ndarray[Any, Any]]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def film(usage: Sparring, *more: str) -> tuple[int, dict[str, Any], str]:
    done = usage("film", "run", HERE, "--json", *more)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_what_failed_is_filmed_and_the_run_is_as_it_was(usage: Sparring, recorded: Path) -> None:
    before = {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()}
    code, told, _ = film(usage)
    failed = sorted(index for index, row in rows(recorded).items() if row["outcome"] == "failure")
    assert failed
    assert len(failed) < 3
    names = [f"short_{index:04d}_failure.mp4" for index in failed]
    assert (code, sorted(path.name for path in (recorded / "films").iterdir())) == (0, names)
    assert told["films"] == {f"toy/short#{i}": f"run/films/{n}" for i, n in zip(failed, names, strict=True)}
    assert told["missing"] == {}
    assert len(frames(recorded / "films" / names[0])) == rows(recorded)[failed[0]]["steps"] + 1
    assert {path: path.read_bytes() for path in before} == before


def test_cameras_stand_side_by_side(usage: Sparring, recorded: Path, tmp_path: Path) -> None:
    code, told, _ = film(usage, "--episodes", "short:1", "--camera", "image,above", "--output", "out", "--fps", "10")
    assert code == 0
    shots = frames(tmp_path / "out" / Path(told["films"]["toy/short#1"]).name)
    assert shots[0].shape == (24, 32, 3)
    steps = rows(recorded)[1]["steps"]
    assert len(shots) == steps // 2 + 1 + steps % 2, "20 steps a second, 10 frames, and the end"
    above = [float(shot[:, 24:].mean()) for shot in shots]
    assert above == sorted(above), "this camera of the toy gets brighter with each step"
    assert above[-1] - above[0] > 60
    assert float(shots[-1][20:, :8].mean()) < 40, "the smaller picture is filled up with black"


def test_an_overlay_stands_under_the_picture(usage: Sparring, recorded: Path, tmp_path: Path) -> None:
    for name, more in (("plain", ()), ("over", ("--overlay",))):
        assert film(usage, "--episodes", "short:1", "--output", name, *more)[0] == 0
    (plain,), (over,) = ([*(tmp_path / name).iterdir()] for name in ("plain", "over"))
    assert frames(plain)[0].shape == (16, 16, 3)
    height, width, _ = frames(over)[0].shape
    assert width == 240, "so narrow a picture is enlarged"
    assert height > 240
    strips = [shot[242:] for shot in frames(over)]
    assert strips[0].max() > 150, "nothing is written there"
    assert np.abs(strips[1].astype(int) - strips[5].astype(int)).max() > 100, "each step says the same"


def test_a_gif_has_every_frame(usage: Sparring, recorded: Path, tmp_path: Path) -> None:
    from PIL import Image

    code, told, _ = film(usage, "--episodes", "short:1", "--format", "gif", "--camera", "above", "--output", "out")
    assert code == 0
    with Image.open(tmp_path / told["films"]["toy/short#1"]) as gif:
        assert (gif.format, gif.size, gif.n_frames) == ("GIF", (16, 24), rows(recorded)[1]["steps"] + 1)


def test_a_gif_keeps_the_colour_of_what_is_small_and_bright() -> None:
    from PIL import Image

    areas = [(150, 115, 90), (170, 25, 30), (125, 122, 115), (235, 235, 232), (60, 60, 62), (100, 75, 60)]
    shades = np.linspace(-25, 25, 240)[None, :, None] + np.random.default_rng(0).normal(0, 6, (240, 240, 3))
    frame = (np.repeat(np.array(areas), 40, axis=0)[:, None] + shades).clip(0, 255).astype(np.uint8)
    frame[100:110, 100:103] = bright = (20, 225, 230)
    gif = GifFile(10)
    gif.add(frame)
    with Image.open(gif.finish()) as opened:
        shown = np.asarray(opened.convert("RGB")).astype(int)
    assert np.abs(shown[100:110, 100:103] - bright).mean() < 10
    assert np.abs(shown - frame).mean() < 5
    gif.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--camera", "top"), "there is no camera 'top' here. There are: image, above."),
        (("--camera", "image,position"), "there is no camera 'position' here"),
        (("--camera", ","), "--camera names no camera"),
        (("--resolution", "64"), "the benchmark 'toy' has no setting 'resolution'"),
        (("--episodes", "short:7"), "'short:7'"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(
    usage: Sparring, recorded: Path, more: tuple[str, ...], said: str
) -> None:
    code, _, told = film(usage, *more)
    assert code == 2
    assert said in told
    assert not list(recorded.glob("films/*"))


def test_there_is_no_film_of_another_episode(usage: Sparring, recorded: Path) -> None:
    with closing(sqlite3.connect(recorded / "journal.sqlite", isolation_level=None)) as journal:
        take = '(SELECT content FROM actions WHERE "index" = 0)'
        journal.execute(f'UPDATE actions SET content = substr({take}, 1, 40) WHERE "index" = 1')
        journal.execute('DELETE FROM actions WHERE "index" = 2')
    code, told, said = film(usage, "--episodes", "all")
    assert code == 3
    assert list(told["films"]) == ["toy/short#0"]
    assert "cannot be read" in told["missing"]["toy/short#1"]
    assert told["missing"]["toy/short#2"] == "its actions are missing."
    assert "there is no film of toy/short#1" in said
    assert said.count("cannot be read") == 1, "no worker needs to try, and to try again"
    with closing(sqlite3.connect(recorded / "journal.sqlite", isolation_level=None)) as journal:
        journal.execute("UPDATE actions SET content = substr(content, 1, 40)")
    code, told, _ = film(usage, "--episodes", "all")
    assert (code, told["films"], len(told["missing"])) == (3, {}, 3)


def test_a_bundle_is_filmed_where_it_is_said(usage: Sparring, recorded: Path, tmp_path: Path) -> None:
    assert usage("bundle", "run", "--output", "b.zip").returncode == 0
    shutil.rmtree(recorded)
    done = usage("film", "b.zip", HERE, "--episodes", "all")
    assert (done.returncode, "name one with --output" in done.stderr) == (2, True)
    done = usage("film", "b.zip", HERE, "--episodes", "all", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "out").iterdir()]) == 3


class Lamp(gymnasium.Env):
    """An environment that draws only if it is made to: the brighter, the more steps were made."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = np.zeros(1, np.float32)
        return self.state, {}

    def step(self, action: Any) -> Any:
        self.state = self.state + 1
        return self.state, float(action[0]), False, False, {"success": False}

    def render(self) -> Any:
        return None if self.render_mode is None else np.full((16, 16, 3), 20 * self.state[0], np.uint8)


def test_an_environment_that_was_played_without_images_is_filmed_and_seen_afterwards(
    usage: Sparring, tmp_path: Path
) -> None:
    gymnasium.register("Lamp-v0", Lamp, max_episode_steps=8)
    plan = ("--benchmark", "gym", "--task", "Lamp-v0", "--policy", "random", "--episodes", "1")
    assert usage("run", *plan, HERE, "--output", "run").returncode == 0
    code, told, said = film(usage)
    assert code == 0, said
    (shown,) = told["films"].values()
    brightness = [float(shot.mean()) for shot in frames(tmp_path / shown)]
    assert brightness == pytest.approx([20 * step for step in range(9)], abs=4)

    for name, images in (("numbers", ()), ("images", ("--observation", "observation.image"))):
        done = usage("export", "run", name, "--format", "npz", HERE, *images)
        assert done.returncode == 0, done.stderr
        with np.load(next((tmp_path / name).rglob("*.npz"))) as archive:
            seen = {each.removeprefix("observations/"): archive[each] for each in archive if "observations/" in each}
        if images:
            assert seen["observation.image"].mean((1, 2, 3)).tolist() == [20 * step for step in range(9)]
        else:
            assert list(seen) == ["observation"], "nobody has asked for images"


def test_a_run_that_is_still_going_is_filmed_as_far_as_it_is(usage: Sparring, recorded: Path) -> None:
    document = json.loads((recorded / "run.json").read_text())
    (recorded / "run.json").write_text(json.dumps({**document, "status": "running", "episodes": 9}))
    with closing(Journal(recorded)):  # as the run has it open
        code, told, said = film(usage, "--episodes", "short:0")
        assert (code, list(told["films"])) == (0, ["toy/short#0"])
        assert "is still going" in said
        code, _, said = film(usage, "--episodes", "short:8")
        assert (code, "has not ended yet: the run is still going" in said) == (2, True)


def test_a_full_disk_ends_it_with_a_sentence_and_leaves_what_is_made(
    usage: Sparring, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A small disk needs root, so the second film finds none left: the call that would write it says so.
    replace, calls = Path.replace, []

    def full(self: Path, target: Path) -> Path:
        if Path(target).parent.name == "films":
            calls.append(target)
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    code, _, said = film(usage, "--episodes", "all")
    assert code == 1
    assert "cannot be written: No space left on device" in said
    assert [path.suffix for path in (recorded / "films").iterdir()] == [".mp4"]


def test_a_benchmark_that_is_not_here_is_told(usage: Sparring, recorded: Path) -> None:
    content = json.loads((recorded / "run.json").read_text().replace('"toy"', '"elsewhere"'))
    (recorded / "run.json").write_text(
        json.dumps({**content, "protocols": {}})
    )  # which have a hash of what they are of
    with closing(sqlite3.connect(recorded / "journal.sqlite", isolation_level=None)) as journal:
        journal.execute("UPDATE episodes SET benchmark = 'elsewhere', checksum = 0")
        journal.execute("UPDATE actions SET benchmark = 'elsewhere'")
    code, _, said = film(usage, "--episodes", "all")
    assert code == 2
    assert "unknown benchmark 'elsewhere'" in said


def test_a_benchmark_that_is_known_and_not_installed_is_told_with_the_command_that_installs_it(
    usage: Sparring, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (recorded / "run.json").read_text().replace('"toy"', '"libero"').replace('"short"', '"libero_goal/8"')
    (recorded / "run.json").write_text(json.dumps({**json.loads(text), "protocols": {}}))
    with closing(sqlite3.connect(recorded / "journal.sqlite", isolation_level=None)) as journal:
        journal.execute("UPDATE episodes SET benchmark = 'libero', task = 'libero_goal/8', checksum = 0")
        journal.execute("UPDATE actions SET benchmark = 'libero', task = 'libero_goal/8'")
    monkeypatch.setenv("SPARRING_VENVS", str(tmp_path / "nowhere"))
    for command in (("film", "run", "--episodes", "all"), ("export", "run", "out", "--format", "npz")):
        done = usage(*command)
        assert (done.returncode, "sparring env create libero" in done.stderr) == (2, True), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"], "something was left"


def test_a_folder_of_an_earlier_release_says_why_not(usage: Sparring, tmp_path: Path) -> None:
    old = next((ROOT / "tests" / "fixtures" / "release-0.1.0").rglob("journal.sqlite")).parent
    shutil.copytree(old, tmp_path / "run")
    code, _, said = film(usage, "--episodes", "all")
    assert code == 2
    assert "releases before 0.2 did not keep them" in said
    assert "Run the same command with another --output" in said


def test_what_was_interrupted_before_the_first_film_leaves_no_folder(
    usage: Sparring, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)  # the handler runs when the main thread comes to it

    # At the first episode, where nothing is filmed yet.
    monkeypatch.setattr("sparring.orchestrator.execution.in_process.run_in_process", interrupted)
    (tmp_path / "here").mkdir()
    for output, left in (("new/films", "new"), ("here", "")):
        code, _, said = film(usage, "--episodes", "all", "--output", output)
        assert code == 130, said
        assert not left or not (tmp_path / left).exists()
    assert list((tmp_path / "here").iterdir()) == [], "what was there stays, and is as it was"


def test_what_a_killed_one_has_left_is_removed_by_the_next(usage: Sparring, recorded: Path) -> None:
    (recorded / "films").mkdir()
    whose = {"dead": owner().rpartition("/")[0] + "/1", "alive": owner(), "elsewhere": "another-machine/boot/1/1"}
    for name, label in whose.items():
        (recorded / "films" / f".replay-{name}" / "run").mkdir(parents=True)
        (recorded / "films" / f".replay-{name}" / "owner").write_text(label)
        (recorded / "films" / f".replay-{name}" / "run" / "large").write_bytes(bytes(1000))
    (recorded / "elsewhere").mkdir()
    (recorded / "elsewhere" / "owner").write_text(whose["dead"])
    (recorded / "films" / ".replay-link").symlink_to(recorded / "elsewhere")
    code, told, _ = film(usage, "--episodes", "short:0")
    assert (code, len(told["films"])) == (0, 1)
    left = sorted(path.name for path in (recorded / "films").iterdir() if path.name.startswith("."))
    assert left == [".replay-alive", ".replay-elsewhere", ".replay-link"]
    assert (recorded / "elsewhere" / "owner").exists(), "no link is followed"


def test_a_working_folder_is_known_as_its_own(tmp_path: Path) -> None:
    with working_folder(tmp_path), working_folder(tmp_path):
        assert len(list(tmp_path.glob(".replay-*"))) == 2, "the second has removed the first"
    assert list(tmp_path.iterdir()) == []
