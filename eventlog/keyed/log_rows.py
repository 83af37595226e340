"""The rows of logs and late segments of keyed tables: their schema, deletes, and order. No I/O.

Beside the table's columns they may have `_op`, by which a row is a delete, and late segments and
merged logs `_version`, the version of the commit of a delete (FORMAT.md "Log segments").
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.format.buckets import buckets_of
from eventlog.keyed.key_lookup import in_one_piece
from eventlog.keyed.rule import DELETE, OP, UPSERT, VERSION, MergeRule

_BUCKET = ""  # no table has such a column: column names are not empty


def log_schema(table: pa.Schema, rule: MergeRule, *, versions: bool = False) -> pa.Schema:
    """Return the schema of rows that may be deletes, which have only a key.

    Args:
        table: the columns of the table.
        rule: its merge rule.
        versions: whether there is a column `_version`.
    """
    fields = [field.with_nullable(field.nullable or field.name not in rule.key) for field in table]
    fields.append(pa.field(OP, pa.string()))
    if versions:
        fields.append(pa.field(VERSION, pa.int64()))
    return pa.schema(fields)


def as_log(rows: pa.Table, schema: pa.Schema, version: int | None = None) -> pa.Table:
    """Return rows of a segment in the schema of rows of logs.

    Args:
        rows: rows of a base, which are upserts, or of a log or a late segment.
        schema: as `log_schema` returns it, with or without versions.
        version: the version of all deletes among the rows; None: they have versions already.
    """
    if OP not in rows.column_names:
        rows = rows.append_column(OP, pa.nulls(rows.num_rows, pa.string()))
    if VERSION in schema.names:
        if VERSION not in rows.column_names:
            rows = rows.append_column(VERSION, pa.nulls(rows.num_rows, pa.int64()))
        if version is not None:
            versions = pc.if_else(deleted(rows), version, pa.scalar(None, pa.int64()))
            rows = rows.set_column(rows.schema.get_field_index(VERSION), VERSION, versions)
    return rows.select(schema.names).cast(schema)


def deleted(rows: pa.Table) -> pa.Array:
    """Return which rows are deletes."""
    if OP not in rows.column_names:
        return pa.repeat(pa.scalar(False), rows.num_rows)
    return pc.fill_null(pc.equal(in_one_piece(rows.column(OP)), DELETE), False)


def upserts(rows: pa.Table) -> pa.Table:
    """Return the rows that are no deletes."""
    gone = deleted(rows)
    return rows.filter(pc.invert(gone)) if pc.any(gone, min_count=0).as_py() else rows


def row_buckets(rows: pa.Table, rule: MergeRule) -> pa.Array:
    """Return the bucket of each row, as int32."""
    return buckets_of(rows, rule.key, rule.buckets, rule.splits)


def in_key_order(rows: pa.Table, rule: MergeRule) -> tuple[pa.Table, pa.Array]:
    """Return the rows in the order of bucket and key, and their buckets.

    Rows of one key keep their order.
    """
    buckets = row_buckets(rows, rule)
    names = [_BUCKET, *(str(number) for number in range(len(rule.key)))]
    keys = pa.table([buckets, *(rows.column(name) for name in rule.key)], names)
    order = pc.sort_indices(keys, [(name, "ascending") for name in names])
    return rows.take(order), buckets.take(order)


def empty_columns(rows: pa.Table, required: AbstractSet[str]) -> list[str]:
    """Return those of some columns that have nulls, where only deletes may have some.

    Args:
        rows: the rows of segments, in the table's types.
        required: the names of columns by which rows are merged, or that upserts must have.
    """
    names = sorted(required & {*rows.column_names})
    empty = [name for name in names if rows.column(name).null_count]
    if empty and OP in rows.column_names:
        deletes = pc.fill_null(pc.equal(rows.column(OP), DELETE), False)
        upserts = rows.filter(pc.invert(deletes))
        keys = {field.name for field in rows.schema if not field.nullable}
        empty = [name for name in empty if name in keys or upserts.column(name).null_count]
    return empty


def odd_operation(rows: pa.Table) -> str | None:
    """Return what a row has for an operation that is none (R15.6); None if each is one."""
    if OP not in rows.column_names:
        return None
    known = pc.is_in(rows.column(OP), value_set=pa.array([UPSERT, DELETE, None], pa.string()))
    if pc.all(known, min_count=0).as_py():
        return None
    return str(rows.column(OP).filter(pc.invert(known))[0].as_py())
