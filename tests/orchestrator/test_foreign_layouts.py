"""What is said before a run of a policy behind a foreign server: its layout, and where a protocol names another."""

from __future__ import annotations

import pytest

from sparring.orchestrator.serving.foreign_layouts import foreign_layouts
from sparring.orchestrator.settings import read_settings
from sparring.protos.errors import UsageError


@pytest.mark.parametrize(
    ("policy", "protocol", "warned"),
    [
        ("gr00t://h:1", "openpi", True),
        ("gr00t://h:1", "gr00t", False),
        ("gr00t://h:1", "lerobot-0.6", False),
        ("openpi://h:1", "vla-eval", True),
        ("zero", "openpi", False),
    ],
)
def test_a_protocol_of_another_layout_is_warned_of(policy: str, protocol: str, warned: bool) -> None:
    run = {"benchmark": "libero", "task": "libero_goal/1", "policy": policy, "protocol": protocol}
    found = [sentence for sentence in foreign_layouts(read_settings(run)) if "the protocol" in sentence]
    assert len(found) == warned
    if warned:
        assert f"by the layout of {protocol}, and this policy is shown it by that of {policy.split(':')[0]}" in found[0]


RUN = {"benchmark": "libero", "task": "libero_goal/1"}


def test_a_server_that_has_longer_for_an_answer_than_the_run_waits_is_refused() -> None:
    settings = read_settings({**RUN, "policy": "openpi://h:1", "policy_arg": {"timeout": 90}})
    with pytest.raises(UsageError, match=r"has 90 s for an answer .* waits for 60 s .*give timeout=100"):
        foreign_layouts(settings, waits=settings.policy.policy_timeout)
    assert foreign_layouts(settings, waits=100)
    assert foreign_layouts(settings), "in one's own process nobody waits"


def test_a_server_that_may_load_for_longer_than_the_run_waits_is_told() -> None:
    loads = {"checkpoint": "x", "policy_type": "act", "unpickle": True}
    settings = read_settings({**RUN, "policy": "lerobot-async://h:1", "policy_arg": loads})
    found = foreign_layouts(settings, waits=settings.policy.policy_timeout)
    assert any("has 600 s to load its checkpoint" in sentence for sentence in found)
    assert not any("to load" in sentence for sentence in foreign_layouts(settings, waits=700))
