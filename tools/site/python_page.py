"""The reference of what users import, from `sparring.__all__`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import griffe
from published import ROOT

import sparring

_GROUPS: Final = {
    "Evaluating": ("evaluate", "Evaluator", "close"),
    "Results": ("Results", "EpisodeRow"),
    "Comparing runs": (
        "compare",
        "Comparison",
        "Compared",
        "compare_returns",
        "ReturnComparison",
        "ComparedReturns",
        "ReturnPair",
        "suite_mean",
        "SuiteMean",
    ),
    "Policies": (
        "Policy",
        "TorchPolicy",
        "Batch",
        "TorchSession",
        "PolicySpec",
        "TensorSpec",
        "Observation",
        "Instruction",
        "PolicyClient",
        "Offer",
    ),
    "Benchmarks": (
        *("Benchmark", "Simulator", "Step", "Task", "TaskTable", "setting", "RenderMeter", "Protocol", "SmokeTest"),
        *("Assets", "WorkerImage", "check_benchmark", "make_env"),
    ),
    "Listeners": ("RunListener", "RunStart", "SlotActivity", "RunEnd"),
    "Launchers": (
        *("Launcher", "LauncherSettings", "WorkerOrder", "RunSettings", "CommandWorker", "keep_worker", "keep_all"),
        "check_launcher",
    ),
    "Errors": ("SparringError", "UsageError", "Hint"),
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


def undocumented(search: Path = ROOT / "src") -> Iterator[str]:
    """Yields public names, and public members of public classes, that have no docstring.

    Attributes are described below them, or in the docstring of their class, under "Attributes:" or "Args:".

    It reads the source and imports nothing: whoever builds the site need not have torch.

    Args:
        search: The folder that the package is in.
    """
    package = griffe.load("sparring", search_paths=[search], resolve_aliases=True)
    for name in package.exports or ():
        thing = package[str(name)]
        if not thing.has_docstring:
            yield f"sparring.{name}"
        if thing.is_class:
            for member in thing.members.values():
                if _is_public(member) and not any(_describes(kind, member.name) for kind in (thing, *thing.mro())):
                    yield f"sparring.{name}.{member.name}"


def _is_public(member: griffe.Object | griffe.Alias) -> bool:
    of_pydantic = member.name == "model_config"
    return not of_pydantic and not member.name.startswith("_") and (member.is_function or member.is_attribute)


def _describes(kind: griffe.Object | griffe.Alias, name: str) -> bool:
    """Whether a class says what a member is that it has, or that a class derived from it has."""
    if name in kind.members and kind.members[name].has_docstring:
        return True
    sections = [] if kind.docstring is None else kind.docstring.parse("google", warnings=False)
    kinds = (griffe.DocstringSectionAttributes, griffe.DocstringSectionParameters)
    told = [section for section in sections if isinstance(section, kinds)]
    return any(described.name == name for section in told for described in section.value)
