"""Environments of benchmarks: found, judged, made whole or not at all.

Those that are made here are real ones, with a wheel written by hand in the place of sparring: pip needs no network for
it. Each takes seconds, so one test looks at all that one of them can show.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support import ROOT, Sparring, free_port, wait_for
from toy_benchmark import Toy

from sparring.env_worker.benchmark import Benchmark, Simulator, Task
from sparring.env_worker.benchmarks.libero import Libero
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.execution import in_process
from sparring.orchestrator.machine import environment_maker, environments, same_again
from sparring.orchestrator.machine.environment_maker import EnvironmentMaker
from sparring.orchestrator.machine.environments import (
    STAMP,
    EnvironmentFailed,
    _older_aside,
    create,
    environment_state,
    fingerprint,
    interpreter,
    recipes,
    remove,
    state,
    venvs_folder,
)
from sparring.orchestrator.settings import read_settings
from sparring.protos.errors import UsageError

pytestmark = pytest.mark.processes


class Foreign(Benchmark):
    """The toy, as if what it needs were not installed here."""

    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = ""
    requires: ClassVar[Sequence[str]] = ("no_such_simulator",)

    def tasks(self, selection: str) -> Sequence[Task]:
        return []

    def groups(self) -> Mapping[str, Sequence[str]]:
        return {}

    def make(self, task: Task, settings: Any) -> Simulator:
        raise NotImplementedError


def write_wheel(folder: Path, module: str, name: str = "sparring") -> Path:
    wheel = folder / f"{name}-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{module}.py", "")
        archive.writestr(f"{name}-9.9.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
        archive.writestr(
            f"{name}-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-9.9.dist-info/RECORD", "")
    return wheel


@pytest.fixture
def venvs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where environments go; the toy has a recipe."""
    recipe = tmp_path / "recipes" / "toy"
    recipe.mkdir(parents=True)
    (recipe / "constraints.txt").write_text("numpy==1.0\n")
    (recipe / "no-deps.txt").write_text("# nothing\n")
    for kind in (Toy, Foreign):
        monkeypatch.setattr(kind, "environment", recipe)
    wheel = [str(write_wheel(tmp_path, "sparring/env_worker"))]
    monkeypatch.setattr(environment_maker, "requirements", lambda *_: wheel)
    monkeypatch.setenv("SPARRING_VENVS", str(tmp_path / "venvs"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    (tmp_path / "temporary").mkdir()  # what is killed leaves something there
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path / "venvs"


def pretend(folder: Path, recipe: str | None = None, packages: Sequence[str] = ()) -> Path:
    """An environment that looks finished, without the seconds that a real one takes."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / STAMP).write_text(
        json.dumps({"recipe": recipe or fingerprint("toy"), "python": "3.11.7", "with": list(packages)})
    )
    return folder


class TestState:
    def test_what_is_installed_runs_here(self) -> None:
        class Here(Foreign):
            requires: ClassVar[Sequence[str]] = ("json",)

        assert state(Here()).kind == "here"
        assert interpreter(Here()) == Path(sys.executable)

    def test_missing_names_the_command(self, venvs: Path) -> None:
        assert state(Foreign()).kind == "missing"
        with pytest.raises(UsageError, match=r"'toy' cannot be run yet: .* sparring env create toy$"):
            interpreter(Foreign())

    def test_missing_without_a_recipe_names_what_brings_it(self) -> None:
        with pytest.raises(
            UsageError, match=r"install what brings no_such_simulator into this Python .*; no extra of toy-b"
        ):
            interpreter(Foreign())

        class Ours(Foreign):
            name: ClassVar[str] = "gym"
            extra: ClassVar[str] = "gym"

        with pytest.raises(UsageError, match=r"needs no_such_simulator: pip install 'sparring\[gym\]'"):
            interpreter(Ours())

    def test_an_extra_that_there_is_not_is_not_advised(self) -> None:
        class Pointworld(Foreign):
            name: ClassVar[str] = "pointworld"
            extra: ClassVar[str] = "pointworld"

        with pytest.raises(UsageError) as caught:
            interpreter(Pointworld())
        assert "pip install" not in str(caught.value)
        assert "install what brings no_such_simulator into this Python" in str(caught.value)

    def test_ready(self, venvs: Path) -> None:
        folder = pretend(venvs / "toy")
        assert state(Foreign()).kind == "ready"
        assert interpreter(Foreign()) == folder / "bin" / "python"

    @pytest.mark.parametrize("gone", [STAMP, "bin/python"])
    def test_half_made(self, venvs: Path, gone: str) -> None:
        (pretend(venvs / "toy") / gone).unlink()
        assert state(Foreign()).kind == "half-made"
        with pytest.raises(UsageError, match="sparring env create toy"):
            interpreter(Foreign())

    @pytest.mark.parametrize("nonsense", ["", "{", "[]", "1"])
    def test_a_stamp_that_makes_no_sense_is_none(self, venvs: Path, nonsense: str) -> None:
        (pretend(venvs / "toy") / STAMP).write_text(nonsense)
        assert environment_state("toy").kind == "half-made"

    @pytest.mark.parametrize("file", ["constraints.txt", "no-deps.txt"])
    def test_stale_when_the_recipe_changes(self, venvs: Path, tmp_path: Path, file: str) -> None:
        pretend(venvs / "toy")
        (tmp_path / "recipes" / "toy" / file).write_text("numpy==2.0\n")
        assert state(Foreign()).kind == "stale"
        with pytest.raises(UsageError, match=r"other versions.* sparring env create toy"):
            interpreter(Foreign())


class TestPackagesOfOnesOwn:
    """`sparring env create toy --with PACKAGE`, where the toy itself is installed here."""

    def test_what_was_made_with_them_comes_first(self, venvs: Path) -> None:
        pretend(venvs / "toy")
        assert state(Toy()).kind == "here", "nothing is in there that is not here"
        (venvs / "toy" / STAMP).unlink()
        assert state(Toy()).kind == "here", "it is not finished"
        remove("toy")
        folder = pretend(venvs / "toy", packages=["gym-aloha==0.1.5", "a b"])
        assert interpreter(Toy()) == folder / "bin" / "python"
        assert state(Toy()).detail.endswith("with gym-aloha==0.1.5, a b")

    def test_a_stale_one_is_not_passed_over(self, venvs: Path) -> None:
        """What it was made for is not here: whoever went on here would miss it, or take another version."""
        pretend(venvs / "toy", recipe="another", packages=["gym-aloha", "a b"])
        with pytest.raises(UsageError, match=r"anew with: sparring env create toy --with=gym-aloha '--with=a b'$"):
            interpreter(Toy())

    def test_it_is_played_in_no_other_process(self, venvs: Path) -> None:
        pretend(venvs / "toy", packages=["gym-aloha"])
        settings = read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "in_process": True})
        with pytest.raises(UsageError, match=r"this Python lacks gym-aloha\. It has another"):
            in_process.check(settings)

    def test_they_are_installed_kept_and_recorded(self, venvs: Path, tmp_path: Path, usage: Sparring) -> None:
        mine = write_wheel(tmp_path, "my_env", name="my_env")
        done = usage("env", "create", "toy", f"--with=./{mine.name}")
        assert done.returncode == 0, done.stderr
        python = venvs / "toy/bin/python"
        assert interpreter(Toy()) == python
        told = (
            "from sparring.env_worker.registry import *; import my_env, json; print(json.dumps(installed_versions()))"
        )
        ours = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, sys.path)])}
        said = subprocess.run([python, "-c", told], env=ours, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(said.stdout)["my_env"] == "9.9", "a run says which versions its packages have"

        assert create("toy") == python, "not named again, they stay"
        again = subprocess.run([python, "-I", "-c", "import my_env"], timeout=60, check=False)
        assert again.returncode == 0
        assert environment_state("toy").packages == (str(mine),), "by a path that is the same from every folder"
        assert usage("env", "remove", "toy").stdout == "The environment toy is removed.\n"
        assert state(Toy()).kind == "here"
        assert usage("env", "remove", "toy").stdout == "There is no environment toy.\n"


class TestPlaces:
    def test_the_variable_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARRING_VENVS", str(tmp_path))
        assert venvs_folder() == tmp_path

    def test_in_the_source_checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARRING_VENVS", raising=False)
        assert venvs_folder() == ROOT / ".venvs"
        assert environment_maker.requirements(Libero(), tmp_path) == ["-e", f"{ROOT}[libero]"]
        both = ["-e", str(ROOT), "toy-benchmark==1.0"]
        assert environment_maker.requirements(Toy(), tmp_path) == both, "and what brings it"

    def test_of_an_installed_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARRING_VENVS", raising=False)
        monkeypatch.setattr(same_again, "SOURCE", tmp_path / "site-packages/sparring")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        assert venvs_folder() == tmp_path / "data/sparring/venvs"
        monkeypatch.delenv("XDG_DATA_HOME")
        assert venvs_folder() == Path.home() / ".local/share/sparring/venvs"


class TestCreate:
    def test_what_is_stale_is_made_anew_then_found(self, venvs: Path, capfd: pytest.CaptureFixture[str]) -> None:
        pretend(venvs / "toy", recipe="another")
        python = create("toy")
        assert interpreter(Foreign()) == python == venvs / "toy/bin/python"
        subprocess.run([python, "-I", "-c", "import sparring.env_worker"], check=True, timeout=60)
        said = capfd.readouterr()
        assert "environment toy [2/4]: installing sparring" in said.err
        assert said.out == ""
        assert "Successfully installed sparring-9.9" in (venvs / "toy.log").read_text()
        assert sorted(os.listdir(venvs)) == ["toy", "toy.lock", "toy.log"]

        assert create("toy") == python
        assert capfd.readouterr().err == "", "what is ready is not made again"

    def test_offline(self, venvs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{free_port()}/simple")
        monkeypatch.setattr(environment_maker, "requirements", lambda *_: ["no-such-package==1"])
        with pytest.raises(
            EnvironmentFailed,
            match=r"cannot be reached, or has no no-such-package==1\. .*\n.*toy.log' ends with:\n(.*\n)*.*no-such",
        ):
            create("toy")
        assert environment_state("toy").kind == "missing"

    def test_what_lacks_its_purpose_fails_and_leaves_the_older_one(
        self, venvs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pretend(venvs / "toy", recipe="older")
        wheel = [str(write_wheel(tmp_path, "something"))]
        monkeypatch.setattr(environment_maker, "requirements", lambda *_: wheel)
        with pytest.raises(EnvironmentFailed, match=r"a command failed(.*\n)*not installed after all: sparring\.env"):
            create("toy", force=True)
        assert "older" in (venvs / "toy" / STAMP).read_text()
        assert not (venvs / "toy.older").exists()

    def test_a_folder_that_cannot_be_written(self, venvs: Path) -> None:
        venvs.write_text("a file where the folder should be")
        with pytest.raises(EnvironmentFailed, match="SPARRING_VENVS"):
            create("toy")

    def test_names(self, venvs: Path) -> None:
        with pytest.raises(UsageError, match=r"unknown benchmark 'tpy'.*'toy'"):
            create("tpy")
        with pytest.raises(UsageError, match=r"'metaworld' has no environment.*pip install 'sparring\[metaworld\]'"):
            create("metaworld")
        with pytest.raises(UsageError, match=r"'metaworld' has no environment.*: aloha, gym, libero, pusht, toy"):
            remove("metaworld")
        with pytest.raises(UsageError, match=r"'--pre' is not a package.*PIP_INDEX_URL"):
            create("toy", packages=["--pre"])


class TestInterruptions:
    def start(self, venvs: Path, requirement: str) -> subprocess.Popen[str]:
        code = (
            "from pathlib import Path\n"
            "from sparring.orchestrator.machine import environment_maker, environments\n"
            "from toy_benchmark import Toy\n"
            f"Toy.environment = Path({str(Toy.environment)!r})\n"
            f"environment_maker.requirements = lambda *_: [{requirement!r}]\n"
            "environments.create('toy', force=True)\n"
        )
        return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)

    def test_ctrl_c_brings_the_older_one_back(self, venvs: Path, tmp_path: Path) -> None:
        pretend(venvs / "toy")
        before = (venvs / "toy" / STAMP).read_text()
        with socket.create_server(("127.0.0.1", 0)) as silent:  # pip waits for it until it is interrupted
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/sparring-9.9-py3-none-any.whl"
            process = self.start(venvs, url)
            silent.settimeout(60)
            silent.accept()[0].close()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode != 0
        assert (venvs / "toy" / STAMP).read_text() == before
        assert not (venvs / "toy.older").exists()
        assert list((tmp_path / "temporary").iterdir()) == [], "pip has left something"

    @pytest.mark.everything
    def test_the_killed_leave_a_half_made_one_and_a_lock_that_lasts_as_long_as_pip(self, venvs: Path) -> None:
        pretend(venvs / "toy")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/sparring-9.9-py3-none-any.whl"
            process = self.start(venvs, url)
            silent.settimeout(60)
            connection = silent.accept()[0]
            process.kill()
            process.communicate(timeout=60)
            assert environment_state("toy").kind == "half-made"

            second = self.start(venvs, str(write_wheel(venvs.parent, "sparring/env_worker")))
            assert second.stderr is not None
            assert "another process makes the environment 'toy'; waiting" in second.stderr.readline()
            connection.close()  # and the listener with it: pip gives up
        second.communicate(timeout=100)
        assert second.returncode == 0
        wait_for(lambda: sorted(os.listdir(venvs)) == ["toy", "toy.lock", "toy.log"])

    def test_killed_twice_the_older_one_is_still_there(self, venvs: Path) -> None:
        pretend(venvs / "toy.older", recipe="older")
        (venvs / "toy").mkdir()
        with pytest.raises(KeyboardInterrupt), _older_aside(venvs / "toy"):
            raise KeyboardInterrupt
        assert "older" in (venvs / "toy" / STAMP).read_text()


class TestRecipes:
    """The recipes that sparring brings. That of gym pins nothing: it is for packages that only its user knows."""

    PINNED: ClassVar[Sequence[str]] = [name for name in recipes() if name != "gym"]

    def recipe(self, name: str) -> Path:
        folder = get_benchmark(name).environment
        assert folder is not None
        return folder

    def pins(self, file: Path) -> dict[str, str]:
        lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        found = dict(line.split("==") for line in lines)
        return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found.items()}

    def test_every_version_is_pinned_and_torch_is_not_among_them(self) -> None:
        for name in self.PINNED:
            folder = self.recipe(name)
            pinned = self.pins(folder / "constraints.txt") | self.pins(folder / "no-deps.txt")
            assert not {"torch", "torchvision", "transformers", "wandb", "robomimic"} & pinned.keys()

    def test_what_talks_to_the_orchestrator_is_the_same_everywhere(self) -> None:
        developed_with = self.pins(ROOT / "constraints" / "dev.txt")
        for name in self.PINNED:
            pinned = self.pins(self.recipe(name) / "constraints.txt")
            for package in ("grpcio", "protobuf", "numpy", "rich", "click", "pydantic"):
                assert pinned[package] == developed_with[package], (name, package)


class TestElsewhere:
    """Environments on storage that others share: `--prefix`."""

    def test_one_is_made_there_found_made_again_and_removed(
        self, venvs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for kind in (Toy, Foreign):
            monkeypatch.setattr(kind, "environment", None)  # without a recipe, it has the versions that are here
        monkeypatch.setattr(Toy, "requires", ())
        with pytest.raises(
            UsageError, match=r"no environment of its own.* In a folder that is named, any may have one"
        ):
            create("toy")
        shared = tmp_path / "shared"
        python = create("toy", prefix=shared)
        assert python == shared / "toy" / "bin" / "python"
        assert "toy" in recipes()
        assert interpreter(Foreign()) == python, "by its own path: nodes may not see the link"
        assert interpreter(Toy()) == python, "though it could be run here"
        made = (shared / "toy" / STAMP).stat().st_mtime_ns
        assert create("toy") == python
        assert create("toy", prefix=shared) == python
        assert (shared / "toy" / STAMP).stat().st_mtime_ns == made
        assert "versions-here.txt" in (shared / "toy.log").read_text()
        assert remove("toy")
        assert not (shared / "toy").exists()
        assert not (venvs / "toy").is_symlink()
        assert state(Toy()).kind == "here"

    @pytest.mark.parametrize("place", ["toy", "toy.older"])
    @pytest.mark.parametrize("has", ["thesis.tex", "pyvenv.cfg"])
    def test_what_we_have_not_made_is_left_alone(self, place: str, has: str, venvs: Path, tmp_path: Path) -> None:
        """A user's own environment, too: it has a pyvenv.cfg, and what they have put there."""
        theirs = tmp_path / "shared" / place / has
        theirs.parent.mkdir(parents=True)
        theirs.write_text("years of work")
        with pytest.raises(UsageError, match="is there already, and was not made by `sparring env create`"):
            create("toy", prefix=tmp_path / "shared")
        assert theirs.read_text() == "years of work"

    @pytest.mark.parametrize("name", ["toy", "toy.older", "toy.lock", "toy.log"])
    def test_links_of_others_are_not_followed(
        self, name: str, venvs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stopped(*_: object) -> None:
            raise EnvironmentFailed("stopped")

        shared, victim = tmp_path / "shared", tmp_path / "victim"
        shared.mkdir()
        victim.write_text("of somebody else")
        (shared / name).symlink_to(victim)
        monkeypatch.setattr(EnvironmentMaker, "_running", stopped)  # nothing is installed: what comes before is tested
        with pytest.raises((UsageError, EnvironmentFailed)):
            create("toy", prefix=shared)
        assert victim.read_text() == "of somebody else"

    def test_one_that_was_begun_is_finished(self, venvs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def stopped(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(EnvironmentMaker, "_step", stopped)
        monkeypatch.setattr(environments, "_remove", lambda folder: None)  # as if it had been killed
        with pytest.raises(KeyboardInterrupt):
            create("toy", prefix=tmp_path)
        monkeypatch.undo()
        assert (tmp_path / "toy").is_dir()
        environments._check_prefix(tmp_path / "toy")
