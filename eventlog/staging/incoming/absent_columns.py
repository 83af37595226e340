"""Columns that rows lack and that have a default for rows to come (FORMAT.md R7.12). No I/O."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog.keyed.rule import DELETE, OP
from eventlog.model.columns.defaults import decode_default
from eventlog.model.entries import Schema


def write_defaults(schema: Schema) -> dict[str, pa.Scalar]:
    """Return the values of rows that lack a column, by its name.

    Raises:
        Corrupt: one is none of its column's type.
    """
    return {
        column.name: decode_default(column, column.write)
        for column in schema.columns
        if not isinstance(column.write, UnsetType)
    }


def with_defaults(batch: pa.RecordBatch, defaults: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """Return rows with the columns that they lack and that have a default; deletes have nulls."""
    for name, value in defaults.items():
        if name in batch.schema.names:
            continue
        values = pa.repeat(value, batch.num_rows)
        if OP in batch.schema.names:
            deletes = pc.equal(batch.column(OP).cast(pa.string()), DELETE)
            values = pc.if_else(pc.fill_null(deletes, False), pa.scalar(None, value.type), values)
        batch = batch.append_column(name, values)
    return batch
