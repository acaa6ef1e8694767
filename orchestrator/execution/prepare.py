"""What a run lacks, told or fetched before anything starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sparring.orchestrator.coordination.admission import check_admission
from sparring.orchestrator.execution.run_files import check_output
from sparring.orchestrator.launchers.registry import hosting_of
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.run.early_stopping import early_stopping
from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError


def prepare(settings: RunSettings, plan: Plan | None = None) -> None:
    """Tells, or fetches, what a run lacks, before anything starts: a folder of its own, and what its workers need.

    Args:
        settings: Of the run.
        plan: Of the run; None: it plays again what was played.

    Raises:
        SparringError: If it cannot be had.
    """
    if plan is not None:
        early_stopping(settings, plan)
    if settings.output.folder is not None:
        check_output(settings.output.folder)
    if settings.output.record is not None:
        _check_record(settings.output.record)
    if settings.plan.in_process:
        from sparring.orchestrator.execution import in_process  # imports what is a worker's otherwise

        in_process.check(settings)
    else:
        check_admission(settings)
        settings.launcher.check(settings)
        if (hosting := hosting_of(settings)) is not None:
            hosting.check()


def _check_record(folder: Path) -> None:
    """Checks that recordings can be written, now and not after the first episode."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"recordings cannot be written to {str(folder)!r}: {error.strerror}. Name another folder with "
            f"{Hint('record')}."
        ) from error
