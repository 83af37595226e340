"""Which columns of dates and instants Spark may compare inside Parquet (`filters.LATE`).

Imports eventlog only. Decided from the log, without reading rows.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Snapshot
from eventlog.readers.spark.jvm.filters import LATE
from eventlog.state.scan import ScanPlan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATE_MS = (LATE - _EPOCH) // timedelta(milliseconds=1)
_LATE_US = _LATE_MS * 1000


def late_columns(snapshot: Snapshot, plan: ScanPlan) -> frozenset[str]:
    """Return the columns of dates or instants whose values are all known to be `LATE` or later.

    For the time column the chunks show it; for others the statistics do, if their entries match the
    hashes in the log.
    """
    times = {
        column.name: column.id
        for column in snapshot.stored_schema.columns
        if _is_time(plan.table_schema.field(column.name).type)
    }
    entries, first = plan.entries, snapshot.layout.time_column
    late = set()
    if first in times and _all(pc.greater_equal(entries.column("chunk_start"), _LATE_MS)):
        late.add(first)
    others = {
        name for name, number in times.items() if name not in late and _bounds_late(entries, number)
    }
    if others and snapshot.are_true(entries):
        late |= others
    return frozenset(late)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)


def _bounds_late(entries: pa.Table, number: int) -> bool:
    if f"min_{number}" not in entries.column_names:
        return False
    least = entries.column(f"min_{number}")
    late = pc.fill_null(pc.greater_equal(least, _LATE_US), fill_value=False)
    empty = pc.equal(entries.column(f"nulls_{number}"), entries.column("rows"))
    return _all(pc.or_(late, pc.fill_null(empty, fill_value=False)))


def _all(mask: pa.ChunkedArray) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())
