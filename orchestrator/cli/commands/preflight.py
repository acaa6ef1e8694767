"""`sparring preflight`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from sparring.orchestrator.cli.options import given, setting_options
from sparring.orchestrator.settings import launcher_fields, parse_pairs, setting_fields

EXIT_FOUND: Final = 3
_SETTINGS: Final = (
    *("benchmark", "task", "benchmark_arg", "policy", "policy_arg", "rename", "policy_server", "policy_token_file"),
    *("policy_ca", "policy_tls_cert", "policy_tls_key", "policy_timeout", "protocol", "seed", "out_of_range"),
    *("in_process", "launcher", "assets", "listen", "insecure", "render_device", *launcher_fields()),
)


@click.command(short_help="play a few steps and look for the mistakes that make a policy fail without a word")
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    help="folder of the LeRobotDataset that the policy was trained on; default: one in its checkpoint's folder",
)
@click.option(
    "--dataset-feature",
    multiple=True,
    metavar="OBSERVATION=FEATURE",
    help="what the data set calls an observation of the benchmark, where names do not tell; may be repeated",
)
@click.option(
    "--episodes", type=click.IntRange(1), default=2, show_default=True, help="how many episodes the policy plays"
)
@click.option("--steps", type=click.IntRange(2), default=48, show_default=True, help="of each episode, at most")
@click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
@setting_options([name for name in dict.fromkeys(_SETTINGS) if name in setting_fields()])
def preflight(
    dataset: Path | None,
    dataset_feature: tuple[str, ...],
    episodes: int,
    steps: int,
    as_json: bool,
    **values: Any,
) -> int:
    """Plays a few steps, and holds what the policy sees and does against what is known of its training.

    Images upside down, mirrored, of another camera, in other colours; states in another order, with other signs or
    units; grippers the other way round; actions of another scale; sentences written otherwise; statistics that do not
    cover what is seen. Each finding says what to set; what could not be checked says why.

    \b
    Exit codes: 0 nothing was found, 3 something was, 2 wrong usage, 1 it could not be played.
    """  # noqa: D301 - click wants the very character
    # Not at the top: --help needs none of it.
    from sparring.orchestrator.cli.commands.check import report
    from sparring.orchestrator.preflight.preflight import preflight as look
    from sparring.protos.advice import FLAGS, render
    from sparring.protos.plain_text import plain

    found = look(
        dataset=dataset,
        dataset_feature=parse_pairs(dataset_feature, "--dataset-feature", text=True),
        episodes=episodes,
        steps=steps,
        **given(values),
    )
    if as_json:
        click.echo(json.dumps(found.to_json(), allow_nan=False))
    else:
        click.echo(plain(f"{found.policy} on {found.benchmark}, {found.task}:"))
        report(found.verdicts)
        for sentence in found.warnings:
            click.echo(plain(render(f"note: {sentence}", FLAGS)))
    return EXIT_FOUND if found.findings else 0
