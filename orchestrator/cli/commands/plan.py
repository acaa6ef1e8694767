"""`sparring plan`: how many episodes a question takes, before a run."""

from __future__ import annotations

import click
from click.core import ParameterSource

from sparring.orchestrator.cli.statistics import needs_scipy
from sparring.protos.errors import UsageError

_SHARE = click.FloatRange(0, 1)


@click.command(short_help="say how many episodes a difference or an interval takes")
@click.option("--rate", type=_SHARE, required=True, help="the success rate that you expect, or that the other one has")
@click.option("--difference", type=click.FloatRange(-1, 1), help="the difference that is to be seen, such as 0.05")
@click.option(
    "--half-width",
    type=click.FloatRange(0, 0.5, min_open=True),
    help="how wide the interval of one rate may be, on either side",
)
@click.option(
    "--discordant",
    type=_SHARE,
    help="share of episodes that only one of the two does; default: as if they had nothing to do with each "
    "other, which is the worst case for checkpoints of one training",
)
@click.option(
    "--power",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    help="how likely it is to be seen",
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="how likely a difference may be seen that is none",
)
@click.option("--tasks", type=click.IntRange(min=1), help="tasks of the plan: says the number of --episodes, too")
@click.pass_context
def plan(
    context: click.Context,
    rate: float,
    difference: float | None,
    half_width: float | None,
    discordant: float | None,
    power: float,
    alpha: float,
    tasks: int | None,
) -> None:
    """Says how many episodes are needed: to see a difference of two policies on the same episodes, or to know one rate.

    For example, sparring plan --rate 0.8 --difference 0.05 --tasks 10
    """
    if (difference is None) == (half_width is None):
        raise UsageError("say one of the two: --difference of two policies, or --half-width of one rate's interval.")
    if half_width is not None and discordant is not None:
        raise UsageError("--discordant is about two policies: it goes with --difference.")
    for name in ("alpha", "power"):
        if half_width is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name} goes with --difference; the interval of one rate is at 95 %.")
    with needs_scipy("sparring plan"):
        from sparring.orchestrator.comparison.planning import Difference, episodes_for_half_width, pairs_needed
    if half_width is not None:
        needed = episodes_for_half_width(rate, half_width)
        what = f"to know a rate of about {100 * rate:.0f} % to {100 * half_width:.1f} points on either side, at 95 %"
    else:
        assert difference is not None
        other = rate + difference
        if difference == 0 or not 0 <= other <= 1:
            raise UsageError(f"a difference of {difference:g} from a rate of {rate:g} is not possible or none at all.")
        expected = (
            Difference.of_rates(rate, other) if discordant is None else Difference.of_discordant(difference, discordant)
        )
        needed = pairs_needed(expected, alpha=alpha, wanted=power)
        what = (
            f"to see {100 * rate:.1f} % against {100 * other:.1f} % with a chance of {100 * power:.0f} % "
            f"(alpha {alpha:g}; {100 * expected.discordant:.0f} % of episodes differ)"
        )
    if needed is None:
        click.echo(f"{what}: more than a million episodes")
        return
    click.echo(f"{what}: {needed} episodes{'' if difference is None else ' of each'}")
    if tasks is not None:
        click.echo(f"with {tasks} tasks: --episodes {-(-needed // tasks)}")
