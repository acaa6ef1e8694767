"""The live page beside a run: its flags, and how it begins and ends with the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparring.orchestrator.run.listeners import RunListener
from sparring.protos.errors import UsageError
from sparring.protos.net.address import parse_listen

if TYPE_CHECKING:
    from sparring.orchestrator.view.server import ViewOptions

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ViewFlags:
    """What a command was told of the live page; it is no setting: it is for this one execution, and not saved.

    Attributes:
        wanted: Whether there is to be one.
        listen: Where, as text.
        token_file: With the token that viewers must bring.
    """

    wanted: bool = False
    listen: str | None = None
    token_file: Path | None = None


def view_options(function: F) -> F:
    """Adds the flags of the live page; `ViewFlags` takes their values."""
    for option in (
        click.option(
            "--view-token-file",
            type=click.Path(path_type=Path),
            help="file with the token that whoever opens that page must give (sparring token FILE); turns --view on",
        ),
        click.option(
            "--view-listen",
            metavar="HOST:PORT",
            help="where that page is served; turns --view on [default: 127.0.0.1:8737, or any free port]",
        ),
        click.option("--view", is_flag=True, help="serve a live page of this run, for a browser"),
    ):
        function = option(function)
    return function


def view_flags(view: bool, view_listen: str | None, view_token_file: Path | None) -> ViewFlags:
    """Returns what the flags say; who says where, wants it."""
    return ViewFlags(view or view_listen is not None or view_token_file is not None, view_listen, view_token_file)


@contextmanager
def viewed(flags: ViewFlags, folder: Path, *, insecure: bool) -> Iterator[Sequence[RunListener]]:
    """Serves the live page of the run that goes on inside, if it is wanted; yields who must hear of the run.

    Args:
        flags: What the command was told.
        folder: The run's.
        insecure: Whether everybody may look, from wherever.

    Raises:
        UsageError: If it cannot be served.
    """
    if not flags.wanted:
        yield ()
        return
    # Not at the top: a run without a page needs none of it.
    from sparring.orchestrator.view.server import ViewServer

    server = ViewServer(_page_options(flags, insecure=insecure))
    from sparring.orchestrator.view.listener import LiveListener
    from sparring.orchestrator.view.model import RunModel
    from sparring.orchestrator.view.pages import Pages, ShownRun

    model = RunModel()
    listener = LiveListener(model, folder)
    try:
        server.start(Pages(own=ShownRun(model, folder, frames=listener.frames)))
        log.info("live page: %s", server.url)
        yield (listener,)
    finally:
        server.stop()


def check_view(flags: ViewFlags, *, insecure: bool) -> None:
    """Refuses flags by which no page could be served, where the run itself begins later, and elsewhere.

    Raises:
        UsageError: If they were given.
    """
    if flags.wanted:
        _page_options(flags, insecure=insecure).token()


def _page_options(flags: ViewFlags, *, insecure: bool) -> ViewOptions:
    from sparring.orchestrator.view.server import ViewOptions

    listen = None if flags.listen is None else parse_listen(flags.listen)
    return ViewOptions(listen, flags.token_file, insecure=insecure, prefix="view_")


def check_not_viewed(flags: ViewFlags, why: str) -> None:
    """Refuses the flags where there is nothing to look at.

    Raises:
        UsageError: If they were given.
    """
    if flags.wanted:
        raise UsageError(f"--view is of no use here: {why}.")
