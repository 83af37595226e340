"""The tables that every engine is asked about, and the versions of each, before and after."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
from support.published import START_MS, compact_all

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.writers import append, delete, upsert

LARGE_ROWS = 4_000_000
KEYED_ROWS = 12_000
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("truth", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("number", pa.int32()),
        ("single", pa.float32()),
        ("real", pa.float64()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("price", pa.decimal128(20, 4)),
        # Never null here: ClickHouse has no null lists, maps or structs (its page of the docs).
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int64()), ("name", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


@dataclass(frozen=True)
class AskedTable:
    """A table; `compacted` is the first version after its compaction, if it has one."""

    table: Table
    compacted: int | None = None

    @property
    def versions(self):
        """The versions that have rows."""
        return range(1, self.table.session.head().version + 1)


def row_of(n):
    """Return a row of every type by its number; each fifth has nothing but what is required."""
    at = dt.datetime(2013, 1, 1 + n % 2, n % 24, n % 60, 7, n, tzinfo=dt.UTC)
    row = {
        "at": at,
        "id": n,
        "tags": ["a", None, f"t{n}"],
        "place": {"x": n, "name": "\x7f列"},
        "counts": [(f"k{n}", n)],
    }
    if n % 5 == 0:
        return row
    return row | {
        "truth": n % 2 == 0,
        "tiny": n % 128,
        "short": -n,
        "number": n * 100_000,
        "single": n / 4,
        "real": {3: float("nan"), 4: float("inf"), 6: -0.0, 8: float("-inf")}.get(n, 20.5 - n),
        "name": f"row {n}",
        "raw": bytes([n % 256, 0, 255]),
        "day": at.date(),
        "wall": at.replace(tzinfo=None, year=1969),
        "price": Decimal(n) / 4 - 3,
    }


def _rows(first, count, schema=SCHEMA):
    return pa.Table.from_pylist([row_of(n) for n in range(first, first + count)], schema=schema)


def created(path, schema=SCHEMA, **options):
    """Return a new table whose clock is set by hand."""
    clock = ManualClock(START_MS, 1)
    return Table.create(path, schema, time_column="at", clock=clock, **options)


def append_only(path):
    """Appends, a compaction, an append."""
    t = created(path)
    append(t, _rows(0, 12))
    append(t, _rows(12, 12))
    compact_all(t)
    compacted = t.session.head().version
    append(t, _rows(24, 6))
    return AskedTable(t, compacted)


def evolved(path):
    """A column added, one renamed, one widened, one dropped; a compaction, an append."""
    t = created(path)
    append(t, _rows(0, 12))
    t.add_columns([pa.field("added", pa.string())])
    t.rename_column("name", "label")
    t.widen_column("number", pa.int64())
    t.drop_columns(["tiny"])
    later = _rows(12, 12)
    later = later.rename_columns({"name": "label"}).drop_columns(["tiny"])
    append(t, later.append_column("added", pa.array(["x"] * 12)))
    compact_all(t)
    compacted = t.session.head().version
    append(t, later.slice(0, 6).append_column("added", pa.nulls(6, pa.string())))
    return AskedTable(t, compacted)


def deleted_from(path):
    """Deletes, twice from one segment; a compaction; an append and a delete."""
    t = created(path)
    append(t, _rows(0, 12))
    append(t, _rows(12, 12))
    delete(t, where="id = 3 or id = 20")
    delete(t, where="id >= 7 and id < 10")
    compact_all(t)
    compacted = t.session.head().version
    append(t, _rows(24, 6))
    delete(t, where="id = 11 or id = 25")
    return AskedTable(t, compacted)


def keyed(path):
    """Upserts of rows that exist; a compaction; an upsert."""
    t = created(path, key="id", order_by="at", buckets=2)
    upsert(t, _rows(0, 12))
    upsert(t, _rows(6, 12).set_column(8, "name", pa.array([f"new {n}" for n in range(12)])))
    compact_all(t)
    compacted = t.session.head().version
    upsert(t, _rows(3, 6).set_column(8, "name", pa.array([f"newest {n}" for n in range(6)])))
    return AskedTable(t, compacted)


def keyed_by(key):
    """Return what makes a table of so many rows that the differences of its keys are stored.

    Args:
        key: a column of whole numbers in Parquet.
    """

    def made(path):
        ids = np.arange(KEYED_ROWS)
        columns = {
            "id": pa.array(ids * 10**9),
            "day": pa.array(ids, pa.int32()).cast(pa.date32()),
            "at": pa.array(ids * 7_000_001 + START_MS * 1000).cast(SCHEMA.field("at").type),
            "name": pa.array([f"row {n % 100}" for n in ids]),
        }
        schema = pa.schema([pa.field(n, c.type, nullable=n == "name") for n, c in columns.items()])
        rows = pa.table(columns, schema=schema)
        t = created(path, schema, key=key, granularity="all", buckets=2)
        upsert(t, rows.slice(0, 9_000))
        upsert(t, rows.slice(6_000).set_column(3, "name", pa.array(["new"] * 6_000)))
        compact_all(t)
        compacted = t.session.head().version
        upsert(t, rows.slice(1_000, 4_000))
        return AskedTable(t, compacted)

    return made


def large(path):
    """A file of more than 64 MB in several row groups, and deletes in many of them."""
    chance = np.random.default_rng(7)
    ids = chance.permutation(LARGE_ROWS)
    at = np.datetime64("2013-01-02T00:00:00", "us") + (ids * 20_000).astype("timedelta64[us]")
    columns = {"at": at, "id": ids, "real": chance.random(LARGE_ROWS) - 0.5}
    schema = pa.schema([SCHEMA.field("at"), SCHEMA.field("id"), SCHEMA.field("real")])
    t = created(path, schema)
    append(t, pa.table(columns, schema=schema))
    delete(t, where="real >= 0.1 and real < 0.101")
    return AskedTable(t)


TABLES = {
    "append-only": append_only,
    "evolved": evolved,
    "deleted from": deleted_from,
    "keyed": keyed,
    "keyed by 64 bits": keyed_by("id"),
    "keyed by 32 bits": keyed_by("day"),
    "large, deleted from": large,
}
