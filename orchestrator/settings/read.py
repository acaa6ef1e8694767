"""Reading settings: from flags over a YAML file over defaults, with a sentence for whatever is wrong."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from sparring.orchestrator.launchers.base import Launcher
from sparring.orchestrator.launchers.registry import HERE, get_launcher, hosting_settings_of
from sparring.orchestrator.settings.config_file import ConfigFile, FileKeys
from sparring.orchestrator.settings.in_process import problems_in_process, settings_in_process
from sparring.orchestrator.settings.output import OutputSettings
from sparring.orchestrator.settings.plan import Evaluation, PlanSettings, RuleSettings
from sparring.orchestrator.settings.policy import HostedServerSettings, PolicySettings
from sparring.orchestrator.settings.run import (
    SERVING,
    RunSettings,
    core_fields,
    fields_of,
    hosting_fields,
    launcher_fields,
    own_fields,
    owners,
    setting_fields,
)
from sparring.orchestrator.settings.stopping import StopSettings
from sparring.orchestrator.settings.tracking import TrackSettings
from sparring.orchestrator.settings.worker import WorkerSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError, unknown

G = TypeVar("G", bound=BaseModel)

_DEFAULT_LAUNCHER: Final[str] = WorkerSettings.model_fields["launcher"].default


def read_settings(flags: Mapping[str, Any], config: Path | None = None) -> RunSettings:
    """Reads settings from flags over a YAML file over defaults.

    Raises:
        UsageError: If a key is unknown or a value is wrong, with what would be right.
    """
    if config is None:
        return _read(flags, None)
    file = ConfigFile.read(config)
    try:
        return _read({**file.values, **flags}, file.without(flags))
    except UsageError as error:
        error.dialect = error.dialect or FileKeys(frozenset(flags))
        raise


def _read(values: Mapping[str, Any], file: ConfigFile | None) -> RunSettings:
    launcher = get_launcher(str(values.get("launcher", _DEFAULT_LAUNCHER)))
    known = {**setting_fields(), **own_fields(launcher)}
    for key in values:
        if key not in known:
            raise unknown(f"setting in {file.where([key])}:" if file else "setting", str(key), known)
    if any(values.get(key) for key in ("protocol", "protocols", "evaluations")):
        from sparring.orchestrator.settings.protocols import with_protocols  # which asks benchmarks

        values = with_protocols(values)
    return _Reader(values, file).settings(launcher)


def saved_settings(saved: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an earlier run saved of its settings, with those that are given now."""
    kept = dict(saved)
    if now.get("launcher", saved.get("launcher")) != saved.get("launcher"):
        # What was set for one way to start workers says nothing about another; that one may not even be here any more.
        kept = {key: value for key, value in saved.items() if key in core_fields() | hosting_fields()}
    if saved.get("policy") is None:  # release 0.1.0 took them without a server to give them to
        kept = {key: value for key, value in kept.items() if key not in fields_of(HostedServerSettings)}
    if now.get("serve_on", saved.get("serve_on")) != saved.get("serve_on") or "policy_server" in now:
        kept = {key: value for key, value in kept.items() if not key.startswith(SERVING)}
    if now.get("in_process", saved.get("in_process")):  # an earlier release may have had other defaults
        kept = settings_in_process(kept)
    return {**kept, **now}


class _Reader:
    """Makes the groups, one after the other, and tells everything that is wrong with them at once."""

    def __init__(self, values: Mapping[str, Any], file: ConfigFile | None) -> None:
        self._values = values
        self._file = file
        self._problems: list[str] = []

    def settings(self, launcher: Launcher[Any]) -> RunSettings:
        plan = self._group_with_own(PlanSettings, RuleSettings)
        place = hosting_settings_of(str(self._values.get("serve_on", HERE)))
        hosting = self._group(place)
        policy = None
        if hosting is not None:
            policy = self._group_with_own(PolicySettings, HostedServerSettings, hosting=hosting)
        self._check_others({**fields_of(launcher.settings), **fields_of(place)})
        worker = self._group_with_own(WorkerSettings, launcher.settings)
        output = self._group(OutputSettings)
        stop, tracking = self._group(StopSettings), self._group(TrackSettings)
        if plan is not None and plan.in_process:
            self._problems += problems_in_process(self._values, core_fields())
        if (
            plan is None
            or policy is None
            or worker is None
            or output is None
            or stop is None
            or tracking is None
            or self._problems
        ):
            raise UsageError(" ".join(self._problems))
        return RunSettings(plan, policy, worker, output, stop, tracking)

    def _group(self, kind: type[G], **more: Any) -> G | None:
        mine = {name: self._values[name] for name in fields_of(kind) if name in self._values}
        try:
            return kind(**mine, **more)
        except ValidationError as error:
            self._problems += [self._located(problem) for problem in error.errors()]
            return None

    def _located(self, problem: Any) -> str:
        """Returns what is wrong, and where, if a file says it."""
        said = _sentence(problem)
        way = problem["loc"]
        return f"{self._file.where(way)}: {said}" if self._file and way and way[0] in self._file.values else said

    def _group_with_own(self, kind: type[G], own: type[BaseModel], **more: Any) -> G | None:
        made = self._group(own)
        return None if made is None else self._group(kind, own=made, **more)

    def _check_others(self, these: Collection[str]) -> None:
        """Refuses settings of other launchers; one that has its default says nothing, and is in older folders."""
        for name, field in {**launcher_fields(), **hosting_fields()}.items():
            if name in these or name not in self._values:
                continue
            if self._values[name] != field.get_default(call_default_factory=True):
                self._problems.append(f"{Hint(name)} goes with {' or '.join(map(str, owners(name)))}.")


def _sentence(problem: Any) -> str:
    where = _setting(problem["loc"])
    if problem["type"] == "extra_forbidden":
        wrong = unknown("key", str(problem["loc"][-1]), Evaluation.model_fields)
        return f"{_setting(problem['loc'][:-1])}: {wrong.sentence}"
    if problem["type"] == "missing":
        return f"{where} is missing."
    said = problem["msg"].removeprefix("Value error, ")
    if not where:
        return f"{said}."
    if repr(problem["input"]) in said:  # it has been quoted already
        return f"{where}: {said.rstrip('.')}."
    return f"{where}: {said[0].lower()}{said[1:]}, not {json.dumps(problem['input'], default=str)}."


def _setting(way: Sequence[str | int]) -> str:
    """Returns a setting, and where in it something is: the first of `evaluations`, `task`."""
    if not way:
        return ""
    # Of others, what follows are the kinds of values that it might have been.
    inner = way[1:] if way[0] == "evaluations" else ()
    places = [f"number {part + 1}" if isinstance(part, int) else f"`{part}`" for part in inner]
    return ", ".join([str(Hint(str(way[0]))), *places])
