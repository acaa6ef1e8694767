"""Films of the episodes that flipped between runs: those that there are, and others by replay."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from sparring.orchestrator.cli.replaying import play_again
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted
from sparring.orchestrator.report.comparison import FilmsOfRun
from sparring.orchestrator.report.content import film_address
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.errors import Interrupted, RunStopped
from sparring.orchestrator.run.file_names import FILMED_LATER, FileNames, file_name
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError

log = logging.getLogger(__name__)

_ID = re.compile("[0-9a-f]{12,}")
"""What runs are known by."""


def films_for(
    page: Path, results: Results, flipped: Sequence[EpisodeId], most: int, now: Mapping[str, Any]
) -> FilmsOfRun:
    """Returns films of some episodes of a run, as seen from a page; what there is not is made, if it can be.

    Args:
        page: The file; films that are made are in a folder beside it.
        results: The run.
        flipped: The episodes, in the page's order.
        most: Of so many of them, the first, there are to be films.
        now: Settings of the workers that play them again.

    Raises:
        Interrupted: If the user ends it.
    """
    folder = results.folder
    assert folder is not None, "a run that was loaded has a folder"
    beside, rows = page.parent, {row.id: row for row in results.rows}
    run = RecordedRun.in_folder(folder)
    own = beside / f"{page.stem}-{FILMED_LATER}" / films_name(run.document.id, folder)
    names = FileNames(run.plan)
    found: dict[EpisodeId, str] = {}
    missing: list[EpisodeId] = []
    for episode in flipped:
        row = rows[episode]
        places = [*((folder, file) for file in names.films(row)), (own, names.film(episode, row.outcome))]
        addresses = (film_address(place, file, beside) for place, file in places)
        if address := next(filter(None, addresses), ""):
            found[episode] = address
        else:
            missing.append(episode)
    first = set(flipped[:most])
    few = f"only the first {most} are filmed" if most else "none is to be filmed"
    why: dict[EpisodeId | None, str] = {None: f"{few} (--films {most})"}
    wanted = [episode for episode in missing if episode in first]
    if wanted:
        many = "1 episode is" if len(wanted) == 1 else f"{len(wanted)} episodes are"
        log.info("%s: %s played again to be filmed for the page; --films 0 makes it without", run.place, many)
        made, why_not = _made(run, wanted, own, now)
        why |= why_not
        found |= {episode: film_address(own, file, beside) for episode, file in made.items()}
    return FilmsOfRun(found, why)


def films_name(id: str | None, folder: Path) -> str:
    """Returns the name of the folder for the films of a run, which may be a stranger's: never one with a way in it.

    Args:
        id: Of the run, as its run.json has it.
        folder: Where it is.
    """
    if not id:
        return file_name(folder.resolve().name)[:12]
    return (id if _ID.fullmatch(id) else sha256(id.encode("utf-8", "surrogatepass")).hexdigest())[:12]


def _made(
    run: RecordedRun, episodes: Sequence[EpisodeId], target: Path, now: Mapping[str, Any]
) -> tuple[dict[EpisodeId, str], dict[EpisodeId | None, str]]:
    """Films episodes by replay; returns the films' names, and why others have none."""
    names = FileNames(run.plan)
    made: dict[EpisodeId, str] = {}
    why: dict[EpisodeId | None, str] = {}

    def heard(replayed: Replayed) -> None:
        episode = replayed.recorded.id
        if problem := replayed.difference or replayed.missing:
            why[episode] = problem
            return
        assert replayed.film is not None
        name = names.film(episode, replayed.recorded.outcome, "mp4")
        try:
            replayed.film.replace(target / name)
        except OSError as error:
            raise RunStopped(f"the film {str(target / name)!r} cannot be written: {error.strerror}.") from error
        made[episode] = name

    try:
        left = play_again(run, episodes, Wanted(film=pb.FilmStyle(fps=20.0), now=now), target, heard)
        why.update((episode, reason) for episode, reason in left.items())
    except Interrupted:
        raise
    except SparringError as error:  # the page says all the rest without them
        told = error.told(FLAGS)
        log.warning("there are no films of %s by replay: %s", run.place, told)
        why |= {episode: f"it cannot be played again here: {told}" for episode in episodes if episode not in made}
    return made, why
