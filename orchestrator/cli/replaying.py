"""What commands that play episodes again have in common: flags on workers, a display, warnings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sparring.orchestrator.cli.evaluation import log_through
from sparring.orchestrator.cli.options import setting_options
from sparring.orchestrator.display.progress import make_display
from sparring.orchestrator.display.screen import count, error_console
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted, replay, working_folder
from sparring.orchestrator.replay.settings import NOW
from sparring.orchestrator.run.plan import EpisodeId
from sparring.orchestrator.settings import launcher_fields
from sparring.protos.advice import FLAGS

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)


def worker_options(function: F) -> F:
    """Adds the flags that say how workers are started here and now."""
    return setting_options([*NOW, *launcher_fields()])(function)


def play_again(
    run: RecordedRun,
    episodes: Iterable[EpisodeId],
    wanted: Wanted,
    beside: Path,
    heard: Callable[[Replayed], None],
) -> Mapping[EpisodeId, str]:
    """Plays episodes again with a display on standard error; returns those that `heard` is not told of, and why.

    Args:
        run: Whose.
        episodes: Which.
        wanted: What for.
        beside: The folder where what comes of it will stay.
        heard: Is told of each.

    Raises:
        SparringError: As `replay`.
    """
    chosen = list(episodes)
    console = error_console()
    log_through(console, FLAGS)
    if run.running:
        log.info("the run in %r is still going: its episodes that have ended by now are played again", str(run.place))
    title = f"{count(len(chosen), 'episode')} of {run.place.name or run.place}, played again"
    display = make_display(console, title, plain=bool(wanted.now.get("in_process")))
    try:
        with working_folder(beside) as folder:
            return replay(run, chosen, wanted, folder, heard, [display])
    finally:
        display.close()
