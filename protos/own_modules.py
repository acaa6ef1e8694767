"""Modules of a user's own, named as `module:Class`: policies and benchmarks are found by the same rules."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import PurePath
from types import ModuleType

from sparring.protos.errors import UsageError


def look_in_the_current_folder() -> None:
    """Lets a user's own module be found beside them, as with `python -m`.

    For nothing else: the current folder may be that of a checkpoint, or a folder of downloads, where a `peft.py` would
    be imported in the place of a library.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def import_module_of(reference: str, what: str, *, elsewhere: str = "") -> ModuleType:
    """Imports the module of `module:Class`.

    Args:
        reference: What was given.
        what: It is to be: `policy`.
        elsewhere: One more sentence, on where else the module may be needed.

    Raises:
        UsageError: If there is no such module; whatever a module that there is raises while it is imported is its own.
    """
    name, _, attribute = reference.partition(":")
    if "/" in name or name.endswith(".py"):
        raise UsageError(
            f"{name!r} is the name of a file; a {what} is named by its module, "
            f"{PurePath(name).stem}:{attribute or 'Class'}, from the folder that it is in."
        )
    absent = UsageError(
        f"there is no module {name!r} to take a {what} from; run from the folder it is in, or put that on PYTHONPATH."
        f"{elsewhere}"
    )
    if not name:
        raise absent
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise absent from None
        raise
