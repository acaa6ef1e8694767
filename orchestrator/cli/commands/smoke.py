"""`sparring smoke`: one episode per image, or of what is installed here, with a look at everything that comes of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from sparring.orchestrator.launchers.docker.engine import connect
from sparring.orchestrator.smoke.episode import smoke as smoke_here
from sparring.orchestrator.smoke.images import SECONDS, explain, image_names, smoke_image
from sparring.protos.errors import SparringError, UsageError


@click.command(short_help="try images with one episode each")
@click.option(
    "--image",
    "images",
    multiple=True,
    help="an image to try, by its full name, or metaworld, libero, policy-server, …; may be repeated; default: all",
)
@click.option("--here", metavar="BENCHMARK", help="try what is installed here instead, without containers")
@click.option(
    "--assets",
    type=click.Path(path_type=Path),
    help="folder of the benchmark's assets, where it has any (libero); default: as SPARRING_LIBERO_ASSETS says",
)
@click.option("--output", type=click.Path(path_type=Path), help="folder to keep what comes of it: film, results, logs")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=SECONDS, show_default=True, help="seconds per image"
)
# How an image that is not a worker's is tried: in its own part, with others in the others.
@click.option("--policy-server", hidden=True)
@click.option("--launcher", hidden=True)
@click.option("--listen", hidden=True)
@click.option("--join-token-file", hidden=True)
def smoke(
    images: Sequence[str], here: str | None, assets: Path | None, output: Path | None, timeout: float, **settings: Any
) -> int:
    """Plays one episode of a short task with rendering on; checks outcome, observations and film.

    A line per image. Exit code 1 if one of them fails.
    """
    if here and images:
        raise UsageError("give either --image or --here.")
    if assets is not None and not assets.is_dir():
        raise UsageError(f"--assets {str(assets)!r} is not a folder.")
    with ExitStack() as stack:
        folder = output or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparring-smoke-")))
        if here:
            return _try_here(here, folder, assets, {key: value for key, value in settings.items() if value})
        return _try_images(images or image_names(), folder, assets, timeout)


def _try_here(name: str, folder: Path, assets: Path | None, settings: dict[str, Any]) -> int:
    if assets is not None:
        settings["assets"] = assets
    seen = asyncio.run(smoke_here(name, folder, **settings))
    click.echo(str(seen))
    return 0


def _try_images(images: Sequence[str], folder: Path, assets: Path | None, timeout: float) -> int:
    engine = connect()
    failed = 0
    width = max(map(len, images))
    for image in images:
        click.echo(f"{image:{width}}  ", nl=False)
        try:
            said = smoke_image(
                engine, image, folder / image.replace("/", "_").replace(":", "_"), assets=assets, seconds=timeout
            )
            click.echo(f"{click.style('ok', fg='green')}      {said}")
        except SparringError as error:
            failed += 1
            click.echo(f"{click.style('FAILED', fg='red', bold=True)}  {explain(error)}")
    return 1 if failed else 0
