"""All settings of a run: groups inside, flat for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sparring.orchestrator.launchers.base import Launcher
from sparring.orchestrator.launchers.registry import get_launcher, working_launchers
from sparring.orchestrator.machine.capacity import SLOT_BYTES, Capacity, capacity
from sparring.orchestrator.settings.group import SettingsGroup
from sparring.orchestrator.settings.output import OutputSettings
from sparring.orchestrator.settings.plan import PlanSettings, RuleSettings
from sparring.orchestrator.settings.policy import HostedServerSettings, PolicySettings
from sparring.orchestrator.settings.stopping import StopSettings
from sparring.orchestrator.settings.tracking import TrackSettings
from sparring.orchestrator.settings.worker import WorkerSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError

OWN: Final = ("own", "hosting")
"""The fields of groups that hold settings which are defined elsewhere."""

SERVING: Final = "serve_"
"""How the names of all settings begin that say where a policy is hosted."""


@dataclass(frozen=True)
class RunSettings:
    """The settings of `sparring run`; made by `read_settings`.

    Attributes:
        plan: What is played, and how.
        policy: Which policy, and where it is hosted.
        worker: What workers are made of: only of these, and of their benchmarks, depends whether they can stay.
        output: What is written, and where.
        stop: When it may stop early.
        tracking: Which trackers are told.
    """

    plan: PlanSettings
    policy: PolicySettings
    worker: WorkerSettings
    output: OutputSettings
    stop: StopSettings
    tracking: TrackSettings

    def flat(self) -> dict[str, Any]:
        """Returns every setting by the name of its flag, ready for JSON: what `read_settings` reads again."""
        values: dict[str, Any] = {}
        for group in (self.plan, self.stop, self.policy, self.worker, self.output, self.tracking):
            dumped = group.model_dump(mode="json", by_alias=True)
            for field in OWN:
                dumped |= dumped.pop(field, {})
            values |= dumped
        return values

    @property
    def launcher(self) -> Launcher[Any]:
        """What starts the workers."""
        return get_launcher(self.worker.launcher)

    @property
    def fixed_slots(self) -> int | None:
        """How many slots there are, where settings say so; None: as many as are good here."""
        own = self.launcher.slot_count(self)
        if own is None and isinstance(self.plan.slots, int):
            return self.plan.slots
        return own

    def slot_count(self, episodes: int) -> int:
        """Returns how many slots there are, given how many episodes there are to run."""
        fixed = self.fixed_slots
        if fixed is not None:
            return fixed
        return self._capacity.slots(episodes, elsewhere=self.policy.computed_elsewhere)

    def slot_reason(self, episodes: int) -> str:
        """Returns why there are that many, for people; nothing if it is a setting."""
        if self.fixed_slots is not None:
            return ""
        return self._capacity.reason(episodes, elsewhere=self.policy.computed_elsewhere)

    @property
    def may_grow(self) -> bool:
        """Whether there may be more slots while the run goes on, once more is known of its policy."""
        own = self.policy.name is not None and not self.policy.computed_elsewhere
        return own and self.fixed_slots is None and self.launcher.may_grow and not self.plan.in_process

    def capacity_beside(self, slots: int) -> Capacity:
        """Returns what may be used here by all slots, where so many have their memory already."""
        here = self._capacity
        return here if here.memory is None else replace(here, memory=here.memory + slots * SLOT_BYTES)

    @property
    def _capacity(self) -> Capacity:
        """What slots may use. Workers that come by themselves have other memory than this process."""
        here = capacity()
        return here if self.launcher.starts_workers else replace(here, memory=None)

    def writing_to(self, folder: Path) -> RunSettings:
        """Returns the same, with this folder for results."""
        return replace(self, output=self.output.model_copy(update={"folder": folder}))


def fields_of(group: type[BaseModel]) -> dict[str, FieldInfo]:
    """Returns the settings of a group by their flat names."""
    return {field.alias or name: field for name, field in group.model_fields.items() if name not in OWN}


def core_fields() -> dict[str, FieldInfo]:
    """Returns every setting but those of launchers."""
    groups: tuple[type[SettingsGroup], ...] = (
        PlanSettings,
        RuleSettings,
        StopSettings,
        PolicySettings,
        HostedServerSettings,
        WorkerSettings,
        OutputSettings,
        TrackSettings,
    )
    return {name: field for group in groups for name, field in fields_of(group).items()}


def setting_fields() -> dict[str, FieldInfo]:
    """Returns every setting there is, those of all launchers among them."""
    return {**core_fields(), **launcher_fields(), **hosting_fields()}


def launcher_fields() -> dict[str, FieldInfo]:
    """Returns the settings of all launchers, of a name that several have the first one's, which is of the same kind."""
    return _first_of_each(launcher.settings for launcher in _launchers())


def hosting_fields() -> dict[str, FieldInfo]:
    """Returns the settings of all launchers as places for policies, in the same way."""
    return _first_of_each(launcher.hosting_settings for launcher in _launchers())


def _first_of_each(groups: Iterable[type[BaseModel]]) -> dict[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for group in groups:
        found = {**fields_of(group), **found}
    return found


def owners(setting: str) -> list[Hint]:
    """Returns what has to be given for a setting of launchers to mean something: one of these."""
    by_start = [Hint("launcher", value=one.name) for one in _launchers() if setting in fields_of(one.settings)]
    by_place = [Hint("serve_on", value=one.name) for one in _launchers() if setting in fields_of(one.hosting_settings)]
    return by_start + by_place


def own_fields(launcher: Launcher[Any]) -> Mapping[str, FieldInfo]:
    """Returns a launcher's own settings.

    Raises:
        SparringError: If one of them, or of its `hosting_settings`, has a name that means something else already.
    """
    _check_names(launcher)
    return fields_of(launcher.settings)


def _check_names(launcher: Launcher[Any]) -> None:
    core = core_fields()
    for name, field in _all_of(launcher).items():
        if name in core:
            raise SparringError(
                f"the launcher {launcher.name!r} has a setting {name!r}, and so has every run: it needs another name."
            )
        if name.startswith(SERVING) != (name in fields_of(launcher.hosting_settings)):
            raise SparringError(
                f"the launcher {launcher.name!r} has a setting {name!r}: names of the settings of a place for policies "
                f"begin with {SERVING}, and no others."
            )
        for other in takewhile(lambda one: one is not launcher, working_launchers().values()):
            theirs = _all_of(other).get(name, field)
            if theirs.annotation != field.annotation:
                raise SparringError(
                    f"the launchers {other.name!r} and {launcher.name!r} both have a setting {name!r}, and do not mean "
                    "the same kind of value: one of them needs another name."
                )


def _all_of(launcher: Launcher[Any]) -> dict[str, FieldInfo]:
    return fields_of(launcher.settings) | fields_of(launcher.hosting_settings)


def _launchers() -> Iterator[Launcher[Any]]:
    """Returns those whose settings can be flags; what is wrong with another is told when it is asked for."""
    for launcher in working_launchers().values():
        with suppress(SparringError):
            own_fields(launcher)
            yield launcher
