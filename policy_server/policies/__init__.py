"""Finds policies by name: the ones that ship with Sparring, entry points, and any `module:Class`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from sparring.policy_server.bridges.wires import WIRES, is_foreign, scheme_of
from sparring.policy_server.errors import PolicyBroken
from sparring.policy_server.policies.base import Policy
from sparring.policy_server.policies.rename import RenamedPolicy
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError, unknown
from sparring.protos.installing import install_command
from sparring.protos.own_modules import import_module_of
from sparring.protos.own_modules import look_in_the_current_folder as _look_in_the_current_folder
from sparring.protos.plugins import entry_points_of
from sparring.protos.spec import PolicySpec
from sparring.protos.tracebacks import was_raised_in

ENTRY_POINTS: Final = "sparring.policies"
POLICIES_PACKAGE: Final = __name__
_LEROBOT: Final = "lerobot:"
_SEE: Final = "docs/policies.md shows one that is whole"

_NONE: Final[Mapping[str, str]] = {}
_FOREIGN_POLICY: Final = "sparring.policy_server.bridges.policy:ForeignPolicy"
_LEROBOT_POLICY: Final = "sparring.policy_server.policies.lerobot:LeRobotPolicy"
_SHIPPED: Final = {
    "random": "sparring.policy_server.policies.blind:RandomPolicy",
    "zero": "sparring.policy_server.policies.blind:ZeroPolicy",
    "replay": "sparring.policy_server.policies.replay:ReplayPolicy",
}


def known_policies(experts: Mapping[str, str] = _NONE) -> dict[str, str]:
    """Returns the names that `--policy` takes, with a line about each; `experts` as for `load_policy`."""
    lines = {
        "expert": f"scripted experts of a benchmark ({', '.join(sorted(experts))}); look=[names]",
        "lerobot:CHECKPOINT": "a LeRobot checkpoint, a folder or a hub id (extra: lerobot); rename={camera: name}",
        "random": "uniform in the action space; chunk=N, observations=[names]",
        "replay": "recorded actions; file=PATH, chunk=N",
        "zero": "all zeros; chunk=N, observations=[names]",
        "module:Class": "a class of your own",
        **{known.address: known.summary for known in WIRES.values() if known.client},
    }
    lines.update({point.name: f"{point.value} (installed)" for point in entry_points_of(ENTRY_POINTS)})
    return lines


def load_policy(name: str, arguments: Mapping[str, Any], *, experts: Mapping[str, str] = _NONE) -> Policy:
    """Makes the policy that `--policy NAME --policy-arg KEY=VALUE` asks for.

    Args:
        name: A shipped policy, an installed entry point, or `module:Class`.
        arguments: Keyword arguments of its constructor.
        experts: What `expert` means: for each benchmark `module:Class`, or nothing where it has none.

    Raises:
        UsageError: If there is no such policy, or it cannot be made, with what to do about it.
    """
    factory = _find(name, experts)
    names = arguments.get("rename")
    if names is None or _takes(factory, "rename"):
        return checked(name, _construct(name, factory, arguments))
    others = {key: value for key, value in arguments.items() if key != "rename"}
    return cast(Policy, RenamedPolicy(checked(name, _construct(name, factory, others)), names))


def policy_modules(name: str, experts: Mapping[str, str] = _NONE) -> list[str]:
    """Returns the modules that a policy comes from, by its name; none, if there is no such policy. Imports nothing.

    Args:
        name: As for `load_policy`.
        experts: As for `load_policy`.
    """
    points = {point.name: point.value for point in entry_points_of(ENTRY_POINTS)}
    if name == "expert":
        references = list(experts.values())
    elif is_foreign(name):
        references = [_FOREIGN_POLICY]
    elif name.startswith(_LEROBOT):
        references = [_LEROBOT_POLICY]
    else:
        references = [_SHIPPED.get(name) or points.get(name) or name]
        if name not in _SHIPPED and name not in points:
            _look_in_the_current_folder()
    return [module for module, colon, _ in (reference.partition(":") for reference in references) if colon and module]


def distribution_of(name: str) -> str:
    """Returns the package that brings a policy of this name, with its version; nothing, if none does."""
    for point in entry_points_of(ENTRY_POINTS):
        if point.name == name and point.dist is not None:
            return f"{point.dist.name} {point.dist.version}"
    return ""


def _find(name: str, experts: Mapping[str, str]) -> Any:
    if name == "expert":
        return _find_experts(experts)
    if name.startswith("live:"):
        raise UsageError(
            f"{name!r} was an object in the program that evaluated it; only that program can evaluate it again."
        )
    if name in _SHIPPED:
        return _import(_SHIPPED[name])
    for point in entry_points_of(ENTRY_POINTS):
        if point.name == name:
            return _import(point.value)
    if f"{name}:".startswith(_LEROBOT):
        checkpoint = name[len(_LEROBOT) :]
        if not checkpoint:
            raise UsageError(f"the policy {name!r} names no checkpoint: give lerobot:FOLDER, or lerobot: and a hub id.")
        return partial(_import(_LEROBOT_POLICY), checkpoint)
    if is_foreign(name):
        return partial(_import(_FOREIGN_POLICY), name)
    if scheme := scheme_of(name):
        raise unknown("wire of a policy's address:", scheme, [p.scheme for p in WIRES.values() if p.client])
    if ":" in name or name.endswith(".py"):  # a file's name is told from a module's
        _look_in_the_current_folder()
        return _import(name)
    raise unknown(
        "policy",
        name,
        [n for n in known_policies() if ":" not in n],
        hint="A class of your own is given as module:Class.",
    )


def _find_experts(references: Mapping[str, str]) -> Any:
    if not references:
        raise UsageError(
            f"the policy 'expert' is a different one for each benchmark: name it with {Hint('benchmark')}."
        )
    for benchmark, reference in references.items():
        if not reference:
            raise UsageError(f"there is no scripted expert for the benchmark {benchmark!r}. See: sparring ls policies")

    def make(*, look: Sequence[str] = ()) -> Policy:
        from sparring.policy_server.policies.expert import Experts

        experts = {benchmark: _import(reference)() for benchmark, reference in references.items()}
        return Experts(experts, look) if len(experts) > 1 or look else next(iter(experts.values()))

    return make


def _import(reference: str) -> Any:
    module_name, _, attribute = reference.partition(":")
    try:
        module = import_module_of(reference, "policy")
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        own = module_name.rpartition(".")[2] if module_name.startswith(f"{__name__}.") else ""
        command = install_command(own) or install_command(own.partition("_")[0])  # torch; metaworld_expert
        hint = f": {command}" if command else ""
        # Of ours, there is nothing to look for in the traceback.
        kind = UsageError if own else PolicyBroken
        raise kind(f"the module {module_name!r} needs {error.name!r}, which is not installed{hint}.") from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        raise PolicyBroken(f"importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
        raise unknown(f"class in {module_name!r}:", attribute, classes) from None


def _takes(factory: Any, argument: str) -> bool:
    """Returns whether a policy's constructor takes a keyword argument; where that cannot be told, it does not."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _check_arguments(name: str, factory: Any, arguments: Mapping[str, Any]) -> None:
    """Checks that the constructor takes what is given; Python's own sentence would name a function of ours."""
    for argument in arguments:
        if not _takes(factory, argument):
            kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            known = [n for n, p in inspect.signature(factory).parameters.items() if p.kind in kinds]
            raise unknown(f"argument of the policy {name!r}:", argument, known)


