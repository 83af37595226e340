"""Small questions about batches and row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# Columns that Arrow's scanner adds to those of a file. It cannot read one of the file's own that is
# called so.
_SCANNER_NAMES = frozenset(
    ["__filename", "__fragment_index", "__batch_index", "__last_in_fragment"]
)


def holds_floats(kind: pa.DataType) -> bool:
    """Say whether values of a type are floats, or hold some."""
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind)) or any(map(holds_floats, inner))


def counted(rows: int) -> pa.RecordBatch:
    """Return a batch of so many rows and no columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def decoded_bytes(group: Any, wanted: set[str]) -> int:
    """Estimate the memory that the columns of a row group take once decoded."""
    size = 0
    for index in range(group.num_columns):
        column = group.column(index)
        if _lies_in(column.path_in_schema, wanted):
            # Dictionaries and runs are expanded: at least eight bytes a value.
            size += max(column.total_uncompressed_size, 8 * group.num_rows)
    return size


def _lies_in(path: str, wanted: set[str]) -> bool:
    """Say whether names joined by dots may lead into a column wanted, which may have dots too."""
    at = len(path)
    while at >= 0:
        if path[:at] in wanted:
            return True
        at = path.rfind(".", 0, at)
    return False


def exactly(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly this schema: types, nullability and no metadata."""
    if not schema.names or batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def clashes(schema: pa.Schema) -> bool:
    """Say whether a column is called as one of those that Arrow's scanner adds to every file."""
    return not _SCANNER_NAMES.isdisjoint(schema.names)


def unscanned(
    source: pa.NativeFile, groups: Sequence[int], batch_rows: int, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a Parquet file without Arrow's scanner: all columns are decoded.

    Args:
        source: the file.
        groups: its row groups to read.
        batch_rows: at most so many rows in a batch.
        wanted: the columns to return; null where the file does not have them.
    """
    file = pq.ParquetFile(source, page_checksum_verification=True)
    for batch in file.iter_batches(batch_rows, row_groups=list(groups), use_threads=False):
        if not wanted.names:
            yield counted(batch.num_rows)
            continue
        arrays = [
            batch.column(field.name)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in wanted
        ]
        yield exactly(pa.RecordBatch.from_arrays(arrays, names=wanted.names), wanted)
