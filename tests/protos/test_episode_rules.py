"""The rules of an episode: defined once, the same at both ends of the wire, and as settings."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sparring.orchestrator.settings import read_settings, setting_fields
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.episode_rules import EpisodeRules

RUN = {"benchmark": "toy", "task": "short", "policy": "zero"}
OTHERS = {"max_steps": 7, "out_of_range": "clip", "observe": "every-step", "metric": "return", "actions_per_look": 3}
"""A value of each rule that is not its default."""


def test_every_rule_is_tried_here() -> None:
    assert set(OTHERS) == {rule.name for rule in fields(EpisodeRules)}
    assert not [rule.name for rule in fields(EpisodeRules) if OTHERS[rule.name] == rule.default]


@pytest.mark.parametrize("name", OTHERS)
def test_a_rule_goes_from_a_setting_over_the_wire(name: str) -> None:
    rules = read_settings({**RUN, name: OTHERS[name]}).plan.rules
    assert rules == EpisodeRules(**{name: OTHERS[name]})
    sent = pb.Assignment(rules=rules.to_message()).SerializeToString()
    assert EpisodeRules.from_message(pb.Assignment.FromString(sent).rules) == rules
    assert setting_fields()[name].description


def test_what_is_not_said_is_as_by_default() -> None:
    assert EpisodeRules.from_message(pb.Rules()) == EpisodeRules()


def test_only_rules_that_move_episodes_tie_a_folder_to_them() -> None:
    assert set(EpisodeRules().that_move()) == {"max_steps", "out_of_range", "actions_per_look"}
