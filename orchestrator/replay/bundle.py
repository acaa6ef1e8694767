"""Bundles: one file with all that it takes to judge a run, and to play its episodes again, elsewhere.

A zip archive that is read by the names that its table of contents has, in memory and with bounds: nothing is unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.derived_files import derived_problems
from sparring.orchestrator.replay.plan_check import plan_problems
from sparring.orchestrator.replay.protocol_check import protocol_problems
from sparring.orchestrator.replay.provenance_check import provenance_problems
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.told_numbers import outside_the_plan, told_problems
from sparring.orchestrator.results.document import RUN_FILE, RunDocument, read_document
from sparring.orchestrator.results.files import open_inside, open_regular, read_bytes, replace_file
from sparring.orchestrator.results.json_text import MOST_TEXT, parse_json
from sparring.orchestrator.results.reading import FILE_NAME, KeptEpisode, read_journal
from sparring.orchestrator.results.results import RESULT_FILES
from sparring.orchestrator.results.row import COLUMNS, EpisodeRow, is_sound
from sparring.protos import unreadable
from sparring.protos.action_list import MOST_BYTES as MOST_ACTIONS
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.trace import MOST_BYTES as MOST_TRACE

log = logging.getLogger(__name__)

FORMAT: Final = 1
SUFFIX: Final = ".sparring.zip"
_CONTENTS: Final = "bundle.json"
_EPISODES: Final = "episodes.json"
_SUMS: Final = "SHA256SUMS"
_MOST_MEMBERS: Final = 2_000_000
_BLOCK: Final = 1 << 20
_KILLED: Final = (
    "the run was killed before it could write run.json, episodes.csv and eval_info.json of what it had recorded. "
    "sparring resume writes them, and plays what is left."
)
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in there: the same run makes the same bundle."""


@dataclass(frozen=True)
class Source:
    """What is to be verified.

    Attributes:
        run: The run.
        problems: What is wrong with its files beside episodes, in sentences.
        unchecked: Why some of its files cannot be judged, in a sentence; empty: they can.
    """

    run: RecordedRun
    problems: Sequence[str] = ()
    unchecked: str = ""


@contextmanager
def opened(place: Path) -> Iterator[Source]:
    """Opens an output folder or a bundle.

    Raises:
        UsageError: If it is neither, or cannot be read.
    """
    if place.is_dir() or not place.exists():
        run = RecordedRun.in_folder(place)
        yield Source(run, _problems_of(run), _KILLED if _was_killed(run) else "")
        return
    try:
        open_regular(place).close()  # no pipe, and no device
        archive = zipfile.ZipFile(place)
    except unreadable.ARCHIVE as error:
        raise UsageError(f"{str(place)!r} is no output folder and no bundle: {_reason(error)}.") from error
    with archive:
        yield _Bundle(place, archive).source()


@contextmanager
def recorded_in(place: Path) -> Iterator[RecordedRun]:
    """Opens the run in an output folder or a bundle; what is wrong with a bundle beside its episodes is logged.

    Raises:
        UsageError: If it is neither, or cannot be read.
    """
    if place.is_dir() or not place.exists():
        yield RecordedRun.in_folder(place)
        return
    with opened(place) as source:
        for problem in source.problems:
            log.warning("%s: %s", place, problem)
        yield source.run


def write_bundle(folder: Path, target: Path) -> str:
    """Packs an output folder; returns the SHA-256 of the bundle.

    Raises:
        UsageError: If the folder is not one, a run is writing there, or nothing is kept to play it again.
        SparringError: If the bundle cannot be written.
    """
    run = RecordedRun.in_folder(folder)
    if run.running:
        raise UsageError(f"the run in {str(folder)!r} is still going; make a bundle of it when it has ended.")
    if _was_killed(run):
        raise UsageError(_KILLED)
    order = [episode for episode in run.plan.ids() if episode in run.rows]
    kept, _ = run.kept(episode for episode in order if run.rows[episode].outcome != "error")
    if problems := _problems_of(run):
        raise UsageError(f"the folder {str(folder)!r} is not what its run has written: {' '.join(problems)}")
    try:
        members: dict[str, bytes] = {RUN_FILE: read_bytes(folder / RUN_FILE, MOST_TEXT)}
        published = _published(folder)
    except OSError as error:
        raise UsageError(f"the files of {str(folder)!r} cannot be read: {_reason(error)}.") from error
    episodes: list[dict[str, Any]] = []
    for number, episode in enumerate(order):
        entry: dict[str, Any] = dict(run.rows[episode].cells())
        there = kept.get(episode, KeptEpisode(b""))
        for what, content in (("actions", there.actions), ("trace", there.trace)):
            if content:
                entry[f"{what}_file"] = f"{what}/{number:06d}"
                members[entry[f"{what}_file"]] = content
        episodes.append(entry)
    members[_EPISODES] = _json(episodes)
    contents = {
        "format": FORMAT,
        "run": run.document.id,
        "episodes": len(order),
        "versions": run.document.versions,
        "files": published,
    }
    members[_CONTENTS] = _json(contents)
    members[_SUMS] = "".join(f"{_sha256(members[name])}  {name}\n" for name in sorted(members)).encode()
    content = _archive(members)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SparringError(f"the bundle {str(target)!r} cannot be written: {error.strerror}.") from error
    replace_file(target, content)
    return _sha256(content)


