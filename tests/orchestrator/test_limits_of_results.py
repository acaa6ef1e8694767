"""What is read, kept and told of results at most: what just fits, and what is one more."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sparring.orchestrator.cli.commands import verify
from sparring.orchestrator.comparison import planning, significance
from sparring.orchestrator.comparison.planning import Difference, episodes_for_half_width, pairs_needed
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay import bundle
from sparring.orchestrator.replay.bundle import opened, write_bundle
from sparring.orchestrator.replay.verification import CheckedEpisode
from sparring.orchestrator.results import document, files, finite, json_text, makers
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.results.files import read_bytes
from sparring.protos.errors import SparringError, UsageError


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two tasks, an episode each."""
    from toy_policies import Wanderer

    from sparring import Evaluator

    folder = tmp_path_factory.mktemp("pristine") / "run"
    with Evaluator() as evaluator:
        evaluator.evaluate(Wanderer(), benchmark="toy", tasks="short,long", episodes=1, in_process=True, output=folder)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "run"))


def test_episodes_of_a_plan(folder: Path) -> None:
    about = json.loads((folder / "run.json").read_text())
    half = document.MOST_EPISODES // 2  # of two tasks
    (folder / "run.json").write_text(json.dumps({**about, "episodes": half}))
    assert read_document(folder).episodes == half
    (folder / "run.json").write_text(json.dumps({**about, "episodes": half + 1}))
    with pytest.raises(UsageError, match="its plan has more than 10,000,000 episodes"):
        read_document(folder)


def test_bytes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    assert read_bytes(tmp_path / "a", 10) == b"x" * 10
    with pytest.raises(OSError, match="it has more than 9 bytes"):
        read_bytes(tmp_path / "a", 9)
    assert inspect.signature(read_bytes).parameters["most"].default == files.MOST_BYTES


def test_what_json_holds_and_how_long_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (folder / "run.json").read_bytes()
    parts = sum(content.count(one) for one in (b",", b"[", b"{"))
    monkeypatch.setattr(json_text, "_MOST_PARTS", parts)
    monkeypatch.setattr(document, "MOST_TEXT", len(content))
    assert read_document(folder).recorded == 2
    (folder / "run.json").write_bytes(content + b" ")
    with pytest.raises(UsageError, match=f"it has more than {len(content):,} bytes"):
        read_document(folder)
    (folder / "run.json").write_bytes(content)
    monkeypatch.setattr(json_text, "_MOST_PARTS", parts - 1)
    with pytest.raises(UsageError, match=f"is damaged: it holds more than {parts - 1:,} things"):
        read_document(folder)
    assert json_text.MOST_TEXT == 256 << 20


def test_a_short_bundle_does_not_become_a_long_list(folder: Path, tmp_path: Path) -> None:
    """Of its bytes, each third one would be a list of its own, which takes 64."""
    place = tmp_path / "b.zip"
    write_bundle(folder, place)
    with zipfile.ZipFile(place) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != "SHA256SUMS"}
    members["episodes.json"] = b"[" + b"[]," * (json_text._MOST_PARTS // 2) + b"[]]"
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in members.items())
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("SHA256SUMS", sums)
    assert place.stat().st_size < 1 << 20
    with pytest.raises(UsageError, match="it holds more than 16,000,000 things"), opened(place):
        pass


