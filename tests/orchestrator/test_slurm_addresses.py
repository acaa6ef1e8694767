"""By which node a run finds its own address: with made-up commands of Slurm's, as a real one here has one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.orchestrator.launchers.slurm import own_address

SCONTROL = (
    'case "$*" in *hostnames*) echo own;; *"node own") echo NodeAddr=127.0.1.1;; *) echo NodeAddr=192.0.2.7;; esac'
)


@pytest.mark.parametrize(("by_steps", "towards"), [(False, "192.0.2.7"), (True, "127.0.1.1")])
def test_jobs_may_be_on_any_node_and_steps_only_on_those_of_the_allocation(
    by_steps: bool, towards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is on the one node of its allocation, which knows itself by a number that means nothing elsewhere."""
    for name, does in {"scontrol": SCONTROL, "sinfo": "printf 'own\\nfar\\n'"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "own", "SLURMD_NODENAME": "own"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(own_address, "address_towards", lambda host, what: host)
    assert own_address.found_address({}, by_steps=by_steps) == towards
