"""Users' code that raises before a run has begun: its traceback is kept where that of a later one would be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.orchestrator.execution.run_files import check_output
from sparring.protos.errors import CodeBroken, UsageError
from sparring.protos.tracebacks import Tracebacks


@contextmanager
def broken_code_kept(folder: Path | None, *, logged: bool = False) -> Iterator[None]:
    """Keeps the traceback of code that cannot be loaded, or asked, in the folder that its run would have had.

    Args:
        folder: The output folder; None: there is none, and the error goes on as it is.
        logged: Whether it is logged, too.

    Raises:
        UsageError: In the place of a CodeBroken: says where the traceback is.
    """
    try:
        yield
    except CodeBroken as broken:
        if folder is None or not _is_for_runs(folder):
            raise
        told = Tracebacks(folder, logged=logged).error_for(broken)
        told.dialect = broken.dialect
        raise told from told.__cause__


def _is_for_runs(folder: Path) -> bool:
    try:
        check_output(folder)
    except UsageError:
        return False
    return True
