"""`sparring bundle`: one file that a leaderboard can check."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from sparring.orchestrator.replay.bundle import SUFFIX, write_bundle
from sparring.protos.errors import UsageError
from sparring.protos.plain_text import plain


@click.command(short_help="pack a run into one file that others can verify")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--output", type=click.Path(path_type=Path), help=f"the file to write [default: DIR{SUFFIX}, beside the folder]"
)
def bundle(folder: Path, output: Path | None) -> None:
    """Packs what it takes to judge a run: run.json, every episode, actions, traces, versions, hashes and checksums.

    The same folder gives the same file. `sparring verify` plays it again, on any machine that has the benchmark.
    """
    absolute = folder.absolute()
    target = output or absolute.with_name(f"{absolute.name}{SUFFIX}")
    if target.is_dir():
        inside = plain(str(target / f"{absolute.name}{SUFFIX}"))
        raise UsageError(f"{str(target)!r} is a folder, and a bundle is a file: --output {inside}")
    sha256 = write_bundle(folder, target)
    click.echo(f"{plain(str(target))}: {target.stat().st_size:,} bytes, sha256 {sha256}")
    click.echo(f"check it with: sparring verify {plain(shlex.quote(str(target)))}")
