"""Films and recordings that come in pieces: put together, moved when their result is recorded, and otherwise gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from coordinated import Hand, Run

from sparring.orchestrator.run import attachments
from sparring.orchestrator.run.incoming import Incoming
from sparring.protos import evaluation_pb2 as pb
from sparring.protos import pieces

Test = Callable[[Run], Awaitable[None]]


@pytest.fixture
def in_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a test with a coordinator that keeps films and recordings of up to 1000 bytes, in pieces of 10."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 10)
    monkeypatch.setattr(attachments, "Incoming", lambda *folders: Incoming(*folders, most=1000))

    def run(test: Test, **settings: Any) -> None:
        async def work() -> None:
            await test(Run(tmp_path / "run", video="all", video_live=True, record=tmp_path / "demos", **settings))

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def files(run: Run) -> dict[str, bytes]:
    """Everything in the folders of films and recordings."""
    folders = (run.folder / "videos", run.folder.parent / "demos")
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(run.folder.parent)): path.read_bytes() for path in paths}


def warnings(run: Run) -> list[str]:
    return [event.message for event in run.journal.events() if event.kind == "missing"]


def test_pieces_become_a_file_when_the_result_is_recorded(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        film, recording = bytes(range(256)), b"npz" * 99
        worker.attaches(lease, "video", film)
        worker.attaches(lease, "recording", recording)
        assert len(files(run)) == 2, "they are on the disk, and not in memory"
        assert not any(name.endswith((".mp4", ".npz")) for name in files(run)), "and nobody takes them for whole"
        worker.says(
            result=pb.Result(
                lease=lease.lease, outcome=pb.OUTCOME_SUCCESS, video_bytes=len(film), recording_bytes=len(recording)
            )
        )
        assert files(run) == {"run/videos/short_0000_success.mp4": film, "demos/toy/short/0000.npz": recording}
        assert [row.video for row in run.journal.rows()] == ["videos/short_0000_success.mp4"]
        assert warnings(run) == []

    in_run(test)


def test_what_has_come_by_half_is_played_again(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        worker.finishes(worker.takes(), recording=b"half", recording_bytes=8)
        assert run.journal.rows() == []
        assert "a part is missing" in run.watcher.retries[0][1]
        assert files(run) == {}
        worker.finishes(worker.takes(), recording=b"whole")
        assert files(run) == {"demos/toy/short/0000.npz": b"whole"}
        assert run.journal.rows()[0].attempts == 1, "it was lost, and not tried"

    in_run(test)


def test_an_episode_counts_though_its_film_is_too_large(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        worker.finishes(worker.takes(), video=bytes(1001), recording=bytes(1000))
        (row,) = run.journal.rows()
        assert (row.outcome, row.video) == ("success", "")
        assert list(files(run)) == ["demos/toy/short/0000.npz"]
        assert warnings(run) == ["toy/short#0: its video is missing: the video would have more than 1,000 bytes."]
        assert run.watcher.warnings == warnings(run)

    in_run(test)


def test_what_the_worker_could_not_send_is_told(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        worker.attaches(lease, "recording", b"the beginning of")
        worker.finishes(lease, missing="its recording is missing: no room.")
        assert [row.outcome for row in run.journal.rows()] == ["success"]
        assert warnings(run) == ["toy/short#0: its recording is missing: no room."]
        assert files(run) == {}

    in_run(test)


@pytest.mark.parametrize("how", ["leaves", "lost", "error", "error for good", "abandoned"])
def test_nothing_is_left_of_what_has_no_result(in_run: Callable[..., None], how: str) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        worker.attaches(lease, "video", b"of no use")
        worker.attaches(lease, "recording", b"of no use")
        assert len(files(run)) == 2
        if how == "leaves":
            worker.leaves()
        elif how == "lost":
            worker.says(lost=pb.Lost(lease=lease.lease, reason="killed."))
        elif how == "abandoned":
            run.coordinator.abandon()
        else:
            worker.finishes(lease, pb.OUTCOME_ERROR, error="broke.")
        assert files(run) == {}

    in_run(test, retries=0 if how == "error for good" else 2)


def test_what_a_killed_run_left_is_removed_by_the_next_and_others_stay(in_run: Callable[..., None]) -> None:
    async def before(run: Run) -> None:
        worker = Hand(run)
        worker.attaches(worker.takes(), "recording", b"of no use")
        assert len(files(run)) == 1
        run.journal.close()
        other = run.folder.parent / "demos" / ".incoming-other"
        other.mkdir()
        (other / "1.recording").write_bytes(b"of another run that goes on")

    async def after(run: Run) -> None:
        assert list(files(run)) == ["demos/.incoming-other/1.recording"]

    in_run(before)
    in_run(after)


def test_nobody_can_fill_the_disk_with_what_was_not_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        run = Run(tmp_path / "run")  # neither films nor recordings
        worker = Hand(run)
        lease = worker.takes()
        worker.attaches(lease, "video", bytes(5000))
        worker.attaches(lease, "recording", bytes(5000))
        worker.says(piece=pb.Piece(lease=4711, what=pb.ATTACHMENT_VIDEO, content=b"?"))
        worker.says(piece=pb.Piece(lease=lease.lease, content=b"of nothing"))
        assert files(run) == {}
        worker.finishes(lease)
        assert len(run.journal.rows()) == 1

    asyncio.run(test())


def test_no_more_is_kept_than_the_limit(in_run: Callable[..., None]) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        for _ in range(100):
            worker.attaches(lease, "video", bytes(500))
            assert sum(map(len, files(run).values())) <= 1000

    in_run(test)
