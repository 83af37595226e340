"""Sought rows in Parquet files: whatever is stored, whether the log names it or not.

A file is read by the ids of its columns, a row group after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.erasing.sought import Sought
from eventlog.model.entries import Column
from eventlog.segments.batches import without_columns
from eventlog.segments.file_columns import FileColumns

FAILURES = (pa.ArrowException, OSError, ValueError)  # of files that do not decode


@dataclass(slots=True)
class FoundRows:
    """What a Parquet file has of the sought rows.

    Attributes:
        rows: the number of sought rows.
        tombstones: how many of them are deletes of a keyed table.
        values: the number of values that no row has, in dictionaries and footers, and are sought.
        keys: the keys of the sought rows of a keyed table.
    """

    rows: int = 0
    tombstones: int = 0
    values: int = 0
    keys: list[pa.Table] = field(default_factory=list)


def sought_in(source: Any, sought: Sought) -> FoundRows:
    """Return what a Parquet file of rows of the table has of those that are sought.

    Args:
        source: a path, or a buffer with the bytes.
        sought: the rows.

    Raises:
        DataLoss: its columns are not those of the table.
        pa.ArrowException, OSError, ValueError: it does not decode.
    """
    found = FoundRows()
    file = pq.ParquetFile(source)
    columns = FileColumns(file.metadata.schema, sought.schema, keyed=sought.keyed)
    fields = sought.fields
    leaves = columns.leaves(fields.names)
    for group in range(file.metadata.num_row_groups):
        rows = _group(file, group, leaves)
        matches = sought.matches(columns.conformed(rows, fields))
        found.rows += matches.rows
        found.tombstones += matches.tombstones
        if matches.keys is not None and matches.keys.num_rows:
            found.keys.append(matches.keys)
    for column in sought.text_columns():
        place = columns.leaves([column.name])
        if len(place) == 1:
            found.values += _beside_rows(source, file, place[0], column, sought)
    return found


def _group(file: pq.ParquetFile, group: int, leaves: Sequence[int]) -> pa.Table:
    if not leaves:
        count = file.metadata.row_group(group).num_rows
        return pa.Table.from_batches([without_columns(count)])
    return file.reader.read_row_group(group, column_indices=list(leaves), use_threads=False)


def _beside_rows(
    source: Any, file: pq.ParquetFile, leaf: int, column: Column, sought: Sought
) -> int:
    """Return how many sought values of a text column a file has that none of its rows has."""
    name = file.metadata.schema.column(leaf).path
    coded = pq.ParquetFile(source, read_dictionary=[name])
    stored, used = set[str](), set[str]()
    for group in range(file.metadata.num_row_groups):
        stored.update(_bounds(file.metadata.row_group(group).column(leaf)))
        values = coded.reader.read_row_group(group, column_indices=[leaf], use_threads=False)
        for chunk in values.column(0).chunks:
            if pa.types.is_dictionary(chunk.type):
                stored.update(v for v in chunk.dictionary.to_pylist() if v is not None)
                used.update(chunk.dictionary.take(chunk.indices.unique().drop_null()).to_pylist())
            else:
                used.update(v for v in chunk.unique().to_pylist() if v is not None)
    return len(sought.passing_values(column, sorted(stored - used)))


def _bounds(chunk: Any) -> Iterator[str]:
    """Yield the bounds that a footer has of a column chunk."""
    stats = chunk.statistics
    if stats is not None and stats.has_min_max:
        yield from (str(value) for value in (stats.min, stats.max))
