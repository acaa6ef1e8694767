"""The policy of a run on nodes of a Slurm cluster: `--serve-on slurm`."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.cluster import ClusterSettings
from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed, SlurmUnreachable
from sparring.orchestrator.launchers.slurm.own_address import found_address
from sparring.orchestrator.launchers.slurm.script import check_printable, comment, job_name
from sparring.orchestrator.launchers.slurm.server_jobs import ServerJobs
from sparring.orchestrator.launchers.slurm.server_script import LABEL, ServerScript
from sparring.orchestrator.launchers.slurm.settings import SlurmHostingSettings, SlurmSettings
from sparring.orchestrator.launchers.slurm.shared_files import SharedFiles
from sparring.orchestrator.machine.owner import owner
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.serving.hosting import ClusterHosting, Hosting
from sparring.orchestrator.serving.policy_host import hosted_options
from sparring.orchestrator.settings import RunSettings
from sparring.protos.errors import UsageError

log = logging.getLogger(__name__)

_NO_FOLDER: Final = Path("OUTPUT")
"""Stands for the folder of a run that has not begun."""


class SlurmHosting(ClusterHosting):
    """Policy servers as jobs of Slurm's; their run may have its workers anywhere that reaches nodes.

    Args:
        run: Its settings.
    """

    def __init__(self, run: RunSettings) -> None:
        self._run = run

    def check(self) -> None:
        commands.check_installed("sbatch")
        try:
            commands.would_take(self._preview())
        except SlurmUnreachable as error:
            log.warning("Slurm does not answer now: %s", error.sentence)
        except SlurmFailed as error:
            raise UsageError(f"Slurm would not take the policy server's job: {error.sentence}") from error

    def preview(self) -> Sequence[str]:
        number = self._run.policy.serve_replicas
        return [f"{number} {'job' if number == 1 else 'jobs'}, by sbatch:", *self._preview().splitlines()]

    def host(self, folder: Path, rules: RetryRules) -> Hosting:
        policy, own = self._run.policy, self._run.worker.own
        given = own.advertise if isinstance(own, ClusterSettings) else ""
        execution = secrets.token_hex(3)
        files = SharedFiles.of(self._shared, folder, execution, encrypted=False)
        script = self._script(folder, files, execution, given or found_address(self._options))
        return ServerJobs(
            script, files, folder, replicas=policy.serve_replicas, rules=rules, timeout=policy.policy_timeout
        )

    @property
    def _options(self) -> Mapping[str, str]:
        own = self._run.policy.hosting
        assert isinstance(own, SlurmHostingSettings)
        return own.serve_slurm

    @property
    def _shared(self) -> Path | None:
        own = self._run.worker.own
        return self._run.policy.serve_folder or (own.slurm_folder if isinstance(own, SlurmSettings) else None)

    def _script(self, folder: Path, files: SharedFiles, execution: str, towards: str) -> ServerScript:
        folder = folder.absolute()
        check_printable(folder)
        check_printable(files.token)
        # Where nodes may not see the run's folder, what the policy raises is in the server's log only.
        output = {} if self._shared else {"output": folder}
        options = hosted_options(self._run, listen=(), token_file=files.token, **output)
        return ServerScript(
            name=job_name(LABEL, folder, execution),
            comment=comment(owner(), folder),
            folder=folder,
            logs=files.logs,
            options=self._options,
            token=files.token,
            alive=files.beside("alive"),
            towards=towards,
            arguments=options.arguments(),
        )

    def _preview(self) -> str:
        """Returns the script as it would be, but for what is known only when the run has begun."""
        folder, execution = self._run.output.folder or _NO_FOLDER, "EXECUTION"
        files = SharedFiles.of(self._shared, folder, execution, encrypted=False)
        return self._script(folder, files, execution, "HOST").text(files.beside("server-0-1"))
