"""Tests the rows of stored segments against checks of their table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eventlog.keyed.log_rows import upserts
from eventlog.keyed.rule import OP
from eventlog.model.entries import Check, Schema, Segment
from eventlog.model.schema import to_arrow
from eventlog.query.row_checks import RowChecks
from eventlog.segments.fragments import Reading
from eventlog.store.port import ObjectStore


def stored_rows_tested(
    store: ObjectStore,
    segments: Sequence[Segment],
    schema: Schema,
    checks: Sequence[Check],
    *,
    version: int,
    keyed: bool,
) -> RowChecks:
    """Return the checks after the rows of segments were tested, as they are stored.

    Only the columns of the checks are read, and deleted rows are left out. In a keyed table each
    upsert counts, also where a later one hides it.

    Args:
        store: has the segments.
        segments: the segments.
        schema: the columns by which the rows are read.
        checks: the checks, of this schema.
        version: a version of the table, for messages.
        keyed: whether the table has a key.

    Raises:
        DataLoss: a segment or a deletion vector is missing or damaged.
        InvalidInput: an expression cannot be computed.
        Unavailable: the store does not answer.
    """
    tested = RowChecks(schema, checks, upserts if keyed else None)
    if not (segments and checks):
        return tested
    names = tested.columns()
    fields = [field for field in to_arrow(schema) if field.name in names]
    if keyed:  # rows that delete a key have nothing else
        fields = [field.with_nullable(True) for field in fields]
        fields.append(pa.field(OP, pa.string()))
    rows = pa.schema(fields)
    for batch in Reading(store, version, schema, rows, rows).batches(segments):
        tested.look_at(pa.Table.from_batches([batch]))
    return tested
