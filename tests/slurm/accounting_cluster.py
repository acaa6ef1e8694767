"""A Slurm with accounting, as that of the other tests has none: slurmdbd, with a database server of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from private_cluster import MUNGE, answer, environment_of, private_folder, running, running_slurm
from support import free_port, wait_for

SETTINGS: Final = """\
ClusterName=accounted
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={munge}
AccountingStorageEnforce=associations,limits,qos
MinJobAge=2
"""
DATABASE_DAEMON: Final = """\
DbdHost=localhost
DbdPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
"""
ACCOUNTS: Final = (
    ("cluster", "accounted"),
    ("qos", "single", "MaxJobsPerUser=1"),
    ("qos", "tiny", "MaxTRESPerJob=cpu=1"),
    ("account", "lab", "qos=normal,single,tiny"),
    ("account", "small", "MaxTRESPerJob=cpu=1"),
    ("account", "others"),
    ("user", "root", "account=lab", "DefaultAccount=lab"),
    ("user", "root", "account=small"),
)
"""What there is in its accounts, as sacctmgr adds it. The tests' user is in all of them but the account of others."""


@contextmanager
def accounting_cluster() -> Iterator[Path]:
    """Yields the configuration of one, for SLURM_CONF."""
    port = free_port()
    with private_folder(SETTINGS.format(port=port, munge=MUNGE)) as folder:
        conf = folder / "slurmdbd.conf"
        conf.write_text(DATABASE_DAEMON.format(port=port, folder=folder, munge=MUNGE))
        conf.chmod(0o600)  # slurmdbd refuses others
        socket = folder / "mariadb.sock"
        data = ("--no-defaults", f"--datadir={folder / 'data'}", "--user=root")
        install = ("mariadb-install-db", *data, "--auth-root-authentication-method=normal", "--skip-test-db")
        subprocess.run(install, check=True, capture_output=True)
        with ExitStack() as daemons:
            daemons.enter_context(running(folder, "mariadbd", *data, f"--socket={socket}", "--skip-networking"))
            wait_for(socket.exists)
            daemons.enter_context(running(folder, "slurmdbd", "-D", MYSQL_UNIX_PORT=str(socket)))
            wait_for(lambda: "root" in answer(folder, "sacctmgr", "--noheader", "list", "user"))
            for entry in ACCOUNTS:
                added = ("sacctmgr", "--immediate", "add", *entry)
                subprocess.run(added, env=environment_of(folder), check=True, capture_output=True)
            daemons.enter_context(running_slurm(folder))
            yield folder / "slurm.conf"
