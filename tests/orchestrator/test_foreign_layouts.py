"""What is said before a run of a policy behind a foreign server: its layout, and where a protocol names another."""

from __future__ import annotations

import pytest

from sparring.orchestrator.serving.foreign_layouts import foreign_layouts
from sparring.orchestrator.settings import read_settings


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
