"""`sparring view`: runs in folders, finished or going on, in a browser."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from types import FrameType

import click

log = logging.getLogger(__name__)


@click.command(short_help="look at runs in a browser, also while they are running")
@click.argument("folders", metavar="[FOLDER...]", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--listen", metavar="HOST:PORT", help="where pages are served [default: 127.0.0.1:8737, or any free port]"
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="file with the token that whoever opens the pages must give; make one with: sparring token FILE",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="PEM certificate (chain): pages are https")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM private key of --tls-cert")
@click.option("--insecure", is_flag=True, help="let everybody look who reaches --listen, from beyond this machine, too")
def view(
    folders: tuple[Path, ...],
    listen: str | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
) -> None:
    """Serves pages of the runs in each FOLDER until Ctrl-C or SIGTERM: outputs, if there is such a folder, else here.

    A FOLDER is a run's, or has runs in it. A run that another process makes is followed as it goes. Nothing is changed
    in the folders.
    """
    from sparring.orchestrator.view.library import Library
    from sparring.orchestrator.view.server import ViewOptions, ViewServer
    from sparring.protos.net.address import parse_listen
    from sparring.protos.plain_text import plain

    looked = folders or (Path("outputs") if Path("outputs").is_dir() else Path(),)
    library = Library(looked)
    address = None if listen is None else parse_listen(listen)
    server = ViewServer(ViewOptions(address, token_file, tls_cert, tls_key, insecure))
    from sparring.orchestrator.view.pages import Pages

    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.start(Pages(library))
        click.echo(server.url)
        if not library.entries():
            named = ", ".join(repr(plain(str(folder))) for folder in looked)
            log.warning("there is no run in %s yet: the page shows runs as they come", named)
        log.info("Ctrl-C ends it")
        while not ended.wait(3600.0):
            continue
    finally:
        server.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
