"""Tables with segments that other programs may have written."""

import io
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET
from support.builders import START_MS
from support.field_ids import with_ids

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format import codec, keys
from eventlog.model.actions import Add
from eventlog.model.entries import Slice
from eventlog.model.schema import from_arrow
from eventlog.store.memory import MemoryStore

_numbers = itertools.count()
KEYED = {"key": "id", "order_by": "seen", "buckets": 1}
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("seen", pa.int64()),
        ("day", pa.date32()),
        ("small", pa.float32()),
    ]
)


def table_of(**options):
    """A table of `COLUMNS` with one chunk."""
    store = MemoryStore(f"memory://converted-{next(_numbers)}")
    clock = ManualClock(START_MS, 1)
    options = {"granularity": "all", "time_column": "at"} | options
    schema = options.pop("schema", COLUMNS)
    return Table.create(store.uri, schema, store=store, clock=clock, **options)


def rows_of(ids=(1, 2), **columns):
    """Rows of these ids, with some columns exchanged, or left out (None)."""
    given = {
        "id": pa.array(ids, pa.int64()),
        "at": pa.array([0] * len(ids), pa.timestamp("us", "UTC")),
        "seen": pa.array([5] * len(ids), pa.int64()),
        "day": pa.array([3] * len(ids), pa.date32()),
        "small": pa.array([0.5] * len(ids), pa.float32()),
    } | columns
    return pa.table({name: values for name, values in given.items() if values is not None})


def stored(rows, schema=None, **options):
    """The bytes of a Parquet file with the field ids of a table; None: those of `COLUMNS`."""
    body = io.BytesIO()
    schema = from_arrow(COLUMNS) if schema is None else schema
    pq.write_table(with_ids(rows, schema), body, **options)
    return body.getvalue()


def foreign(
    table, segment, kind="log", *, chunk="all", rows=None, tail=None, stats=(), inline=False
):
    """Commit a segment as another program may have written it.

    Args:
        table: gets it.
        segment: its rows, or the bytes of its object.
        kind: of the segment of a keyed table.
        chunk: its time chunk.
        rows: the number of rows in its entry; the right number if None.
        tail: the object's tail in its entry.
        stats: in its entry.
        inline: whether its bytes stand in the commit.
    """
    schema = table.session.head().stored_schema
    body = segment if isinstance(segment, bytes) else stored(segment, schema)
    keyed = table.session.head().layout.keyed is not UNSET
    place = Slice(kind, 0, 0, None, None, 0, None) if keyed else UNSET
    add = Add(
        table.clock.random_id(), chunk, table.session.head().version,
        segment.num_rows if rows is None else rows, len(body), codec.sha256(body), 1, stats,
        tail=tail, slice=place, parquet=body if inline else UNSET,
    )  # fmt: skip
    assert inline or table.store.put_if_absent(keys.key_of(add), body)
    return table.commit(table.transaction("append", [add]))
