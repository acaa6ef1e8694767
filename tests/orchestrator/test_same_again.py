"""The same distribution once more, whatever it was installed from: a clone, a wheel that is gone by now, an sdist."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from support import ROOT

from sparring.orchestrator.machine import same_again
from sparring.orchestrator.machine.same_again import known_by, pack, requirement, source_checkout

FILES = {
    "mine/__init__.py": "answer = 42",
    "mine/data, with commas.txt": "data",
    "mine-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: mine\nVersion: 1.5\nProvides-Extra: extra\n",
    "mine-1.5.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\nTag: py2-none-any\n",
    "mine-1.5.dist-info/entry_points.txt": "[console_scripts]\nmine = mine:main\n",
}


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def install(wheel: Path, folder: Path) -> Distribution:
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, timeout=60)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True, timeout=60)
    (information,) = folder.glob("lib/python*/site-packages/mine-1.5.dist-info")
    return Distribution.at(information)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distribution:
    """As pip leaves it: bytecode, a command, direct_url.json; the wheel that it came from is gone."""
    wheel = tmp_path / "mine-1.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        quoted = "".join(f'"{name}",sha256={digest(text)},{len(text)}\n' for name, text in FILES.items())
        archive.writestr("mine-1.5.dist-info/RECORD", f"{quoted}mine-1.5.dist-info/RECORD,,\n")
    found = install(wheel, tmp_path / "first")
    assert "file:" in (found.read_text("direct_url.json") or ""), "pip says where it came from"
    wheel.unlink()
    monkeypatch.setattr(same_again, "distribution", lambda _: found)
    return found


@pytest.mark.processes
def test_what_is_installed_is_packed_and_installed_again(installed: Distribution, tmp_path: Path) -> None:
    before = known_by("mine", "extra")
    (asked,) = requirement("mine", "extra", tmp_path)
    wheel = tmp_path / "mine-1.5-py3-none-any.whl"
    assert asked == f"mine[extra] @ {wheel.as_uri()}"
    with zipfile.ZipFile(wheel) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist() if "RECORD" not in name} == FILES
    again = install(wheel, tmp_path / "second")
    assert (tmp_path / "second/bin/mine").exists(), "commands are made anew"
    assert {str(path): path.hash for path in again.files or ()}.keys() == {
        str(path): path.hash for path in installed.files or ()
    }.keys()
    assert known_by("mine", "extra") == before, "packing changes nothing"
    assert before[0] == "mine[extra]==1.5"
    assert known_by("mine", "") != before


@pytest.mark.processes
def test_another_code_of_the_same_version_is_another(installed: Distribution) -> None:
    before = known_by("mine", "")
    record = Path(str(installed.locate_file("mine-1.5.dist-info/RECORD")))
    record.write_text(record.read_text().replace(digest("answer = 42"), digest("answer = 43")))
    assert known_by("mine", "") != before


@pytest.mark.processes
def test_what_is_not_whole_is_asked_of_the_index(installed: Distribution, tmp_path: Path) -> None:
    Path(str(installed.locate_file("mine/__init__.py"))).unlink()
    assert requirement("mine", "extra", tmp_path) == ["mine[extra]==1.5"]
    assert known_by("mine", "extra") == ["mine[extra]==1.5"]


@pytest.mark.processes
def test_an_editable_one_stays_editable(installed: Distribution, tmp_path: Path) -> None:
    origin = {"url": "file:///some%20where/mine", "dir_info": {"editable": True}}
    Path(str(installed.locate_file("mine-1.5.dist-info/direct_url.json"))).write_text(json.dumps(origin))
    assert requirement("mine", "extra", tmp_path) == ["-e", "/some where/mine[extra]"]


def test_a_clone_and_an_unpacked_sdist_are_known_as_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert source_checkout() == ROOT
    code = tmp_path / "sparring-1.0" / "src" / "sparring"
    code.mkdir(parents=True)
    monkeypatch.setattr(same_again, "SOURCE", code)
    assert source_checkout() is None
    (tmp_path / "sparring-1.0" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert source_checkout() is None
    (tmp_path / "sparring-1.0" / "pyproject.toml").write_text('[project]\nname = "sparring"\n')
    assert source_checkout() == tmp_path / "sparring-1.0"


def test_packing_says_where_the_wheel_is(tmp_path: Path) -> None:
    """Of a distribution that is really installed here, with whatever pip made of it."""
    pluggy = Distribution.from_name("pluggy")
    wheel = pack(pluggy, tmp_path)
    assert wheel.name == f"pluggy-{pluggy.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        assert not [name for name in archive.namelist() if name.endswith((".pyc", "direct_url.json", "INSTALLER"))]
