"""`sparring lerobot-eval`: LeRobot's own command line, for people who change nothing but the command's name."""

from __future__ import annotations

import logging
from typing import Any, Final

import click

from sparring.orchestrator.cli.commands.run import carry_out, run
from sparring.orchestrator.cli.lerobot_advice import LeRobotFlags
from sparring.orchestrator.cli.lerobot_flags import translate
from sparring.orchestrator.cli.options import given
from sparring.orchestrator.cli.viewing import view_flags
from sparring.protos.errors import SparringError, UsageError

log = logging.getLogger(__name__)

_NO_SETTINGS: Final = ("as_json", "debug", "pdb", "index", "dry_run", "accept_changes")
"""Flags of `sparring run` that are no settings."""


class _AnyFlags(click.Command):
    """Takes all arguments as they are: click has no flags with dots in their names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args.index("--") if "--" in args else len(args)
        if {"--help", "-h"} & set(args[:own]):
            click.echo(ctx.get_help())
            ctx.exit()
        ctx.params = {"flags": tuple(args[:own]), "own": tuple(args[own + 1 :])}
        return []


@click.command(
    "lerobot-eval",
    cls=_AnyFlags,
    short_help="evaluate a LeRobot checkpoint, with LeRobot's own flags",
    options_metavar="--FLAG=VALUE ... [-- SPARRING'S OWN FLAGS]",
)
def lerobot_eval(flags: tuple[str, ...], own: tuple[str, ...]) -> int:
    """Takes the flags of LeRobot's lerobot-eval and writes the same output folder.

    \b
    --policy.path          checkpoint: a folder, or a name on the hub (required)
    --policy.device        and any other setting of its configuration, such as
    --policy.n_action_steps
    --env.type             libero, metaworld, pusht or aloha (required)
    --env.task             suites, or groups and tasks, comma-separated
    --env.task_ids         numbers of tasks in each suite: [0,3]
    --env.camera_name_mapping, --env.observation_height, --env.observation_width,
    --env.control_mode, --env.episode_length
    --env.max_parallel_tasks, --eval.n_episodes, --eval.batch_size
    --seed, --output_dir, --job_name, --rename_map, --config_path

    After a lone --, flags of `sparring run` may follow and win: -- --video none --slots 8, or -- --view.
    docs/lerobot-eval.md says what each means here.
    """  # noqa: D301 - click wants the very character
    dialect = LeRobotFlags()
    try:
        translated = translate(flags, own=_own_settings(own))
        dialect = LeRobotFlags(translated.settings.plan.benchmark or "")
        for note in translated.notes:
            log.info("%s", note)
        return carry_out(translated.settings, dialect=dialect, **_how(own))
    except SparringError as error:
        error.dialect = error.dialect or dialect
        raise


def _own_settings(arguments: tuple[str, ...]) -> dict[str, Any]:
    return given(_own_flags(arguments))


def _how(arguments: tuple[str, ...]) -> dict[str, Any]:
    flags = _own_flags(arguments)
    if not flags:
        return {}
    view = view_flags(flags["view"], flags["view_listen"], flags["view_token_file"])
    return {"view": view} | {name: flags[name] for name in _NO_SETTINGS if name in flags}


def _own_flags(arguments: tuple[str, ...]) -> dict[str, Any]:
    if not arguments:
        return {}
    with run.make_context("run", list(arguments)) as context:
        flags = dict(context.params)
    if flags["config"] is not None:
        raise UsageError(
            "--config cannot follow --: give its settings there as flags, or LeRobot's own file with --config_path."
        )
    return flags
