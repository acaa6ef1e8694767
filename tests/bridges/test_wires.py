"""The list of other people's wires: what a new one takes, beside the class that speaks it, is a line there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from bridges.telling import OFFER, SIZE, made_up

from sparring.policy_server.bridges import wires
from sparring.policy_server.bridges.front import Front
from sparring.policy_server.bridges.peer import Peer
from sparring.policy_server.bridges.wires import WIRES, Wire, is_foreign, is_plainly_foreign
from sparring.policy_server.errors import PolicyRefused
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import known_policies, load_policy, policy_modules
from sparring.policy_server.policies.base import Array, Instruction, Observation


@pytest.mark.parametrize("name", WIRES)
def test_whoever_speaks_it_is_where_the_list_says(name: str) -> None:
    for folder, said, kind in (("clients", WIRES[name].client, Peer), ("servers", WIRES[name].server, Front)):
        if said:
            module, _, found = said.partition(":")
            assert issubclass(getattr(import_module(f"sparring.policy_server.bridges.{folder}.{module}"), found), kind)


@pytest.mark.parametrize(
    "address", ["openpi://h:1", "openpi+tls://h:1", "http://h:1/act", "https://h:1/act", "vla-eval://h", "gr00t://h"]
)
def test_addresses_of_foreign_servers_are_policies(address: str) -> None:
    assert is_foreign(address)
    assert policy_modules(address) == ["sparring.policy_server.bridges.policy"]


@pytest.mark.parametrize(
    ("address", "plainly"),
    [
        *[("openpi://h:1", True), ("gr00t+tls://h:1", True), ("https://h:1/act", True)],
        *[("http://h:1", False), ("tls://h:1", False), ("h:1", False), ("unix:///p", False), ("openpy://h", False)],
    ],
)
def test_some_addresses_can_be_no_server_of_ours(address: str, plainly: bool) -> None:
    assert is_plainly_foreign(address) == plainly


@pytest.mark.parametrize(
    "name", ["openpi", "openpi:Class", "openpis://h:1", "ftp://h:1", "https+tls://h:1", "://h:1", "", "zero"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_foreign(name)


class Diarist(Peer):
    """Speaks a wire of its own, with nobody."""

    default_port = 7
    metadata: Mapping[str, Any] = {}

    def _connect(self) -> None:
        pass

    def start(self, task: Instruction, seed: int) -> None:
        pass

    def ask(self, observation: Observation) -> Array:
        return np.full((1, SIZE), float(self._endpoint.port))

    def close(self) -> None:
        pass


def test_a_new_one_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sparring.policy_server.bridges.clients.diary")
    module.Diarist = Diarist  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert not is_foreign("diary://h")
    line = Wire("diary", "a diary; preset=NAME", client="diary:Diarist")
    monkeypatch.setattr(wires, "WIRES", WIRES | {"diary": line})
    for user in ("sparring.policy_server.policies", "sparring.policy_server.bridges.policy"):
        monkeypatch.setattr(f"{user}.WIRES", wires.WIRES)
    assert known_policies()["diary://HOST:PORT"] == "a diary; preset=NAME"
    arguments = {"states": {"state": ["robot0_eef_pos"]}}
    session = LocalPolicy(lambda: load_policy("diary://h", arguments), name="diary").open(OFFER, benchmark="libero")
    session.start(instruction="go", seed=0)
    seen = {"robot0_eef_pos": made_up(0)["robot0_eef_pos"]}
    assert session.act(seen, step=0).actions.tolist() == [[7.0] * SIZE]
    with pytest.raises(PolicyRefused, match=r"no preset of diary is known for 'libero' \(known: none\)"):
        LocalPolicy(lambda: load_policy("diary://h", {}), name="diary").open(OFFER, benchmark="libero")
