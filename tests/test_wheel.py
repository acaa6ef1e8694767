"""What `pip install` of a wheel brings: one name, the command, the data files, and a working evaluation."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import EVERYTHING, ROOT, wait_for

pytestmark = pytest.mark.processes

_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
_SECONDS = 600


def clean_environment(home: Path) -> Mapping[str, str]:
    """As of a user who has never seen the checkout: no PYTHONPATH of the tests, no settings of ours."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV")
    kept = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith("SPARRING_")}
    return {**kept, "XDG_DATA_HOME": str(home / "data")}


def tracked(*folders: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    return [name for name in listed.splitlines() if os.path.lexists(ROOT / name)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout: setuptools leaves a folder of what it has built, and builds from it again."""
    folder = tmp_path_factory.mktemp("source")
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_from(source, tmp_path_factory.mktemp("wheel"))


def built_from(source: Path, folder: Path, *flags: str) -> Path:
    command = [sys.executable, *_PIP, "wheel", "--no-deps", *flags, "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True, timeout=_SECONDS, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment, outside the checkout, with the wheel and what it asks for.

    That is installed in `make test-all`. Otherwise it is found in the environment of the tests, by a path file; path
    files in there are not read, so that the checkout stays unknown.
    """
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=_SECONDS)
    python, constraints = folder / "bin" / "python", ROOT / "constraints" / "dev.txt"
    asked = ["-c", str(constraints), f"{wheel}[metaworld]"] if EVERYTHING else ["--no-deps", str(wheel)]
    command = [sys.executable, *_PIP, "--python", str(python), "install", *asked]
    subprocess.run(command, check=True, timeout=_SECONDS, cwd=folder, env=clean_environment(folder))
    if not EVERYTHING:
        (packages,) = (folder / "lib").glob("python*/site-packages")
        (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin"


def said(command: list[str], folder: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**clean_environment(folder), **variables},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_has_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"sparring"}


def test_what_is_installed_has_one_name(installed: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import packages_distributions, version\n"
        "print([name for name, brought_by in packages_distributions().items() if 'sparring' in brought_by])\n"
        "import importlib.util\n"
        "print([n for n in ('protos', 'policy_server', 'env_worker', 'orchestrator') if importlib.util.find_spec(n)])"
    )
    assert said([str(installed / "python"), "-c", code], tmp_path).splitlines() == ["['sparring']", "[]"]


def test_a_wheel_has_all_of_the_code_and_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("sparring/")}
    rooms = tracked("protos", "policy_server", "env_worker", "orchestrator")
    assert {f"sparring/{path}" for path in rooms} <= inside
    assert "sparring/py.typed" in inside


def test_an_episode_runs_from_there(installed: Path, tmp_path: Path) -> None:
    flags = ["--benchmark=metaworld", "--task=reach-v3", "--policy=expert", "--episodes=1", "--json", "--output=out"]
    results = json.loads(said([str(installed / "sparring"), "run", *flags], tmp_path))
    assert results["overall"]["success_rate"] == 1.0


def test_what_is_shipped_beside_the_code_is_found(installed: Path, tmp_path: Path) -> None:
    assert "NAME" in said([str(installed / "sparring"), "env", "create", "libero", "--help"], tmp_path)
    listed = said([str(installed / "sparring"), "env", "ls"], tmp_path)
    assert "libero" in listed
    assert "data/sparring/venvs" in listed
    code = "from importlib.resources import files; print(files('sparring.protos').joinpath('policy.proto').read_text())"
    assert said([str(installed / "python"), "-c", code], tmp_path).startswith("// How a simulator")


