"""Zip files that are damaged or made up: bundles, recordings and actions to be played are refused with a sentence."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_recordings import STATE, record

from sparring.orchestrator.export import recorded
from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.replay import bundle
from sparring.policy_server.policies.archives import check_archive
from sparring.policy_server.policies.replay import ReplayPolicy
from sparring.protos.errors import SparringError, UsageError

KINDS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


def read_bundle(path: Path) -> None:
    with bundle.opened(path):
        pass


def read_recording(path: Path) -> None:
    episode = RecordedEpisode(path)
    assert len(episode.actions)
    assert list(episode.seen(STATE))


def read_actions(path: Path) -> None:
    ReplayPolicy(file=str(path))


READERS: dict[str, Callable[[Path], None]] = {
    "a bundle": read_bundle,
    "a recording": read_recording,
    "actions": read_actions,
}


def header(shape: object, dtype: str = "<f4", more: str = "") -> bytes:
    """A file of NumPy's that says so of itself."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}{more}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.fixture
def members(tmp_path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(record(tmp_path / "whole", steps=4, size=(2, 2))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_whatever_bytes_are_wrong_it_is_told(
    tmp_path: Path, members: dict[str, bytes], kind: int, reader: Callable[[Path], None]
) -> None:
    whole = packed(tmp_path / "whole.npz", {**members, "SHA256SUMS": bytes(range(256))}, kind).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(whole)
        at = int(rng.integers(0, len(whole) - 40))
        for place in range(at, at + int(rng.integers(1, 40))):
            damaged[place] = int(rng.integers(0, 256))
        (tmp_path / "damaged.npz").write_bytes(damaged)
        try:
            reader(tmp_path / "damaged.npz")
        except SparringError:  # and nothing else comes out
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    "content",
    [
        header((2**40,)),
        header((-1, 4)),
        header((3, -(2**62), 2)),
        header((3, 2**40)),
        header(()),
        header("("),
        header((3, 4), dtype="|O"),
        header((3, 4), dtype="(" * 50),
        header((3, 4), more=", 'a': " + "[" * 100),
        b"\x93NUMPY\x09\x00",
        b"",
    ],
    ids=range(11),
)
@pytest.mark.parametrize("member", ["actions.npy", "about.npy", f"observations/{STATE}.npy"])
def test_whatever_an_array_says_of_itself_it_is_told(
    tmp_path: Path, members: dict[str, bytes], member: str, content: bytes
) -> None:
    path = packed(tmp_path / "made-up.npz", {**members, member: content + bytes(200)})
    with pytest.raises(UsageError, match="cannot be read as a recording"):
        read_recording(path)
    with pytest.raises(UsageError, match=r"cannot be read as recordings|must all be numbers"):
        read_actions(path)


def test_an_observation_has_an_end(tmp_path: Path, members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may unpack to more than a machine has, and says how much of it is one observation."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.zeros((2, 1000), np.uint8), version=(1, 0))
    path = packed(tmp_path / "large.npz", {**members, f"observations/{STATE}.npy": file.getvalue()})
    episode = RecordedEpisode(path)
    for most, is_read in ((1000, True), (999, False)):
        monkeypatch.setattr(recorded, "_MOST_BYTES", most)
        if is_read:
            assert len(list(episode.seen(STATE))) == 2
        else:
            with pytest.raises(UsageError, match=r"no observation has"):
                list(episode.seen(STATE))


def test_an_archive_without_a_table_of_contents_is_told(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = packed(tmp_path / "weights.pt", members)
    check_archive(path, 1 << 30)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"PK\x01\x02", b"PK\x01\x00"))
    with pytest.raises(UsageError, match="is a damaged archive"):
        check_archive(path, 1 << 30)
