"""Episodes as a table of columns, for whoever computes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparring.orchestrator.results.row import COLUMNS

if TYPE_CHECKING:  # which has a method that calls this
    from sparring.orchestrator.results.results import Results


def episode_columns(results: Results) -> dict[str, list[Any]]:
    """Returns a column for everything that is recorded of an episode, and one for each metric (`metrics.distance`)."""
    names = [name for name in COLUMNS if name != "metrics"]
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in results.rows] for name in names}
    for metric in sorted({name for row in results.rows for name in row.metrics}):
        columns[f"metrics.{metric}"] = [row.metrics.get(metric) for row in results.rows]
    return columns


def data_frame(results: Results) -> Any:
    """Returns the episodes as pandas' DataFrame; without pandas, as pyarrow's Table; without both, as dictionaries."""
    columns = episode_columns(results)
    try:
        import pandas
    except ModuleNotFoundError:
        pass
    else:
        return pandas.DataFrame(columns)
    try:
        import pyarrow
    except ModuleNotFoundError:
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return pyarrow.table(columns)