def _problems_of(run: RecordedRun) -> list[str]:
    """Says what is wrong with the files of an output folder; a run that is going on writes most of them at its end."""
    problems = list(outside_the_plan(run.document, run.rows.values()))
    if run.running:
        return problems
    meta = read_journal(run.place).meta
    problems += [*plan_problems(run, meta.get("identity")), *protocol_problems(run)]
    if not _was_killed(run):
        problems += [*provenance_problems(run.document, meta, run.makers), *derived_problems(run.place)]
    return problems


def _was_killed(run: RecordedRun) -> bool:
    """Returns whether a run could not write what it writes at its end."""
    return run.document.status == "running" and not run.running


def _published(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of the files that a bundle tells of; none of elsewhere, that a link in the folder leads to.

    Raises:
        OSError: If one cannot be read.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not _is_published(inside) or not path.is_file():
            continue
        if path.is_symlink():
            log.warning("%s is a link, so the bundle says nothing of it.", path)
            continue
        with open_inside(folder, inside) as file:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK):
                digest.update(block)
            found[inside.as_posix()] = digest.hexdigest()
    return found


def _is_published(path: Path) -> bool:
    return path.parts[0] in (FILE_NAME, RUN_FILE, *RESULT_FILES, "videos", "errors")


def _archive(members: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type = zipfile.ZIP_DEFLATED if "/" not in name else zipfile.ZIP_STORED  # those are compressed
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, members[name])
    return file.getvalue()


class _Bundle:
    """Reads a bundle, which may be anybody's."""

    def __init__(self, place: Path, archive: zipfile.ZipFile) -> None:
        self._place = place
        self._shown = repr(str(place))
        self._archive = archive
        self._sums: dict[str, str] = {}

    def source(self) -> Source:
        """Returns the run that is in there."""
        try:
            return self._source()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{str(self._place)!r} is no bundle of a run: {_reason(error)}.") from error

    def _source(self) -> Source:
        names = self._archive.namelist()
        if len(names) > _MOST_MEMBERS or len(set(names)) != len(names):
            raise ValueError("it has too many files, or one of them twice")
        self._sums = _sums_in(self._text(_SUMS, summed=False))
        strangers = sorted(set(names) - {*self._sums, _SUMS})
        problems = [f"the bundle has {name!r}, which its checksums do not know." for name in strangers[:3]]
        contents = parse_json(self._text(_CONTENTS))
        if contents["format"] != FORMAT:
            raise ValueError(f"it has the format {contents['format']!r}, and this release reads {FORMAT}")
        document = self._document()
        files: dict[EpisodeId, tuple[str, str]] = {}
        rows: dict[EpisodeId, EpisodeRow] = {}
        for entry in parse_json(self._text(_EPISODES)):
            cells = {name: value for name, value in entry.items() if name in COLUMNS}
            if not is_sound(cells):
                raise ValueError("an episode of it has no sense")
            row = EpisodeRow.from_cells(cells)
            if row.id in rows:
                raise ValueError(f"it has {row.id} twice")
            rows[row.id] = row
            files[row.id] = (str(entry.get("actions_file", "")), str(entry.get("trace_file", "")))
        if contents["files"].get(RUN_FILE) != _sha256(self._read(RUN_FILE, MOST_TEXT)):
            problems.append("its run.json is not the one that it was made of.")
        problems += outside_the_plan(document, rows.values())
        problems += told_problems(document, rows.values(), "the bundle")
        makers = {int(number): maker for number, maker in document.makers.items()}
        run = RecordedRun(self._place, document, rows, makers, False, self._kept_of(files))
        return Source(run, [*problems, *plan_problems(run), *protocol_problems(run)])

    def _document(self) -> RunDocument:
        with tempfile.TemporaryDirectory(prefix="sparring-bundle-") as folder:
            (Path(folder) / RUN_FILE).write_bytes(self._read(RUN_FILE, MOST_TEXT))
            return read_document(Path(folder))

    def _kept_of(self, files: Mapping[EpisodeId, tuple[str, str]]) -> Any:
        def read(episodes: Collection[EpisodeId]) -> dict[EpisodeId, KeptEpisode]:
            found: dict[EpisodeId, KeptEpisode] = {}
            for episode in episodes:
                actions, trace = files[episode]
                if actions:
                    kept = self._read(trace, MOST_TRACE) if trace else b""
                    found[episode] = KeptEpisode(self._read(actions, MOST_ACTIONS), kept)
            return found

        return read

    def _text(self, name: str, *, summed: bool = True) -> bytes:
        return self._read(name, MOST_TEXT, summed=summed)

    def _read(self, name: str, most: int, *, summed: bool = True) -> bytes:
        """Returns a member, which has no more bytes than it may, whatever the archive says, and its checksum.

        Raises:
            SparringError: If it is not what was packed.
        """
        try:
            with self._archive.open(name) as member:
                content = member.read(most + 1)
        except unreadable.ARCHIVE as error:
            raise SparringError(f"{name!r} of the bundle {self._shown} cannot be read: {_reason(error)}.") from error
        if len(content) > most:
            raise SparringError(f"{name!r} of the bundle {self._shown} has more than {most:,} bytes.")
        if summed and self._sums.get(name) != _sha256(content):
            raise SparringError(f"{name!r} of the bundle {self._shown} is not what was packed: its checksum differs.")
        return content


def _sums_in(text: bytes) -> dict[str, str]:
    sums: dict[str, str] = {}
    for number, line in enumerate(io.BytesIO(text)):  # not all lines at once: they may be empty, and very many
        if number >= _MOST_MEMBERS:
            raise ValueError("it has checksums of too many files")
        found, name = line.decode().rstrip("\n").split("  ", 1)
        sums[name] = found
    return sums


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _reason(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return str(said or error).rstrip(".") or type(error).__name__
