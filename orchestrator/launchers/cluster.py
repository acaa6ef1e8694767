"""What launchers have in common whose workers are on many machines: how many workers, and how they find this one."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from pydantic import Field

from sparring.orchestrator.launchers.base import LauncherSettings, share_slots
from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

_ANY_PORT: Final = 9
"""Nothing is sent there: a socket that is told where to learns which interface leads there."""


class ClusterSettings(LauncherSettings):
    """How many workers a cluster is asked for."""

    workers: int = Field(4, ge=1, description="workers on a cluster (--launcher slurm): jobs, each of so many slots")
    slots_per_worker: int = Field(4, ge=1, description="episodes at once in each of --workers; one core each")
    max_restarts: int = Field(
        5,
        ge=0,
        description="how often in a row a worker of a cluster is replaced that ended early without a result",
    )
    advertise: str = Field(
        "",
        description="name or number by which the machines of a cluster reach this one; default: that of the network "
        "interface that leads to them",
    )


def slots_of(own: ClusterSettings) -> int:
    """Returns how many slots there are in all."""
    return own.workers * own.slots_per_worker


def share_workers(own: ClusterSettings, slots: Mapping[str, int]) -> dict[str, int]:
    """Divides the workers among benchmarks, as their slots are divided; each gets at least one."""
    return share_slots(own.workers, slots)


def check_cluster(run: RunSettings) -> None:
    """Checks what means something else where workers are on other machines.

    Raises:
        UsageError: With what to give instead.
    """
    if run.plan.slots != "auto":
        raise UsageError(
            f"{Hint('slots')} is of no use with {Hint('launcher', value=run.worker.launcher)}: give "
            f"{Hint('workers')} and {Hint('slots_per_worker')}."
        )
    for server in run.policy.servers:
        if server.is_local:
            raise UsageError(
                f"{Hint('policy_server', value=str(server))} means another machine to workers of a cluster: give the "
                "name or address by which they reach it."
            )
    listen = run.worker.listen_address
    if listen is not None and listen.is_unix:
        raise UsageError(f"{Hint('listen', value=str(listen))} cannot be reached from a cluster: give HOST:PORT.")


def address_towards(host: str, what: str) -> str:
    """Returns the number of this machine on the network interface that leads to another.

    Args:
        host: Of the other.
        what: It is, for the sentence: "the node 'n1'".

    Raises:
        UsageError: If no way there is found.
    """
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UsageError(
            f"the way to {what} at {host} cannot be found ({error.strerror}): give a name by which nodes reach this "
            f"machine with {Hint('advertise')}."
        ) from error
