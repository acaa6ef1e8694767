"""What images are made from is known beforehand: every file by its hash, and the base by one name for all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT

ENVIRONMENTS = ROOT / "env_worker/environments"
CONSTRAINTS = ROOT / "docker/constraints"
LOCKS = {
    "aloha": [ENVIRONMENTS / "aloha/constraints.txt", ENVIRONMENTS / "aloha/no-deps.txt"],
    "build": [CONSTRAINTS / "build.txt"],
    "libero": [ENVIRONMENTS / "libero/constraints.txt", ENVIRONMENTS / "libero/no-deps.txt"],
    "metaworld": [CONSTRAINTS / "metaworld.txt"],
    "orchestrator": [CONSTRAINTS / "orchestrator.txt"],
    "policy-server": [CONSTRAINTS / "policy-server.txt"],
    "pusht": [ENVIRONMENTS / "pusht/constraints.txt", ENVIRONMENTS / "pusht/no-deps.txt"],
}
EXTRAS = {"libero": ["libero"], "metaworld": ["metaworld"], "orchestrator": ["docker"], "pusht": ["pusht"]}
EXTRAS["aloha"] = ["aloha"]
EXTRAS["policy-server"] = ["metaworld", "metrics"]
ONLY_WITH_TORCH = [
    "filelock",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "safetensors",
    "setuptools",
    "sympy",
    "torch",
]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def versions(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


@pytest.mark.parametrize("image", LOCKS)
def test_a_lock_has_the_versions_that_were_decided_on_and_hashes_and_no_address(image: str) -> None:
    lock = ROOT / "docker/requirements" / f"{image}.txt"
    decided = {name: version for path in LOCKS[image] for name, version in versions(path).items()}
    if image == "policy-server":
        decided = {name: version for name, version in decided.items() if name not in ONLY_WITH_TORCH}
    assert versions(lock) == decided, "run tools/lock-images"
    entries = re.split(r"^(?=\w)", lock.read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) == len(decided)
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", entry), entry


@pytest.mark.parametrize("image", EXTRAS)
def test_a_lock_has_what_the_image_is_for(image: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(r for extra in EXTRAS[image] for r in project["optional-dependencies"][extra])]
    locked = versions(ROOT / "docker/requirements" / f"{image}.txt")
    for requirement in map(Requirement, asked):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_nothing_is_taken_from_an_index_without_a_hash(path: Path) -> None:
    commands = re.findall(r"pip (?:--python \S+ )?((?:install|wheel) .*)", path.read_text())
    unhashed = [c for c in commands if not any(safe in c for safe in ("--require-hashes", "--no-index", "--no-deps"))]
    if path.name.startswith("policy-server"):
        assert len(unhashed) == 1, "with extras of its own"
    else:
        assert unhashed == []
    assert sum("--require-hashes" in c for c in commands) >= 2, "what is depended on, and what builds our code"


def test_all_images_have_one_base_and_say_which() -> None:
    bases = set()
    for path in DOCKERFILES:
        text = path.read_text()
        bases |= set(re.findall(r"^ARG BASE_IMAGE=(\S+)$", text, re.MULTILINE))
        assert 'org.opencontainers.image.base.name="${BASE_IMAGE}"' in text
        stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?", text, re.MULTILINE)
        assert [name for name, _ in stages if name not in {stage for _, stage in stages}] == ["${BASE_IMAGE}"]
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11-slim-bookworm(@sha256:[0-9a-f]{64})?", bases.pop())


def test_a_digest_is_written_into_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, asked = "sha256:" + "5" * 64, tmp_path / "asked"
    shutil.copytree(ROOT / "docker", tmp_path / "docker")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(f'#!/bin/sh\necho "$@" >> {asked}\necho \'{{"digest": "{digest}"}}\'\n')
    (tmp_path / "bin/docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def pin(*flags: str) -> str:
        command = ["bash", str(tmp_path / "tools/pin-base-image"), *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()

    tag = "python:3.11-slim-bookworm"
    before = re.findall(r"^ARG BASE_IMAGE=(\S+)$", DOCKERFILES[0].read_text(), re.MULTILINE)[0]
    assert pin("--print") == (before if "@" in before else f"{tag}@{digest}")
    pin()
    for path in (tmp_path / "docker").glob("*.Dockerfile"):
        assert f"ARG BASE_IMAGE={tag}@{digest}\n" in path.read_text()
    times = len(asked.read_text().splitlines())
    assert pin("--print") == f"{tag}@{digest}"
    assert len(asked.read_text().splitlines()) == times, "what is pinned is not looked up again"
