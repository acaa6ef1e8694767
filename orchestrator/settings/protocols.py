"""Protocols among settings: their names become the settings that they stand for.

Whoever reads settings afterwards, or finds them in a folder, needs to know nothing of protocols: seed, rules and
arguments of benchmarks are all there. The protocol itself stays beside them, whole, for its name and its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.protocol import (
    OURS_NAME,
    Protocol,
    WholeProtocol,
    protocols_of,
    settings_that_move,
    whole,
)
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.settings.config_file import ConfigFile
from sparring.orchestrator.settings.plan import Evaluation, checked_rules
from sparring.orchestrator.settings.saved_protocol import SavedProtocol
from sparring.policy_server.client import LAYOUTS
from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list
from sparring.protos.conditions import plain
from sparring.protos.episode_rules import meaning
from sparring.protos.errors import UsageError, unknown

_SUFFIXES: Final = (".yaml", ".yml")
_KEYS: Final = ("name", "version", "benchmark", "extends", "summary", "seed", "settings", "rules", "layout")


def with_protocols(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings, by their flat names, with those that protocols stand for.

    Raises:
        UsageError: If there is no such protocol for the benchmark, or a setting says otherwise than it does.
    """
    found = dict(values)
    several, one, evaluations = found.pop("protocols", None), found.get("protocol"), found.get("evaluations")
    if several is not None:
        return _side_by_side(found, several)
    if isinstance(evaluations, (list, tuple)) and evaluations:
        found["evaluations"] = [_part(found, entry, one) for entry in evaluations]
        found.pop("protocol", None)
        return found
    if isinstance(one, str) and isinstance(found.get("benchmark"), str):
        benchmark = get_benchmark(found["benchmark"])
        protocol = find_protocol(benchmark, one)
        _check(found, protocol)
        arguments = _arguments(found.get("benchmark_arg"), protocol)
        found |= {**protocol.rules, "seed": protocol.seed, "benchmark_arg": arguments}
        found["protocol"] = _saved(protocol)
    return found


def find_protocol(benchmark: Benchmark, name: str) -> WholeProtocol:
    """Returns a protocol of a benchmark, by its name or that of a file.

    Raises:
        UsageError: If there is none, or the file is none.
    """
    if is_file(name):
        return whole(benchmark, read_protocol(Path(name), benchmark))
    known = protocols_of(benchmark)
    if name not in known:
        hint = "See: sparring ls protocols. One of your own is a YAML file."
        raise unknown(f"protocol of {benchmark.name}:", name, known, hint=hint)
    return whole(benchmark, known[name])


def is_file(name: str) -> bool:
    """Returns whether a protocol is named by its file."""
    return name.endswith(_SUFFIXES)


def read_protocol(path: Path, benchmark: Benchmark) -> Protocol:
    """Reads a user's own protocol.

    Raises:
        UsageError: If it cannot be read, is of another benchmark, or says what no protocol can.
    """
    file = ConfigFile.read(path)
    content = dict(file.values)
    for key in content:
        if key not in _KEYS:
            raise unknown(f"key in {file.where([key])}:", key, _KEYS)
    if content.get("benchmark") != benchmark.name:
        raise UsageError(
            f"the protocol in {str(path)!r} is for the benchmark {content.get('benchmark')!r}, not for "
            f"{benchmark.name!r}: its `benchmark` says so."
        )
    _check_types(file, content)
    known = protocols_of(benchmark)
    base = content.get("extends", OURS_NAME)
    if base not in known:
        raise unknown(f"protocol of {benchmark.name} in {file.where(['extends'])}:", base, known)
    _check_settings(file, content.get("settings", {}), benchmark)
    if "layout" in content and content["layout"] not in LAYOUTS:
        raise unknown(f"layout in {file.where(['layout'])}:", content["layout"], LAYOUTS)
    name = content.get("name", "")
    if not name or name in known or _name_problem(name):
        raise UsageError(
            f"{file.where(['name'])}: a protocol of your own needs a `name` of its own, of letters, digits, '.', '-' "
            f"and '_', and not {name!r}."
        )
    try:
        rules = checked_rules(content.get("rules", {}))
    except ValueError as error:
        raise UsageError(f"{file.where(['rules'])}: {error}.") from error
    return Protocol(
        name,
        content.get("version", 1),
        content.get("summary", f"{path}, which extends {base}"),
        seed=content.get("seed", known[base].seed),
        settings={**known[base].settings, **content.get("settings", {})},
        rules={**known[base].rules, **rules},
        layout=content.get("layout", known[base].layout),
    )


