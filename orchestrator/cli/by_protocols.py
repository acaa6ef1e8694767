"""What commands say of a run that has played the same tasks by several protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparring.orchestrator.cli.statistics import needs_scipy
from sparring.orchestrator.display.screen import show
from sparring.orchestrator.results.results import Results
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError

if TYPE_CHECKING:
    from sparring.orchestrator.comparison.protocols import ProtocolResult


def show_by_protocols(results: Results) -> None:
    """Shows each protocol against the first, if there are several."""
    try:
        found = _found(results)
    except UsageError as error:  # the table above has the rates
        show(error.told(FLAGS))
        return
    if found:
        from sparring.orchestrator.display.protocols import protocols_table

        show(protocols_table(found))


def by_protocols_json(results: Results) -> dict[str, Any]:
    """Returns the same for `--json`; nothing, if there are not several."""
    try:
        found = _found(results)
    except UsageError:
        return {}
    return {"by_protocols": {one.label: one.to_json() for one in found}} if found else {}


def _found(results: Results) -> list[ProtocolResult]:
    if len(results.protocols) < 2:
        return []
    with needs_scipy("holding protocols against each other"):
        from sparring.orchestrator.comparison.protocols import side_by_side
    return side_by_side(results)
