"""The reference of what users import, from `sparring.__all__`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

import sparring

_GROUPS: Final = {
    "Evaluating": ("evaluate", "Evaluator", "close"),
    "Results": ("Results", "EpisodeRow"),
    "Policies": (
        "Policy",
        "TorchPolicy",
        "PolicySpec",
        "TensorSpec",
        "Observation",
        "Instruction",
        "PolicyClient",
        "Offer",
    ),
    "Benchmarks": ("Benchmark", "Simulator", "Step", "Task", "setting", "check_benchmark"),
    "Listeners": ("RunListener", "RunStart", "SlotActivity", "RunEnd"),
    "Launchers": ("Launcher", "LauncherSettings", "WorkerOrder", "RunSettings", "check_launcher"),
    "Errors": ("SparringError", "UsageError"),
}
"""In which order people look for them; a name that is in none comes last."""

_INTRODUCTION = """# Python

What `from sparring import …` has. This page is made from the code; what is not on it may change with any release.
"""


def python_page() -> str:
    """Returns the page; mkdocstrings fills it."""
    named = {name for names in _GROUPS.values() for name in names}
    groups = {**_GROUPS, "Others": tuple(name for name in sparring.__all__ if name not in named)}
    parts = [_INTRODUCTION]
    for title, names in groups.items():
        if there := [name for name in names if name in sparring.__all__]:
            parts += [f"## {title}", *(f"::: sparring.{name}" for name in there)]
    return "\n\n".join(parts) + "\n"


def undocumented() -> Iterator[str]:
    """Yields public names, and public members of public classes, that have no docstring."""
    for name in sparring.__all__:
        thing = getattr(sparring, name)
        if not inspect.isclass(thing) and not inspect.isfunction(thing):
            continue  # an alias of a type: its docstring is in the source only
        if not _documented(thing):
            yield f"sparring.{name}"
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith(("_", "model_")) and _callable(value) and not _documented(getattr(thing, member)):
                yield f"sparring.{name}.{member}"


def _callable(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))


def _documented(thing: Any) -> bool:
    """Whether it, or what it overrides, has a docstring; what dataclasses make of their own does not count."""
    text = inspect.getdoc(thing)
    return bool(text) and not (inspect.isclass(thing) and text.startswith(f"{thing.__name__}("))