def test_checksums_in_a_bundle(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_MOST_MEMBERS", 3)
    assert bundle._sums_in(b"1  a\n2  b\n3  c\n") == {"a": "1", "b": "2", "c": "3"}
    with pytest.raises(ValueError, match="checksums of too many files"):
        bundle._sums_in(b"1  a\n2  b\n3  c\n4  d\n")


def test_how_deep_a_document_is() -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    most = finite._MOST_DEPTH
    assert finite.check_depth(nested(most - 1)) == nested(most - 1)
    with pytest.raises(ValueError, match=f"nested more than {most} levels deep"):
        finite.check_depth(nested(most))


def test_what_a_maker_says() -> None:
    longest, most = makers._LONGEST_NAME, makers._MOST_PACKAGES
    for more in (0, 1):
        versions = {f"{number:04}": "1" for number in range(most - 1 + more)} | {"a" * (longest + more): "v" * longest}
        made = makers.Maker.of("w", "h" * (longest + more), versions, {})
        assert made.host == "h" * longest
        assert len(made.versions["worker"]) == most
        assert ("a" * longest in made.versions["worker"]) == (not more), "the last of them, which is one too many"
    assert makers.Maker.of("w", "h", {"a" * (longest + 1): "v" * (longest + 1)}, {}).versions["worker"] == {
        "a" * longest: "v" * longest
    }


def test_files_in_a_bundle_and_their_bytes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "b.zip"
    write_bundle(folder, place)
    with zipfile.ZipFile(place) as archive:
        members = archive.infolist()
    texts = ("bundle.json", "episodes.json", "run.json", "SHA256SUMS")
    largest = max(member.file_size for member in members if member.filename in texts)
    for name, just in (("_MOST_MEMBERS", len(members)), ("MOST_TEXT", largest)):
        with monkeypatch.context() as patched:
            patched.setattr(bundle, name, just)
            with opened(place) as source:
                assert source.problems == []
            patched.setattr(bundle, name, just - 1)
            with pytest.raises(SparringError, match=r"too many files|has more than"), opened(place):
                pass


def test_episodes_that_are_told_in_sentences() -> None:
    class Recorded:
        rows = ()
        plan = type("Plan", (), {"ids": staticmethod(list)})

        @staticmethod
        def label(episode: EpisodeId) -> str:
            return episode.task

    def lines(count: int) -> str:
        checked = [CheckedEpisode(EpisodeId("toy", "x", n), "different", ["it differs"]) for n in range(count)]
        out = io.StringIO()
        run: Any = Recorded()
        Console(file=out, width=200).print(verify._report(run, checked, [], 0, 1e-3))
        return out.getvalue()

    most = verify._MOST_TOLD
    assert (lines(most).count("it differs"), "more; --json" in lines(most)) == (most, False)
    assert lines(most + 2).count("it differs") == most
    assert "... and 2 more; --json has all of them" in lines(most + 2)


# --------------------------------------------------------------------------------------- statistics


def test_episodes_that_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST", 1000)
    assert planning._first(lambda n: n >= 1000) == 1000
    assert planning._first(lambda n: n >= 600) == 600, "also beyond the last power of two"
    assert planning._first(lambda n: n >= 1001) is None
    assert episodes_for_half_width(0.5, 0.5) == 1
    assert episodes_for_half_width(0.5, 0.001) is None
    assert pairs_needed(Difference(0.2, 0.1)) is not None
    assert pairs_needed(Difference(0.11, 0.1)) is None


@pytest.mark.parametrize("successes", [(10, 30), (30, 10)])
def test_episodes_of_boschloos_test(successes: tuple[int, int]) -> None:
    most = significance._MOST_BOSCHLOO
    first, second = ((one, most) for one in successes)
    assert significance.unpaired_test(first, second) == "Boschloo"
    assert significance.unpaired_test((first[0], most + 1), second) == "Fisher"
    assert significance.unpaired_test(first, (second[0], most + 1)) == "Fisher"


def test_sums_of_signs_that_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def counted(sizes: Sequence[float], seen: float) -> float:
        drawn.append(len(sizes))
        return 0.5

    monkeypatch.setattr(significance, "_drawn_flips", counted)
    differences = [1.0, 0.5, 0.25]  # they have 8 sums of signs
    for most, is_drawn in ((8, False), (7, True)):
        monkeypatch.setattr(significance, "_MOST_SUMS", most)
        assert significance.sign_flips(differences) == (0.5 if is_drawn else 0.25)
        assert drawn == ([3] if is_drawn else [])