def test_an_environment_is_made_of_what_is_installed_without_asking_anybody(
    installed: Path, wheel: Path, tmp_path: Path
) -> None:
    """No index has this sparring, and the wheel that it came from may be anywhere."""
    brought = (
        tmp_path / "gymnasium-1.0-py3-none-any.whl"
    )  # all that the benchmark asks for, so that it takes no network
    with zipfile.ZipFile(brought, "w") as archive:
        archive.writestr("gymnasium.py", "")
        archive.writestr("gymnasium-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: gymnasium\nVersion: 1.0\n")
        archive.writestr(
            "gymnasium-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        archive.writestr("gymnasium-1.0.dist-info/RECORD", "")
    command = [str(installed / "sparring"), "env", "create", "gym", f"--with=./{brought.name}"]
    alone = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_CONFIG_FILE": os.devnull}
    aside = wheel.rename(wheel.with_suffix(".gone"))
    try:
        assert "gym is ready" in said(command, tmp_path, **alone)
    finally:
        aside.rename(wheel)
    (made,) = tmp_path.glob("data/sparring/venvs/gym/lib/python*/site-packages/sparring")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("sparring/"):
                assert (made.parent / name).read_bytes() == archive.read(name), name
    assert "own environment" in said([str(installed / "sparring"), "ls", "benchmarks"], tmp_path)


@pytest.mark.everything
def test_an_environment_of_a_wheel_plays_episodes(installed: Path, tmp_path: Path) -> None:
    """For real: with what an index has of everything but sparring itself."""
    sparring = str(installed / "sparring")
    said([sparring, "env", "create", "gym", "--with=gymnasium"], tmp_path)
    flags = ["--benchmark=gym", "--task=CartPole-v1", "--policy=random", "--episodes=1", "--json", "--output=out"]
    assert json.loads(said([sparring, "run", *flags], tmp_path))["overall"]["n"] == 1
    versions = json.loads((tmp_path / "out" / "run.json").read_text())["versions"]
    assert any("Farama-Notifications" in found for found in versions.values()), "it was played in there"


@pytest.mark.everything
def test_what_others_hold_their_own_work_against_comes_with_it(installed: Path, tmp_path: Path) -> None:
    sparring = str(installed / "sparring")
    few = ("--task=reach-v3", "--steps=3", "--episodes=1")
    assert " 0 failed." in said([sparring, "check", "benchmark", "metaworld", *few], tmp_path)
    assert " 0 failed." in said([sparring, "check", "launcher", "process", "--benchmark=metaworld"], tmp_path)
    socket = f"unix://{tmp_path}/p.sock"
    with subprocess.Popen([sparring, "serve", "--policy=zero", f"--listen={socket}"], cwd=tmp_path) as server:
        try:
            wait_for(lambda: (tmp_path / "p.sock").exists())
            assert " 0 failed." in said([sparring, "check", "policy-server", socket], tmp_path)
        finally:
            server.terminate()


@pytest.mark.everything
def test_an_sdist_makes_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    build = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, timeout=_SECONDS, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    (tmp_path / "wheel").mkdir()
    again = built_from(archive, tmp_path / "wheel", "--no-build-isolation")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(again) as theirs:
        assert set(ours.namelist()) == set(theirs.namelist())
        assert [name for name in ours.namelist() if ours.read(name) != theirs.read(name) and "RECORD" not in name] == []


def test_users_import_from_sparring_itself(installed: Path, tmp_path: Path) -> None:
    code = (
        "from sparring import evaluate, Policy, PolicySpec, PolicyClient, Benchmark, Simulator, Results\n"
        "import sparring\n"
        "assert set(sparring.__all__) <= set(dir(sparring))\n"
        "from google.protobuf import descriptor_pool\n"
        "descriptor_pool.Default().FindFileByName('sparring/protos/policy.proto')\n"
        "print(sparring.__file__)"
    )
    assert "site-packages" in said([str(installed / "python"), "-c", code], tmp_path)


def test_importing_sparring_is_light(tmp_path: Path) -> None:
    """Whoever imports it in a training program or a notebook pays for what is used, when it is used."""
    code = "import sys, sparring; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"grpc", "google", "numpy", "torch", "pydantic", "gymnasium", "rich"} & set(done.stdout.split())


def test_an_unknown_name_is_an_attribute_error() -> None:
    import sparring

    with pytest.raises(AttributeError, match="has no attribute 'Polcy'"):
        _ = sparring.Polcy
