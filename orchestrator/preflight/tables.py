"""Tables of a data set: parquet files, read in small pieces, and no more of them than is wanted.

A file of some kilobytes may hold billions of rows: nothing is read as a whole, and sizes are looked at first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparring.orchestrator.results.files import open_regular
from sparring.protos.tensor import Array

_MOST_ROWS: Final = 10_000_000
"""That are looked through for those which are chosen."""
_MOST_VALUES: Final = 1 << 27
"""Of the columns that are read, in one group of rows."""
_MOST_BYTES: Final = 1 << 30
"""Likewise, without their compression."""
_ROWS: Final = 256
_BUFFER: Final = 1 << 20


def pieces(
    paths: Sequence[Path], columns: Sequence[str], chosen: Mapping[str, int] | None = None, *, rows: int = _ROWS
) -> Iterator[Any]:
    """Yields rows of tables, in their order, some at a time: as pyarrow's record batches, none of which is empty.

    Args:
        paths: Of the tables.
        columns: That are read; none: all.
        chosen: Rows that are wanted, by whole numbers in one of the columns.
        rows: That there are in a piece, at most.

    Raises:
        OSError: If one is no regular file.
        ValueError: If one is no table, has no such columns, or is too large.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    left = _MOST_ROWS
    for path in paths:
        try:
            with open_regular(path) as file, pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False) as table:
                names = list(columns) or table.schema_arrow.names
                if missing := [name for name in names if name not in table.schema_arrow.names]:
                    raise ValueError(f"{path.name!r} has no column {missing[0]!r}")
                for number in range(table.num_row_groups):
                    about = table.metadata.row_group(number)
                    if _cannot_have(about, chosen or {}):
                        continue
                    _check_size(path, about, names)
                    for piece in table.iter_batches(rows, [number], columns=names, use_threads=False):
                        if left <= 0:
                            return
                        left -= piece.num_rows
                        for name, value in (chosen or {}).items():
                            piece = piece.filter(pc.equal(piece.column(name), value))
                        if piece.num_rows:
                            yield piece
        except pa.ArrowException as error:
            raise ValueError(f"{path.name!r} is no table of numbers: {error}") from error


def _cannot_have(group: Any, chosen: Mapping[str, int]) -> bool:
    for column in map(group.column, range(group.num_columns)):
        wanted, known = chosen.get(column.path_in_schema), column.statistics
        if wanted is not None and known is not None and known.has_min_max and not known.min <= wanted <= known.max:
            return True
    return False


def _check_size(path: Path, group: Any, names: Sequence[str]) -> None:
    every = [group.column(number) for number in range(group.num_columns)]
    wanted = [one for one in every if one.path_in_schema.startswith(tuple(names))]
    if sum(one.num_values for one in wanted) > _MOST_VALUES:
        raise ValueError(f"{path.name!r} has more than {_MOST_VALUES:,} values in one piece")
    if sum(one.total_uncompressed_size for one in wanted) > _MOST_BYTES:
        raise ValueError(f"{path.name!r} has more than {_MOST_BYTES:,} bytes in one piece")


def numbers_of(piece: Any, name: str) -> Array:
    """Returns a column of numbers, or of lists of numbers, as (rows, numbers).

    Raises:
        ValueError: If it is none, or has lists of several lengths.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column, kind = piece.column(name), pa.types
    if kind.is_list(column.type) or kind.is_large_list(column.type) or kind.is_fixed_size_list(column.type):
        if len(pc.unique(pc.list_value_length(column))) != 1:
            raise ValueError(f"rows of {name!r} have several lengths")
        flat = column.flatten()
    else:
        flat = column
    if not (kind.is_floating(flat.type) or kind.is_integer(flat.type) or kind.is_boolean(flat.type)):
        raise ValueError(f"{name!r} is no column of numbers, but of {flat.type}")
    if not len(flat) or len(flat) % len(column):
        raise ValueError(f"rows of {name!r} have no numbers")
    return np.asarray(flat.to_numpy(zero_copy_only=False), np.float64).reshape(len(column), -1)


def whole_numbers(piece: Any, name: str) -> list[int]:
    """Returns a column of whole numbers.

    Raises:
        ValueError: If it is none, or has gaps.
    """
    found = numbers_of(piece, name)
    if found.shape[1] != 1 or not np.all(np.isfinite(found)):
        raise ValueError(f"{name!r} is no column of whole numbers")
    return [int(number) for number in found[:, 0]]
