"""Small questions about batches and row groups. Pure: values in, values out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


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
