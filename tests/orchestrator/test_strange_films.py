"""Films of strangers: what reads them reads that file and no other, and no more of it than is shown."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from sparring.orchestrator.report import first_frames, page
from sparring.orchestrator.results import film_reading
from sparring.orchestrator.trackers import moving_picture
from sparring.protos.errors import SparringError


def film(path: Path, pictures: int = 5, side: int = 32) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("gif" if path.suffix == ".gif" else "mpeg4", rate=10)
        stream.width, stream.height = side, side
        stream.pix_fmt = "rgb8" if path.suffix == ".gif" else "yuv420p"
        for number in range(pictures):
            shown = np.full((side, side, 3), 40 * (number % 6), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_a_playlist_has_no_film_of_elsewhere_read(tmp_path: Path) -> None:
    """A folder cannot name films of yours, nor link to them; in one of its own, it could."""
    film(tmp_path / "private.mp4")
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "link.mp4").symlink_to(tmp_path / "private.mp4")
    playlist = folder / "film.mp4"
    playlist.write_text("ffconcat version 1.0\nfile link.mp4\n")
    with av.open(str(playlist)) as opened:
        assert next(opened.decode(video=0)).width == 32, "or it would be no hostile one"
    with pytest.raises(SparringError, match="cannot be read"):
        first_frames.first_frame(playlist)
    with pytest.raises(av.FFmpegError):
        moving_picture.moving_picture(playlist)


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_films_are_read_by_their_endings(tmp_path: Path, name: str) -> None:
    assert first_frames.first_frame(film(tmp_path / name)).startswith("data:image/jpeg;base64,")
    other = (tmp_path / name).rename(tmp_path / "film.txt")
    with pytest.raises(SparringError, match="films do not end with"):
        first_frames.first_frame(other)


def test_how_large_pictures_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = film(tmp_path / "film.mp4")
    monkeypatch.setattr(film_reading, "_MOST_PIXELS", 32 * 32)
    assert first_frames.first_frame(path)
    monkeypatch.setattr(film_reading, "_MOST_PIXELS", 32 * 32 - 1)
    with pytest.raises(SparringError, match="32 x 32 pixels, and more than 1,023 are not read"):
        first_frames.first_frame(path)


@pytest.mark.parametrize(("pictures", "shown"), [(1, 1), (60, 60), (61, 31), (130, 33)])
def test_a_film_of_any_length_becomes_few_pictures(tmp_path: Path, pictures: int, shown: int) -> None:
    made = moving_picture.moving_picture(film(tmp_path / "film.mp4", pictures))
    assert made is not None
    data, width, height = made
    assert (width, height) == (32, 32)
    assert count(tmp_path, data) == shown


def test_pictures_that_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving_picture, "_MOST_DECODED", 7)
    for pictures, shown in ((7, 7), (8, 7)):
        made = moving_picture.moving_picture(film(tmp_path / "film.mp4", pictures))
        assert made is not None
        assert count(tmp_path, made[0]) == shown


def count(folder: Path, gif: bytes) -> int:
    from PIL import Image

    (folder / "made.gif").write_bytes(gif)
    with Image.open(folder / "made.gif") as image:
        return int(getattr(image, "n_frames", 1))


def test_films_in_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.mp4").write_bytes(b"12345")
    (tmp_path / "b.mp4").write_bytes(b"678")
    assert page.MOST_EMBEDDED == 512 << 20
    monkeypatch.setattr(page, "MOST_EMBEDDED", 8)
    embedding = page.Embedding(tmp_path)
    assert [embedding.of(name) for name in ("a.mp4", "", "b.mp4")] == [
        "data:video/mp4;base64,MTIzNDU=",
        "",
        "data:video/mp4;base64,Njc4",
    ]
    monkeypatch.setattr(page, "MOST_EMBEDDED", 7)
    embedding = page.Embedding(tmp_path)
    assert embedding.of("a.mp4")
    with pytest.raises(SparringError, match="too much for one page"):
        embedding.of("b.mp4")


def test_a_film_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """Its size was looked at when it was in memory; a file of any size takes no room on the disk."""
    with (tmp_path / "a.mp4").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SparringError, match="too much for one page"):
        page.Embedding(tmp_path).of("a.mp4")
