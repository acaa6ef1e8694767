"""Finds environments that packages register when they are imported: by `module:ID`, or by the namespace of the ID."""

from __future__ import annotations

import importlib
from typing import Any

from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.installing import is_installed
from sparring.protos.own_modules import look_in_the_current_folder


def import_for(name: str) -> str:
    """Imports what registers an environment, if that is known; returns what was tried, in words, or nothing.

    `gym_pusht/PushT-v0` is registered by the module `gym_pusht`. Packages that have entry points for it have been
    imported with gymnasium.

    Raises:
        UsageError: If a module is named that is not there, or the module of a namespace cannot be imported.
    """
    import gymnasium

    module, colon, _ = name.rpartition(":")
    if colon:
        look_in_the_current_folder()
        if not is_installed(module):
            raise UsageError(
                f"there is no module {module!r} to take the environment {name!r} from; run from the folder it is "
                "in, or put that on PYTHONPATH."
            )
        return ""  # gymnasium.make imports it
    namespace = name.rpartition("/")[0]
    if not namespace or any(spec.namespace == namespace for spec in gymnasium.registry.values()):
        return ""
    candidates = list(dict.fromkeys([namespace, namespace.replace("-", "_")]))
    for candidate in candidates:
        if is_installed(candidate):
            try:
                importlib.import_module(candidate)
            except Exception as error:
                raise UsageError(
                    f"the module {candidate!r}, which should register {name!r}, cannot be imported: "
                    f"{type(error).__name__}: {error}"
                ) from error
            return f"The module {candidate!r} was imported, and does not register it."
    tried = " and ".join(map(repr, candidates))
    return (
        f"A module {tried} would have been imported, and is not installed in this Python. Install the package that "
        "brings it, best in a Python of its own (`sparring env create gym --with PACKAGE`), or name the module that "
        f"registers it: {Hint('task', value=f'MODULE:{name}')}."
    )


def module_of(name: str) -> str:
    """Returns what is before the colon of an ID, or else its namespace: a module of that name would be imported."""
    return name.rpartition(":")[0] or name.rpartition("/")[0]


def make(name: str, arguments: dict[str, Any]) -> Any:
    """Makes a registered environment.

    Raises:
        UsageError: If there is none of that name, or it cannot be made with these arguments.
    """
    import gymnasium

    tried = import_for(name)
    try:
        return gymnasium.make(name, **arguments)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        raise UsageError(f"there is no Gymnasium environment {name!r}: {f'{error} {tried}'.strip()}") from error
    except (gymnasium.error.Error, TypeError) as error:  # of what is missing, or arguments that it does not take
        raise UsageError(f"gymnasium cannot make {name!r}: {error}") from error
