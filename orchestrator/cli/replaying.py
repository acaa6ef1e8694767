"""What commands that play episodes again have in common: flags on workers, a display, warnings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from sparring.orchestrator.cli.evaluation import log_through
from sparring.orchestrator.cli.options import setting_options
from sparring.orchestrator.display.progress import make_display
from sparring.orchestrator.display.screen import count, error_console
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.replays import Replayed, Wanted, replay, working_folder
from sparring.orchestrator.replay.settings import NOW
from sparring.orchestrator.replay.verification import elsewhere
from sparring.orchestrator.settings import launcher_fields
from sparring.protos.advice import FLAGS

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)

_TRUSTED = f"{__name__}.trusted"
"""Where click keeps what the user trusts, so that no command can play anything again without it."""


def worker_options(function: F) -> F:
    """Adds the flags that say how workers are started here and now."""
    trust = click.option(
        "--trust-benchmark",
        multiple=True,
        metavar="NAME",
        expose_value=False,
        callback=_keep_trusted,
        help="code that the run names and you know: module:Class of a benchmark, or the module of Gymnasium tasks; "
        "may be repeated [default: installed benchmarks only]",
    )
    return setting_options([*NOW, *launcher_fields()])(trust(function))


def _keep_trusted(context: click.Context, _: click.Parameter, names: tuple[str, ...]) -> None:
    context.meta[_TRUSTED] = names


def play_again(
    run: RecordedRun,
    episodes: Iterable[EpisodeId],
    wanted: Wanted,
    beside: Path,
    heard: Callable[[Replayed], None],
    *,
    tell_elsewhere: bool = True,
) -> Mapping[EpisodeId, str]:
    """Plays episodes again with a display on standard error; returns those that `heard` is not told of, and why.

    Args:
        run: Whose.
        episodes: Which.
        wanted: What for.
        beside: The folder where what comes of it will stay.
        heard: Is told of each.
        tell_elsewhere: Whether it is logged if machine or versions are not those that the run was made with.

    Raises:
        SparringError: As `replay`.
    """
    wanted = replace(wanted, trusted=click.get_current_context().meta[_TRUSTED])
    chosen = list(episodes)
    console = error_console()
    log_through(console, FLAGS)
    if run.running:
        log.info("the run in %r is still going: its episodes that have ended by now are played again", str(run.place))
    title = f"{count(len(chosen), 'episode')} of {run.place.name or run.place}, played again"
    display = make_display(console, title, plain=bool(wanted.now.get("in_process")))
    display.folder_stays = False
    told: set[str] = set()

    def hear(replayed: Replayed) -> None:
        for said in elsewhere(run, replayed.recorded, replayed.maker) if tell_elsewhere else ():
            if said not in told:
                told.add(said)
                log.warning("replays may not be what was recorded, to the last digit: %s", said)
        heard(replayed)

    try:
        with working_folder(beside) as folder:
            return replay(run, chosen, wanted, folder, hear, [display])
    finally:
        display.close()
