"""Tables to publish to Iceberg, and how engines read what was published."""

import datetime as dt
import math
import os
from decimal import Decimal
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
from pyiceberg.table import StaticTable
from support.builders import create, events

from eventlog import compaction
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.writers import append, delete

os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # its own planner is another package

UTC = dt.UTC
EVERY_TYPE = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("small", pa.decimal128(9, 2)),
        ("large", pa.decimal128(38, 10)),
        ("items", pa.list_(pa.int32())),
        ("pairs", pa.map_(pa.string(), pa.float64())),
        (
            "inner",
            pa.struct([("a", pa.int16()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
        ),
    ]
)
_LONG = "größe " * 12
_VALUES = {
    "flag": [True, False],
    "i8": [-128, 127],
    "i16": [-32768, 32767],
    "i32": [-(2**31), 2**31 - 1],
    "i64": [-(2**63), 2**63 - 1, 5],
    "f32": [0.0, -0.0, 1.5],
    "f64": [-0.0, 0.0, math.inf, -math.inf, 2.5],
    "text": ["", "a", "\U0001f600", _LONG, "z" * 40],
    "raw": [b"", b"\x00\xff"],
    "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    "wall": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2013, 1, 7)],
    "small": [Decimal("-0.01"), Decimal("9999999.99"), Decimal("-1.28")],
    "large": [Decimal("-1.0000000001"), Decimal("1234567890123456789012345678.0123456789")],
    "items": [[], [1, None, 3]],
    "pairs": [[], [("k", 1.5), ("n", None)]],
    "inner": [{"a": 1, "b": [{"c": "x"}, None]}, {"a": None, "b": []}],
}


def rows_of_every_type(first, *, days=(0, 1, 15706)):
    """Rows numbered from `first`: each column runs through its values, and every third is null."""
    numbers = range(first, first + 12)
    columns = {
        "at": [dt.datetime(1970, 1, 1, 5, tzinfo=UTC) + dt.timedelta(days[n % len(days)], seconds=n)
               for n in numbers],
        "row": [*numbers],
    }  # fmt: skip
    for at, (name, values) in enumerate(_VALUES.items()):
        columns[name] = [None if (n + at) % 3 == 0 else values[n % len(values)] for n in numbers]
    return pa.table(columns, schema=EVERY_TYPE)


def table_of_every_type(path, **options):
    """A table of every type with appends, NaNs in a version of its own, and compactions."""
    table = create(LocalStore(str(path)), schema=EVERY_TYPE, **options)
    append(table, rows_of_every_type(0))
    nans = rows_of_every_type(12).set_column(8, "f64", pa.array([math.nan] * 12))
    append(table, nans)
    append(table, rows_of_every_type(24, days=(1,)))
    compaction.run(table)
    append(table, rows_of_every_type(36))
    return table


def table_with_deletes(path):
    """A table with deletion vectors, larger ones over them, compactions and appends between."""
    table = create(LocalStore(str(path)), properties={"keyframe_commits": "3"})
    for day in range(3):
        append(table, events(30, day=day, first=30 * day, days=3))
    delete(table, where="name = 'row 7' or name = 'row 70'")
    delete(table, where="name = 'row 8' or name = 'row 10'")
    append(table, events(4, day=2, first=1000))
    delete(table, where="value >= 10 and value < 20")
    compaction.run(table)
    delete(table, where="name = 'row 50'")
    append(table, events(3, day=1, first=2000))
    delete(table, where="name = 'row 2001'")
    return table


def metadata_path(table, version):
    """The path of the metadata file of a version."""
    return f"{unquote(table.uri.removeprefix('file://'))}/metadata/v{version}.metadata.json"


def in_order(rows, schema):
    """Rows as a table of a schema, in one order."""
    rows = rows.select(schema.names).cast(schema)
    key = "row" if "row" in schema.names else "name"
    return rows.sort_by([("at", "ascending"), (key, "ascending")])


def pyiceberg_rows(path, **options):
    """The rows that pyiceberg reads."""
    return StaticTable.from_metadata(path).scan(**options).to_arrow()


def polars_rows(path, predicate=None, **options):
    """The rows that Polars reads."""
    frame = pl.scan_iceberg(path, **options)
    return (frame if predicate is None else frame.filter(predicate)).collect().to_arrow()


def same_rows(left, right):
    """Whether two tables have the same rows, NaN and -0.0 included."""
    return left.schema == right.schema and repr(left.to_pylist()) == repr(right.to_pylist())


def check_versions(table, versions, read=(pyiceberg_rows, polars_rows), path=metadata_path):
    """Check what engines read of versions against `scan`."""
    for version in versions:
        want = scan(table, version=version).to_table()
        want = in_order(want, want.schema)
        for reader in read:
            got = in_order(reader(path(table, version)), want.schema)
            assert same_rows(got, want), (version, reader.__name__)
