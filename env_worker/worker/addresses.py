"""What an address means to whoever hears it: `localhost` is somebody else's machine when somebody else says it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from typing import Final

HOST_VARIABLE: Final = "SPARRING_HOST"
"""In a container: the name by which the machine that it runs on is reached. Set by the docker launcher."""

_EVERY_INTERFACE: Final = ("0.0.0.0", "::", "")


def from_here(addresses: Sequence[str], orchestrator: str) -> list[str]:
    """The orchestrator's addresses as this worker must dial them.

    In a container that has a name for its machine, `localhost` means that machine. And "every interface" (0.0.0.0) is
    no address to dial: it means the machine where the orchestrator was reached.

    Args:
        addresses: As the orchestrator knows them.
        orchestrator: As this worker dialled it.
    """
    machine = os.environ.get(HOST_VARIABLE, "")
    there = "" if orchestrator.startswith("unix:") else orchestrator.rpartition(":")[0]
    return [_from_here(address, machine, there) for address in addresses]


def to_dial(address: str) -> str:
    """An address that a server listens at, as a person would give it to a worker elsewhere."""
    host, _, port = address.rpartition(":")
    return f"HOST:{port}" if host.strip("[]") in _EVERY_INTERFACE else address


def is_local(host: str) -> bool:
    """Whether a host is the speaker's own machine: localhost, a loopback address, or every interface."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


def _from_here(address: str, machine: str, there: str) -> str:
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") or not is_local(host):
        return address
    if machine:
        return f"{machine}:{port}"
    if host.strip("[]") in _EVERY_INTERFACE and there:
        return f"{there}:{port}"
    return address
