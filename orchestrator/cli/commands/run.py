"""`sparring run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from sparring.orchestrator.cli.options import accept_option, given, setting_options
from sparring.orchestrator.cli.viewing import ViewFlags, check_not_viewed, view_flags, view_options
from sparring.orchestrator.settings import RunSettings, read_settings, setting_fields
from sparring.protos.advice import FLAGS, Dialect
from sparring.protos.errors import UsageError
from sparring.protos.plain_text import plain

_NOTHING_GIVEN: Final = """say what to evaluate. For example:

    sparring run --benchmark metaworld --task easy --policy expert --episodes 10
    sparring run --benchmark gym --task CartPole-v1 --policy random
    sparring run --benchmark metaworld --task reach-v3 --policy my_module:MyPolicy
    sparring run --config run.yaml

See: sparring ls benchmarks, sparring ls policies, sparring run --help"""


@click.command(short_help="evaluate a policy on a benchmark")
@setting_options(setting_fields())
@click.option(
    "--config", type=click.Path(path_type=Path), help="YAML file with any of these settings; flags win over it"
)
@click.option("--json", "as_json", is_flag=True, help="print the results as JSON, and nothing else, on standard output")
@click.option(
    "--debug", is_flag=True, help="play one episode, of the first task, in this process; tell everything, keep nothing"
)
@click.option("--pdb", is_flag=True, help="as --debug, and stop in pdb where something is raised")
@click.option(
    "--index", type=click.IntRange(min=0), default=0, help="which of the task's episodes --debug plays [default: 0]"
)
@click.option("--dry-run", is_flag=True, help="show plan, slots, memory and what would be started, and start nothing")
@accept_option
@view_options
def run(
    config: Path | None,
    as_json: bool,
    debug: bool,
    pdb: bool,
    index: int,
    dry_run: bool,
    accept_changes: bool,
    view: bool,
    view_listen: str | None,
    view_token_file: Path | None,
    **values: Any,
) -> int:
    """Evaluates a policy and prints a table of success rates.

    Running the same command again, with the same --output, goes on where it ended.

    \b
    Examples:
      sparring run --benchmark metaworld --task easy --policy expert
      sparring run --benchmark metaworld --task easy --policy my_module:MyPolicy
      sparring run --config run.yaml --output outputs/first

    \b
    Exit codes: 0 all episodes have an outcome, 3 some ended in an error,
    2 wrong usage, 1 the run could not be finished, 130 interrupted.
    """  # noqa: D301 - click wants the very character
    flags = given(values)
    if config is None and not flags:
        raise UsageError(_NOTHING_GIVEN)
    # Not at the top: --help needs none of it.
    from sparring.orchestrator.cli.evaluation import broken_code_told

    with broken_code_told(flags.get("output")):  # a launcher's
        settings = read_settings(flags, config)
    return carry_out(
        settings,
        as_json=as_json,
        debug=debug,
        pdb=pdb,
        index=index,
        dry_run=dry_run,
        accept_changes=accept_changes,
        view=view_flags(view, view_listen, view_token_file),
    )


def carry_out(
    settings: RunSettings,
    *,
    as_json: bool = False,
    debug: bool = False,
    pdb: bool = False,
    index: int = 0,
    dry_run: bool = False,
    accept_changes: bool = False,
    dialect: Dialect = FLAGS,
    view: ViewFlags | None = None,
) -> int:
    """Does what settings, and the flags that are none, ask for; returns the exit code.

    Args:
        settings: Of the run.
        as_json: As the flag says, and so on.
        debug: See above.
        pdb: See above.
        index: See above.
        dry_run: See above.
        accept_changes: See above.
        dialect: The user's words.
        view: What was said of the live page.
    """
    from sparring.orchestrator.cli.evaluation import EXIT_ERRORS, evaluate_settings

    if view is not None and (dry_run or debug or pdb):
        check_not_viewed(view, "no run is made")
    if dry_run:
        from sparring.orchestrator.cli.dry_run import preview

        click.echo("\n".join(map(plain, preview(settings, accept_changes=accept_changes))))
        return 0
    if debug or pdb:
        from sparring.orchestrator.execution.debugging import debug_episode
        from sparring.orchestrator.run.make_plan import make_plan

        record = debug_episode(settings, make_plan(settings), _say, index=index, stop_in_pdb=pdb)
        return EXIT_ERRORS if record.outcome == "error" else 0
    return evaluate_settings(settings, as_json, dialect, accept_changes=accept_changes, view=view)


def _say(line: str) -> None:
    click.echo(plain(line))
