"""`sparring serve`: the policy server, by the same command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sparring.env_worker.registry import experts_of
from sparring.orchestrator.cli.become import become
from sparring.orchestrator.settings import parse_pairs
from sparring.policy_server.client import Option, ServerOptions, server_options
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError


def _for_people() -> list[Option]:
    return [option for option in server_options() if not option.by_program]


def _flag(option: Option) -> str:
    """Returns the server's own flag, or for KEY=VALUE the same in the singular."""
    return option.flag.removesuffix("s") if option.pairs else option.flag


def _value(option: Option, text: Any) -> Any:
    if option.pairs:
        return parse_pairs(text, _flag(option))
    if option.repeated:
        return tuple(text)
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{option.flag} {text}: {error}.") from error


def _server_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Returns a flag for each option of a policy server; one that is not given stays out: defaults are the server's."""
    for option in reversed(_for_people()):
        shown = f" [default: {', '.join(option.default) if option.repeated else option.default}]"
        help_text = option.pairs or option.help + ("" if option.default in ("", None, False) else shown)
        function = click.option(
            _flag(option),
            option.name,
            is_flag=option.is_switch or None,
            multiple=option.repeated or bool(option.pairs),
            metavar="KEY=VALUE" if option.pairs else None,
            required=option.name == "policy",
            help=help_text,
        )(function)
    return function


@click.command(short_help="host a policy for others")
@_server_flags
@click.option(
    "--rename",
    multiple=True,
    metavar="CAMERA=NAME",
    help="an observation of the policy and the benchmark's name for it; may be repeated",
)
@click.option("--benchmark", default="", help="whose expert, for --policy expert; several with commas")
def serve(rename: tuple[str, ...], benchmark: str, **given: Any) -> None:
    """Hosts a policy until Ctrl-C or SIGTERM; use it with sparring run --policy-server."""
    options = {option.name: _value(option, given[option.name]) for option in _for_people() if given[option.name]}
    arguments = options.get("policy_args", {})
    if rename and "rename" in arguments:
        raise UsageError("--rename and --policy-arg rename=... are the same; give one of them.")
    if rename:
        options["policy_args"] = {**arguments, "rename": parse_pairs(rename, "--rename")}
    if options["policy"] == "expert":
        options["experts"] = experts_of(comma_list(benchmark))
    become("sparring.policy_server", *ServerOptions(**options).arguments())
