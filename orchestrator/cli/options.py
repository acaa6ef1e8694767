"""Flags made from the settings themselves, so that a flag, a YAML key and a saved setting can never differ."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import click

from sparring.orchestrator.settings import parse_pairs, setting_fields

F = TypeVar("F", bound=Callable[..., Any])

FILE_ONLY: Final = ("evaluations",)
"""Settings with an inner structure: they have no flag."""


def setting_options(names: Iterable[str]) -> Callable[[F], F]:
    """Adds an option for each of the named settings; one that is not given stays out: defaults are the settings'."""
    fields = setting_fields()

    def decorate(function: F) -> F:
        for name in reversed([name for name in names if name not in FILE_ONLY]):
            field = fields[name]
            repeated = get_origin(field.annotation) is dict
            help_text = field.description or ""
            if field.annotation is bool:
                flag = name.replace("_", "-")
                function = click.option(f"--{flag}/--no-{flag}", name, default=None, help=help_text)(function)
                continue
            if not field.is_required() and not repeated and field.default is not None:
                help_text += f" [default: {field.default}]"
            function = click.option(
                f"--{name.replace('_', '-')}",
                name,
                multiple=repeated,
                type=_click_type(field.annotation),
                metavar="KEY=VALUE" if repeated else None,
                help=help_text,
            )(function)
        return function

    return decorate


def accept_option(function: F) -> F:
    """Adds `--accept-changes`, which is no setting: it is for this one execution, and not saved."""
    return click.option(
        "--accept-changes",
        is_flag=True,
        help="go on with a run though the policy, a benchmark or a package is another one than it was; results say so",
    )(function)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings among a command's values that were given on the command line."""
    settings: dict[str, Any] = {}
    known = setting_fields()
    for name, value in values.items():
        if name not in known or value is None or value == ():
            continue
        if isinstance(value, tuple):
            text = get_args(known[name].annotation) == (str, str)
            settings[name] = parse_pairs(value, f"--{name.replace('_', '-')}", text=text)
        else:
            settings[name] = value
    return settings


def _click_type(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not type(None)]
        # A union of kinds (slots: a number or "auto") is checked by the settings, not by click.
        return _click_type(inner[0]) if len(inner) == 1 else str
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    if annotation is Path:
        return click.Path(path_type=Path)
    return annotation if annotation in (int, float) else str