def _check_types(file: ConfigFile, content: Mapping[str, Any]) -> None:
    texts = dict.fromkeys(("name", "extends", "summary", "layout"), str)
    kinds: dict[str, type] = {**texts, "version": int, "seed": int, "settings": dict, "rules": dict}
    for key, kind in kinds.items():
        value = content.get(key)
        if key in content and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UsageError(f"{file.where([key])}: `{key}` must be {_KINDS[kind]}, not {value!r}.")
    for key in ("settings", "rules"):
        for name in content.get(key, {}):
            if not isinstance(name, str):
                raise UsageError(f"{file.where([key, str(name)])}: names in `{key}` must be text, not {name!r}.")
    for key, least in (("version", 1), ("seed", 0)):
        if content.get(key, least) < least:
            raise UsageError(f"{file.where([key])}: `{key}` must be at least {least}, not {content[key]!r}.")


def _check_settings(file: ConfigFile, given: Mapping[str, Any], benchmark: Benchmark) -> None:
    """Refuses settings that are no rules: a protocol would not keep them. Those that do not exist are told later."""
    moving = settings_that_move(benchmark)
    for name in (field.name for field in fields(benchmark.settings)):
        if name in given and name not in moving:
            raise UsageError(
                f"{file.where(['settings', name])}: {name!r} is a setting of {benchmark.name} that moves no score, "
                f"and so no rule of protocols. Take it out; give it with {Hint('benchmark_arg', name, given[name])}."
            )


_KINDS: Final = {str: "text", int: "a whole number", dict: "`key: value` lines"}


def _name_problem(name: str) -> bool:
    try:
        Evaluation(benchmark="any", task="any", name=name)
    except ValueError:
        return True
    return False


def _side_by_side(values: dict[str, Any], several: Any) -> dict[str, Any]:
    """Makes a part of a run of each protocol."""
    if values.get("protocol") is not None or values.get("evaluations"):
        raise UsageError(
            f"{Hint('protocols')} is for one benchmark, without {Hint('protocol')} and without evaluations."
        )
    names = comma_list(several) if isinstance(several, str) else [str(name) for name in several]
    single: dict[str, Any] = {key: values.pop(key) for key in ("benchmark", "task", "benchmark_arg") if key in values}
    if not isinstance(single.get("benchmark"), str) or "task" not in single or not names:
        return {**values, **single}  # what is missing is told by whoever reads the rest
    entries = []
    for name in names:
        entry = _part(values, single, name)
        entries.append({**entry, "name": entry["protocol"]["name"]})
    return {**values, "evaluations": entries}


def _part(values: Mapping[str, Any], entry: Any, fallback: Any) -> Any:
    """Returns a part of a run with what its protocol stands for; what is no part is told by whoever reads it."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("benchmark"), str):
        return entry
    name = entry.get("protocol", fallback)
    if not isinstance(name, str):
        return entry
    benchmark = get_benchmark(entry["benchmark"])
    protocol = find_protocol(benchmark, name)
    own = entry.get("rules") if isinstance(entry.get("rules"), Mapping) else {}
    _check({**values, **(own or {}), **({"seed": entry["seed"]} if entry.get("seed") is not None else {})}, protocol)
    return {
        **entry,
        "benchmark_arg": _arguments(entry.get("benchmark_arg"), protocol),
        "protocol": _saved(protocol),
        "seed": protocol.seed,
        "rules": dict(protocol.rules),
    }


def _saved(protocol: WholeProtocol) -> dict[str, Any]:
    return SavedProtocol.of(protocol).model_dump(mode="json")


def _check(given: Mapping[str, Any], protocol: WholeProtocol) -> None:
    """Refuses a seed, or a rule of episodes, that says otherwise than the protocol."""
    for name, value in {**protocol.rules, "seed": protocol.seed}.items():
        if name in given and given[name] != value:
            raise _otherwise(protocol, name, value, str(Hint(name, value=given[name])))


def _arguments(given: Any, protocol: WholeProtocol) -> dict[str, Any]:
    arguments = dict(given) if isinstance(given, Mapping) else {}
    for name, value in protocol.settings.items():
        if name in arguments and plain(arguments[name]) != plain(value):
            raise _otherwise(protocol, name, value, str(Hint("benchmark_arg", name, arguments[name])))
    return {**arguments, **protocol.settings}


def _otherwise(protocol: WholeProtocol, name: str, value: Any, given: str) -> UsageError:
    return UsageError(
        f"the protocol {protocol.name!r} has {name}={value!r}{meaning(name, value)}, and {given} says otherwise. Leave "
        "it out, or write a protocol of your own that extends this one: docs/protocols.md."
    )
