"""The reference of settings, from where they are defined."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from tables import code, prose, table

from sparring.env_worker.registry import OURS, all_benchmarks, distribution_of
from sparring.orchestrator.cli.options import FILE_ONLY
from sparring.orchestrator.launchers.registry import working_launchers
from sparring.orchestrator.settings.output import OutputSettings
from sparring.orchestrator.settings.plan import PlanSettings, RuleSettings
from sparring.orchestrator.settings.policy import HostedServerSettings, PolicySettings
from sparring.orchestrator.settings.run import fields_of
from sparring.orchestrator.settings.stopping import StopSettings
from sparring.orchestrator.settings.tracking import TrackSettings
from sparring.orchestrator.settings.worker import WorkerSettings
from sparring.policy_server.options import server_options

_HEAD = ("setting", "kind", "default", "meaning")

_GROUPS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("What is played", "", PlanSettings),
    ("Rules of episodes", "", RuleSettings),
    ("The policy", "", PolicySettings),
    ("The policy server that a run hosts", "", HostedServerSettings),
    ("Workers", "", WorkerSettings),
    ("When it stops early", "", StopSettings),
    ("What is written", "", OutputSettings),
    ("Trackers", "", TrackSettings),
)

_INTRODUCTION = """# Settings

Every setting is a flag of `sparring run` (`--max-steps 200`), a key in a YAML file (`max_steps: 200`, for
`sparring run --config FILE`) and a keyword of [`evaluate()`](python.md#sparring.evaluate) (`max_steps=200`). Flags win
over the file. A setting that may be repeated (`KEY=VALUE`) is a mapping in a file and in Python. This page is made from
the code.
"""


def settings_page() -> str:
    """Returns the page."""
    parts = [_INTRODUCTION]
    for title, more, group in _GROUPS:
        parts += [f"## {title}\n\n{more}", table(_HEAD, _rows_of(group))]
    for launcher in working_launchers().values():
        if own := list(_rows_of(launcher.settings)):
            parts += [
                f"## The launcher `{launcher.name}`\n\nWith `--launcher {launcher.name}` only.",
                table(_HEAD, own),
            ]
        if hosting := list(_rows_of(launcher.hosting_settings)):
            parts += [
                f"## Policies on `{launcher.name}`\n\nWith `--serve-on {launcher.name}` only.",
                table(_HEAD, hosting),
            ]
    parts.append(
        "## Benchmarks\n\nWhat `--benchmark-arg KEY=VALUE` takes. In a file: `benchmark_arg: {KEY: VALUE}`; in Python: "
        "`benchmark_arg={...}`."
    )
    for name, benchmark in sorted(all_benchmarks().items()):
        if distribution_of(name) == OURS and is_dataclass(benchmark.settings):
            parts += [f"### `{name}`", table(_HEAD, _rows_of_dataclass(benchmark.settings))]
    rows = [
        (code(_flag_of_server(option)), kind(option.kind), default(option.default), prose(option.pairs or option.help))
        for option in server_options()
        if not option.by_program
    ]
    parts.append("## A policy server\n\nThe options of `sparring serve`; those of a hosted one are above, too.")
    parts.append(table(("flag", *_HEAD[1:]), rows))
    return "\n\n".join(parts) + "\n"


def _flag_of_server(option: Any) -> str:
    return option.flag.removesuffix("s") if option.pairs else option.flag


def _rows_of(group: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in fields_of(group).items():
        shown = f"`{name}` (in a file)" if name in FILE_ONLY else code(f"--{name.replace('_', '-')}")
        value = field.get_default(call_default_factory=True)
        yield shown, kind(field.annotation), default(value), prose(field.description or "")


def _rows_of_dataclass(settings: type[Any]) -> Iterator[tuple[str, ...]]:
    said, kinds = attributes(settings), get_type_hints(settings)
    for field in fields(settings):
        value = field.default if field.default is not MISSING else None
        yield code(field.name), kind(kinds[field.name]), default(value), prose(said.get(field.name, ""))


def attributes(thing: type[Any]) -> Mapping[str, str]:
    """Returns what a docstring says of the attributes, by their names."""
    section = re.search(r"^Attributes:\n((?: .*\n?|\n)*)", inspect.getdoc(thing) or "", re.MULTILINE)
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def kind(annotation: Any) -> str:
    """Returns a type in a word or two."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(kind(a) for a in arguments if a is not type(None))
    if origin is Literal:
        return ", ".join(code(a) for a in arguments)
    if origin is dict or annotation is dict or (origin and issubclass(origin, Mapping)):
        return "`KEY=VALUE`, repeated"
    if origin in (tuple, list):
        return "a list"
    words = {int: "whole number", float: "number", str: "text", bool: "switch", Path: "path"}
    return words.get(annotation, "")


def default(value: Any) -> str:
    """Returns a default as it would be typed."""
    if value is None or value == () or value == {} or value == "":
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (tuple, list)):
        return code(", ".join(map(str, value)))
    if isinstance(value, float) and value != value:
        return ""
    return code(value if isinstance(value, (str, Path)) else json.dumps(value))
