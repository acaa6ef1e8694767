"""Protocols: the named rules of an evaluation that move a score and are not the policy.

A benchmark says which of its settings are such rules, and which protocols are known for it. To these come the rules
of episodes, which are the same for all benchmarks, and the seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from sparring.protos.conditions import plain
from sparring.protos.effect import Effect
from sparring.protos.episode_rules import EpisodeRules

if TYPE_CHECKING:
    from sparring.env_worker.benchmark import Benchmark

OURS_NAME: Final = "ours"
DEFAULT_SEED: Final = 1000
"""Of a run, as LeRobot's."""
_SEED_EFFECT: Final = Effect(other="neither way: other random numbers")
_LAYOUT_EFFECT: Final = Effect(other="not moved by it alone: it is done by the bridge to that project's servers")
_CONVENTION: Final = "a convention that no setting changes"
_CONVENTION_EFFECT: Final = Effect(
    other="down to 0 % for a policy that was trained otherwise; not moved where it is as in training"
)


@dataclass(frozen=True)
class Protocol:
    """The rules of an evaluation, as a benchmark knows them; what is not said is as the benchmark has it by default.

    Attributes:
        name: As given to --protocol.
        version: Of these rules: another one, if any of them changes.
        summary: Whose rules they are, and where they were read.
        seed: Of the run: episode k has this + k.
        settings: Of the benchmark.
        rules: Of episodes.
        layout: How policies of that project are shown images and states, and what their actions mean; its name among
            the layouts of bridges. The bridge does it, for it is not the simulator's.
        differs: What is not as in the original, in sentences.
    """

    name: str
    version: int
    summary: str
    seed: int = DEFAULT_SEED
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)
    layout: str = "lerobot"
    differs: Sequence[str] = ()


OURS: Final = Protocol(OURS_NAME, 1, "Sparring's own: every setting as it is by default")


@dataclass(frozen=True)
class WholeProtocol:
    """A protocol with every one of its rules said.

    Attributes:
        name: Of the protocol.
        version: Of the protocol.
        benchmark: That it is of.
        seed: Of the run.
        settings: Of the benchmark, all that move a score.
        rules: Of episodes, all that move a score.
        layout: As in `Protocol`.
        conventions: What no setting changes: cameras, gripper, rotations, when success is checked. Empty: not known.
    """

    name: str
    version: int
    benchmark: str
    seed: int
    settings: Mapping[str, Any]
    rules: Mapping[str, Any]
    layout: str
    conventions: Mapping[str, str] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The hash of its rules: two with other names and the same rules have the same."""
        content = json.dumps(plain(self.values), sort_keys=True, allow_nan=False)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def values(self) -> dict[str, Any]:
        """What the hash is of."""
        return {
            "benchmark": self.benchmark,
            "seed": self.seed,
            "settings": dict(self.settings),
            "rules": dict(self.rules),
            "layout": self.layout,
            **({"conventions": dict(self.conventions)} if self.conventions else {}),
        }

    @property
    def label(self) -> str:
        """Its name and version, as people write them."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class ProtocolRule:
    """One rule of protocols, in words.

    Attributes:
        name: As it is set.
        what: It decides.
        effect: Which way it usually moves a score.
    """

    name: str
    what: str
    effect: Effect


@dataclass(frozen=True)
class ProtocolDifference:
    """A rule that two protocols have otherwise.

    Attributes:
        rule: Which.
        first: What it is in the first.
        second: What it is in the second.
    """

    rule: ProtocolRule
    first: Any
    second: Any

    @property
    def effect(self) -> str:
        """Which way a score usually moves from the first to the second."""
        return self.rule.effect.told(self.first, self.second)

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.first} and {self.second} ({self.rule.what})"


def protocols_of(benchmark: Benchmark) -> dict[str, Protocol]:
    """Returns the protocols that are known for a benchmark, by their names; ours is first, and there always."""
    return {OURS_NAME: OURS, **{protocol.name: protocol for protocol in benchmark.protocols}}


def whole(benchmark: Benchmark, protocol: Protocol) -> WholeProtocol:
    """Returns a protocol with everything that it leaves to defaults.

    Raises:
        UsageError: If it sets what the benchmark does not have, or cannot have so.
    """
    return in_effect(
        benchmark,
        protocol,
        seed=protocol.seed,
        settings=benchmark.read_settings(protocol.settings),
        rules=EpisodeRules(**protocol.rules),
    )


def in_effect(
    benchmark: Benchmark, protocol: Protocol | WholeProtocol, *, seed: int, settings: Any, rules: EpisodeRules
) -> WholeProtocol:
    """Returns what a protocol has become, by the seed, the settings and the rules that are really played by."""
    return WholeProtocol(
        protocol.name,
        protocol.version,
        benchmark.name,
        seed,
        {name: getattr(settings, name) for name in settings_that_move(benchmark)},
        rules.that_move(),
        protocol.layout,
        conventions_of(benchmark, protocol.layout),
    )


def conventions_of(benchmark: Benchmark, layout: str) -> dict[str, str]:
    """Returns what no setting of a benchmark changes, for policies that are shown it by a layout."""
    return {**benchmark.fixed, **benchmark.fixed_by_layout.get(layout, {})}


def settings_that_move(benchmark: Benchmark) -> list[str]:
    """Returns the settings of a benchmark that are rules of protocols: all, but for those that say otherwise."""
    own = {benchmark.assets.setting} if benchmark.assets is not None else set()  # a folder: another on each machine
    return [f.name for f in fields(benchmark.settings) if f.metadata.get("in_protocol", True) and f.name not in own]


def rules_of(benchmark: Benchmark) -> dict[str, ProtocolRule]:
    """Returns all rules that protocols of a benchmark have, by where they are in one: `settings.resolution`."""
    found = {"seed": ProtocolRule("seed", "seed of the run: episode k has this + k", _SEED_EFFECT)}
    described = {f.name: f.metadata for f in fields(benchmark.settings)}
    for name in settings_that_move(benchmark):
        what, effect = described[name].get("what"), described[name].get("effect")
        found[f"settings.{name}"] = ProtocolRule(name, what or f"a setting of {benchmark.name}", effect or Effect())
    for rule in fields(EpisodeRules):
        if rule.metadata["moves"]:
            found[f"rules.{rule.name}"] = ProtocolRule(rule.name, rule.metadata["help"], rule.metadata["effect"])
    what = "how policies behind that project's servers are shown the benchmark"
    found["layout"] = ProtocolRule("layout", what, _LAYOUT_EFFECT)
    for name in dict.fromkeys([*benchmark.fixed, *(name for by in benchmark.fixed_by_layout.values() for name in by)]):
        found[f"conventions.{name}"] = ProtocolRule(name, _CONVENTION, _CONVENTION_EFFECT)
    return found


def value_of(protocol: WholeProtocol, place: str) -> Any:
    """Returns the value that a protocol has at a place, as `rules_of` names it; None: it does not know it."""
    group, _, name = place.partition(".")
    found = protocol.values.get(group, {})
    return found.get(name) if name else found


def differences(benchmark: Benchmark, first: WholeProtocol, second: WholeProtocol) -> Iterator[ProtocolDifference]:
    """Yields what two protocols of a benchmark have otherwise."""
    for place, rule in rules_of(benchmark).items():
        values = value_of(first, place), value_of(second, place)
        if plain(values[0]) != plain(values[1]):  # a number that is none is not even equal to itself
            yield ProtocolDifference(rule, *values)
