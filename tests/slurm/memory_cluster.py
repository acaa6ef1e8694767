"""A second Slurm, of one node, that holds jobs to the memory that they ask for, as that of the other tests does not."""

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

SLURM: Final = """\
ClusterName=memory
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
TaskPlugin=task/cgroup
MpiDefault=none
PropagateResourceLimits=NONE
MailProg=/bin/true
SchedulerParameters=bf_interval=5,sched_interval=10
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
KillWait=10
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SlurmdParameters=config_overrides
NodeName=m1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs=2 RealMemory=2000
PartitionName=batch Nodes=m1 Default=YES
"""
CGROUPS: Final = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"


@contextmanager
def memory_cluster() -> Iterator[Path]:
    """Yields the configuration of one, for SLURM_CONF."""
    with tempfile.TemporaryDirectory(prefix="memory-slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for made in ("state", "spool"):
            (folder / made).mkdir()
        conf = folder / "slurm.conf"
        munge = base_folder() / "munge" / "munge.socket"
        ports = {"controller": free_port(), "node": free_port()}
        conf.write_text(SLURM.format(host=socket.gethostname(), folder=folder, munge=munge, **ports))
        (folder / "cgroup.conf").write_text(CGROUPS)
        environment = {**os.environ, "SLURM_CONF": str(conf)}
        daemons = []
        try:
            for command in (["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", "m1"]):
                log = (folder / f"{command[0]}.log").open("w")
                daemons.append(subprocess.Popen([*command, "-f", conf], env=environment, stdout=log, stderr=log))
            ask = ("sinfo", "--noheader", "--format=%T")
            wait_for(lambda: "idle" in subprocess.run(ask, env=environment, capture_output=True, text=True).stdout)
            yield conf
        finally:
            for daemon in reversed(daemons):
                for process in (*psutil.Process(daemon.pid).children(recursive=True), daemon):
                    process.kill()
                daemon.wait()
