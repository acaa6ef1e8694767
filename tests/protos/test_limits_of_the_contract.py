"""How long, large and many things of the contract may be: what just fits, and what is one more."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparring.env_worker.episode.film import Film
from sparring.env_worker.episode.recording import Recording
from sparring.orchestrator.coordination.bounds import OutOfBounds, bounded
from sparring.orchestrator.run.incoming import Incoming
from sparring.protos import evaluation_pb2 as pb
from sparring.protos import pieces, sources, trace, tracebacks
from sparring.protos.net import frames, rpc
from sparring.protos.net.address import Address
from sparring.protos.pieces import AttachmentMissing, check_size
from sparring.protos.sources import sources_of
from sparring.protos.tracebacks import Tracebacks


def test_the_path_of_a_socket_for_frames() -> None:
    room = frames._LONGEST_PATH - len(".frames")
    fits = "/" + "x" * (room - 1)
    assert frames.frames_path(Address.parse(f"unix:{fits}")) == Path(f"{fits}.frames")
    assert frames.frames_path(Address.parse(f"unix:{fits}x")) is None
    assert frames.frames_path(Address.parse("unix:/" + "é" * (room - 1))) is None, "bytes are counted"


@pytest.mark.parametrize(
    ("character", "most"),
    [("x", rpc._LONGEST_DETAILS), ("ü", rpc._MOST_DETAIL_BYTES // 6), ("\n", rpc._LONGEST_DETAILS)],
)
def test_the_sentence_of_a_status(character: str, most: int) -> None:
    assert rpc.status_message(character * most) == character * most
    cut = rpc.status_message(character * (most + 1))
    assert cut.endswith("(cut; the server's log has it all)")
    assert cut.count(character) <= most


def test_the_bytes_of_a_film_and_of_a_recording() -> None:
    check_size("video", pieces.MOST_BYTES, pieces.MOST_BYTES)
    with pytest.raises(AttachmentMissing, match="the video would have more than 2,147,483,648 bytes"):
        check_size("video", pieces.MOST_BYTES + 1, pieces.MOST_BYTES)
    checked: tuple[Callable[..., object], ...] = (Film, Recording, Incoming)
    for who in checked:
        assert inspect.signature(who).parameters["most"].default == pieces.MOST_BYTES


def test_the_bytes_of_a_trace() -> None:
    def said(size: int) -> pb.WorkerMessage:
        return bounded(pb.WorkerMessage(result=pb.Result(trace=bytes(size))), slots=1)

    assert len(said(trace.MOST_BYTES).result.trace) == trace.MOST_BYTES
    with pytest.raises(OutOfBounds, match=r"the trace of an episode has 2,097,153 bytes; 2,097,152 are the most"):
        said(trace.MOST_BYTES + 1)


def test_files_of_a_users_own_code_that_are_told_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, imports in (("many_one", "import many_two\n"), ("many_two", "import many_three\n"), ("many_three", "")):
        (tmp_path / f"{name}.py").write_text(imports)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sources, "_MOST_FILES", 3)
    whole = sources_of(["many_one"]).files
    assert sorted(whole) == ["many_one.py", "many_three.py", "many_two.py"]
    monkeypatch.setattr(sources, "_MOST_FILES", 2)
    cut = sources_of(["many_one"]).files
    assert sorted(cut) == ["many_one.py", "many_three.py", "other files"]
    (tmp_path / "many_two.py").write_text("import many_three\nx = 1\n")
    assert sources_of(["many_one"]).files != cut, "a change in one that is not told by itself is seen"
    assert "many_one" not in sys.modules


def test_files_of_tracebacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "_MOST_FILES", 2)
    kept = Tracebacks(tmp_path)
    texts = [f'  File "{name}.py", line 1, in f\nValueError: no' for name in "abc"]
    said = [kept.keep("policy", "It raised.", text) for text in texts]
    assert [one.startswith("traceback: errors/policy-") for one in said] == [True, True, False]
    assert len(list((tmp_path / "errors").iterdir())) == 2
    assert kept.keep("policy", "It raised.", texts[0]) == said[0], "one that is there is referred to"
