"""What an address means to whoever hears it: `localhost` is somebody else's machine when somebody else says it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Final, Literal

from sparring.protos.net.address import Address

_KNOCK_SECONDS: Final = 5.0
HOST_VARIABLE: Final = "SPARRING_HOST"
"""In a container: the name by which the machine that it runs on is reached. Set by the docker launcher."""


def from_here(addresses: Iterable[Address], orchestrator: Address) -> list[Address]:
    """Returns the orchestrator's addresses as this worker must dial them.

    In a container that has a name for its machine, `localhost` means that machine. And "every interface" (0.0.0.0) is
    no address to dial: it means the machine where the orchestrator was reached.

    Args:
        addresses: As the orchestrator knows them.
        orchestrator: As this worker dialled it.
    """
    machine = os.environ.get(HOST_VARIABLE, "")
    return [
        address.with_host(machine)
        if machine and address.is_local and not address.is_unix
        else address.reached_at(orchestrator)
        for address in addresses
    ]


def to_dial(address: Address) -> Address:
    """Returns an address that a server listens at, as a person would give it to a worker elsewhere."""
    return address.with_host("HOST") if address.is_every_interface else address


async def knock(address: Address) -> Literal["answers", "refused", "silent"]:
    """Returns whether somebody listens there, nobody does, or it cannot be told: a machine that is out of reach."""
    try:
        async with asyncio.timeout(_KNOCK_SECONDS):
            if address.is_unix:
                _, writer = await asyncio.open_unix_connection(address.path)
            else:
                _, writer = await asyncio.open_connection(address.host, address.port)
    except (ConnectionRefusedError, FileNotFoundError):
        return "refused"
    except (OSError, TimeoutError):
        return "silent"
    writer.close()
    return "answers"
