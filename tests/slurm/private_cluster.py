"""A second Slurm, of one node, beside the one that the other tests share: for settings that they must not have."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
from slurm_cluster import base_folder
from support import free_port, wait_for

MUNGE: Final = base_folder() / "munge" / "munge.socket"
_SETTINGS: Final = """\
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge},cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
MpiDefault=none
PropagateResourceLimits=NONE
MailProg=/bin/true
SchedulerParameters=bf_interval=5,sched_interval=10
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
KillWait=10
JobCompType=jobcomp/none
SlurmdParameters=config_overrides
NodeName=m1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs=2 RealMemory=2000
PartitionName=batch Nodes=m1 Default=YES
"""


@contextmanager
def private_folder(settings: str) -> Iterator[Path]:
    """Yields the folder of one that does not run yet, with its slurm.conf, and removes it.

    Args:
        settings: What its slurm.conf has besides what all such clusters have.
    """
    with tempfile.TemporaryDirectory(prefix="private-slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for made in ("state", "spool"):
            (folder / made).mkdir()
        ports = {"controller": free_port(), "node": free_port()}
        common = _SETTINGS.format(host=socket.gethostname(), folder=folder, munge=MUNGE, **ports)
        (folder / "slurm.conf").write_text(common + settings)
        yield folder


def environment_of(folder: Path) -> dict[str, str]:
    """The variables by which Slurm's commands are about the cluster in this folder."""
    return {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}


def answer(folder: Path, *command: str) -> str:
    """What a command of Slurm's says of the cluster in this folder; empty, if it fails."""
    return subprocess.run(command, env=environment_of(folder), capture_output=True, text=True, check=False).stdout


@contextmanager
def running(folder: Path, *command: str, **variables: str) -> Iterator[None]:
    """Has a program in the foreground, with a log in this folder, and kills it and its children in the end."""
    with (folder / f"{command[0]}.log").open("w") as log:
        daemon = subprocess.Popen(command, env={**environment_of(folder), **variables}, stdout=log, stderr=log)
    try:
        yield
    finally:
        for process in (*psutil.Process(daemon.pid).children(recursive=True), daemon):
            process.kill()
        daemon.wait()


@contextmanager
def running_slurm(folder: Path) -> Iterator[None]:
    """Has the cluster of this folder, as soon as its node takes jobs."""
    with running(folder, "slurmctld", "-D", "-i"), running(folder, "slurmd", "-D", "-N", "m1"):
        wait_for(lambda: "idle" in answer(folder, "sinfo", "--noheader", "--format=%T"))
        yield
