"""What arguments name is hashed: files, folders, large ones by samples; and what only looks like a path is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.protos import data_files
from sparring.protos.data_files import data_of
from sparring.protos.sources import sha256_of_file


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def write(**files: str) -> None:
    for name, text in files.items():
        path = Path(name.replace("__", "/").replace("_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def of(name: str, *, folders: bool = True) -> str | None:
    return data_of({"x": name}, folders=folders).get(f"x: {Path(name).name}")


def test_files_are_found_wherever_arguments_have_them() -> None:
    write(a="1", b="2", empty="")
    arguments = {"one": "a", "no": "c", "number": 3, "empty": "empty", "long": "x" * 5000, "null": "\0", "nothing": ""}
    inside = {"kwargs": {"xml": "a", "more": ["no", "b"]}}
    found = data_of({**arguments, **inside}, folders=True)
    hashes = {name: sha256_of_file(Path(name)) for name in "ab"}
    assert found == {"one: a": hashes["a"], "kwargs.xml: a": hashes["a"], "kwargs.more.1: b": hashes["b"]}


def test_arguments_inside_of_arguments_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    write(a="1")
    monkeypatch.setattr(data_files, "_LARGEST_DEPTH", 2)
    assert list(data_of({"x": ["a"]}, folders=True)) == ["x.0: a"]
    assert data_of({"x": [["a"]]}, folders=True) == {}


def test_a_folder_is_all_that_is_computed_with_in_it() -> None:
    write(w__a_bin="1", w__part__b_bin="2")
    first = of("w")
    write(w__train_log="x", w__notes_txt="x", w__part__film_mp4="x", w__out__journal_sqlite="x", w__out__c_bin="x")
    Path("w/.cache").mkdir()
    Path("w/.cache/x").write_text("x")
    assert of("w") == first, "logs, films, runs and what is hidden are none of it"
    write(w__part__b_bin="3")
    changed = of("w")
    write(w__c_bin="3")
    assert len({None, first, changed, of("w")}) == 4
    Path("w/c.bin").rename("w/d.bin")
    assert of("w") not in (None, first, changed)
    assert of("w", folders=False) is None


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_where_somebody_works_is_no_folder_of_weights(name: str) -> None:
    write(a="1")
    assert of(name) is None


def test_a_folder_of_very_many_files_is_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    write(w__a="1", w__b="2")
    monkeypatch.setattr(data_files, "_MOST_FILES", 2)
    assert of("w") is not None
    write(w__c="3")
    assert of("w") is None


def test_what_is_larger_is_known_by_its_size_and_by_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_MOST_BYTES", 100)
    monkeypatch.setattr(data_files, "_SAMPLES", 4)
    monkeypatch.setattr(data_files, "_SAMPLE_BYTES", 2)
    found = []
    for content in (b"a" * 101, b"a" * 102, b"b" * 102, b"a" * 70 + b"b" * 32, b"a" * 60 + b"b" + b"a" * 41):
        Path("a").write_bytes(content)
        found.append(of("a"))
    assert len({None, *found[:4]}) == 5
    assert found[4] == found[1], "one byte between two samples is not seen"
    Path("b").write_bytes(b"b" * 60)
    Path("c").write_bytes(b"c" * 40)
    Path("d").write_bytes(b"d")
    together = data_of({name: name for name in "bcd"}, folders=True)
    assert [together[f"{name}: {name}"] == sha256_of_file(Path(name)) for name in "bcd"] == [True, True, False]
