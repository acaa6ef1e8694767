"""How nodes reach this machine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from sparring.orchestrator.launchers.cluster import address_towards
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed, call
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError


def found_address(options: Mapping[str, str], *, by_steps: bool = False) -> str:
    """Returns the number of this machine in the network that nodes are in: the one that it would talk to them from.

    Args:
        options: Of sbatch, for the jobs that are to reach it.
        by_steps: Whether these are steps of the allocation that this program is in; jobs may be on any node.

    Raises:
        UsageError: If it cannot be found out.
    """
    try:
        node = _a_node(options, by_steps=by_steps)
        told = call("scontrol", "--oneliner", "show", "node", node)
    except SlurmFailed as error:
        raise UsageError(f"{error.sentence} Give the name of this machine with {Hint('advertise')}.") from error
    found = re.search(r"\bNodeAddr=(\S+)", told)
    address = node if found is None else found[1]
    return address_towards(address, f"the node {node!r}")


def _a_node(options: Mapping[str, str], *, by_steps: bool) -> str:
    """Returns a node that workers may run on, another one than this machine if there is one."""
    if by_steps and (nodes := os.environ.get("SLURM_JOB_NODELIST")):
        names = call("scontrol", "show", "hostnames", nodes).split()
    else:
        partition = ("--partition", options["partition"]) if "partition" in options else ()
        names = call("sinfo", "--noheader", "--Node", "--format=%N", *partition).split()
    here = os.environ.get("SLURMD_NODENAME", socket.gethostname().partition(".")[0])
    others = [name for name in names if name != here]
    if not names:
        raise UsageError(f"Slurm names no node: is the partition right? Else give {Hint('advertise')}.")
    return (others or names)[0]