def _construct(name: str, factory: Any, arguments: Mapping[str, Any]) -> Any:
    with suppress(TypeError, ValueError):  # it has no signature: Python says what it does not take
        _check_arguments(name, factory, arguments)
    try:
        return factory(**arguments)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # a user's constructor may raise anything
        given = ", ".join(f"{k}={v!r}" for k, v in arguments.items()) or "no arguments"
        # What Sparring's own code raises is about what was asked of it.
        kind = UsageError if was_raised_in(error, "sparring") else PolicyBroken
        raise kind(f"the policy {name!r} could not be made with {given}: {type(error).__name__}: {error}") from error


def checked(name: str, policy: Any) -> Policy:
    """Returns the object, if it has what a policy must have.

    Raises:
        UsageError: If it lacks something, with what, or is none.
    """
    if isinstance(policy, type):
        made = f"{policy.__name__}()"
        raise UsageError(f"the policy is the class {policy.__name__}, and not an object of it: give {made}.")
    if isinstance(policy, str):
        raise UsageError(f"the policy is the text {policy!r}; names are for `sparring run`, here give an object.")
    missing = [m for m in ("new_session", "act") if not callable(getattr(policy, m, None))]
    # The base class has an `act` that only says it is missing; that is no better than none.
    if isinstance(policy, Policy) and type(policy).act is Policy.act:
        missing.append("act")
    if missing:
        lacking = " and ".join(f"{method}()" for method in dict.fromkeys(missing))
        raise UsageError(f"the policy {name!r} lacks {lacking}; {_SEE}.")
    try:
        spec = getattr(policy, "spec", None)
    except Exception as error:  # it may be a property, which may raise anything
        raise PolicyBroken(f"the spec of the policy {name!r} raised {type(error).__name__}: {error}") from error
    if not isinstance(spec, PolicySpec):
        raise UsageError(f"the policy {name!r} needs an attribute `spec` that is a PolicySpec; {_SEE}.")
    return policy  # type: ignore[no-any-return]
