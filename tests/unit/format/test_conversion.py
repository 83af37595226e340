"""Which Parquet types are read as which column types: each pair of FORMAT.md R7.9, and no other."""

import io
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.field_ids import with_ids
from support.foreign import COLUMNS, KEYED, foreign, rows_of, table_of

from eventlog import compaction
from eventlog.errors import DataLoss
from eventlog.format.conversion import match_columns
from eventlog.fsck.check import fsck
from eventlog.model.entries import Column, Schema
from eventlog.readers import changes, scan
from eventlog.writers import append, upsert

UTC = "UTC"
# Arrow types that are written as each of the Parquet types in question.
STORED = {
    "BOOLEAN": pa.bool_(),
    "Int(8)": pa.int8(),
    "Int(8, unsigned)": pa.uint8(),
    "Int(16)": pa.int16(),
    "Int(16, unsigned)": pa.uint16(),
    "INT32": pa.int32(),
    "Int(32, unsigned)": pa.uint32(),
    "INT64": pa.int64(),
    "Int(64, unsigned)": pa.uint64(),
    "Float16": pa.float16(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "String": pa.string(),
    "BYTE_ARRAY": pa.binary(),
    "FIXED": pa.binary(3),
    "Date": pa.date32(),
    "millis UTC": pa.timestamp("ms", UTC),
    "micros UTC": pa.timestamp("us", UTC),
    "nanos UTC": pa.timestamp("ns", UTC),
    "millis": pa.timestamp("ms"),
    "micros": pa.timestamp("us"),
    "nanos": pa.timestamp("ns"),
    "Time": pa.time64("us"),
    "Decimal(9,2)": pa.decimal128(9, 2),
    "Decimal(20,4)": pa.decimal128(20, 4),
    "Null": pa.null(),
    "List": pa.list_(pa.int32()),
    "Map": pa.map_(pa.string(), pa.int32()),
    "Struct": pa.struct([("a", pa.int32()), ("b", pa.float32())]),
}
SMALL = {"Int(8)", "Int(8, unsigned)"}
PERMITTED = {
    "bool": {"BOOLEAN"},
    "int8": {"Int(8)"},
    "int16": {"Int(16)", *SMALL},
    "int32": {"INT32", "Int(16)", "Int(16, unsigned)", *SMALL},
    "int64": {"INT64", "INT32", "Int(32, unsigned)", "Int(16)", "Int(16, unsigned)", *SMALL},
    "float32": {"FLOAT"},
    "float64": {"FLOAT", "DOUBLE"},
    "string": {"String"},
    "binary": {"BYTE_ARRAY"},
    "date": {"Date"},
    "timestamp": {"millis UTC", "micros UTC"},
    "timestamp_ntz": {"millis", "micros", "Date"},
    "decimal(9,2)": {"Decimal(9,2)"},
    "decimal(11,4)": {"Decimal(9,2)"},
    "decimal(10,4)": set(),
    "decimal(20,4)": {"Decimal(9,2)", "Decimal(20,4)"},
    "decimal(20,5)": {"Decimal(9,2)"},
}


def listed(kind):
    return {"list": {"id": 3, "type": kind}}


def mapped(key, value):
    return {"map": [{"id": 3, "type": key}, {"id": 4, "type": value}]}


def struct(*fields):
    named = [{"id": 3 + n, "name": name, "type": kind} for n, (name, kind) in enumerate(fields)]
    return {"struct": named}


NESTED = [
    (listed("int32"), pa.list_(pa.int32()), True),
    (listed("int64"), pa.list_(pa.int32()), True),
    (listed("int64"), pa.large_list(pa.int32()), True),
    (listed("int16"), pa.list_(pa.int32()), False),
    (listed("int32"), pa.int32(), False),
    ({"list": {"id": 4, "type": listed("date")}}, pa.list_(pa.list_(pa.timestamp("us"))), False),
    ({"list": {"id": 4, "type": listed("date")}}, pa.list_(pa.list_(pa.date32())), True),
    (listed("int32"), pa.map_(pa.int32(), pa.int32()), False),
    (mapped("string", "int64"), pa.map_(pa.string(), pa.int32()), True),
    (mapped("string", "float32"), pa.map_(pa.string(), pa.float64()), False),
    (mapped("binary", "int32"), pa.map_(pa.string(), pa.int32()), False),
    (mapped("string", "int32"), pa.list_(pa.int32()), False),
    (struct(("a", "int64")), pa.struct([("a", pa.int32())]), True),
    (struct(("a", "int32")), pa.struct([("a", pa.int64())]), False),
    (struct(("a", "int32"), ("b", "int8")), pa.struct([("b", pa.int8()), ("a", pa.int32())]), True),
    (struct(("a", "int32"), ("b", "int32")), pa.struct([("a", pa.int32())]), True),
    (struct(("a", "int32")), pa.struct([("a", pa.int32()), ("b", pa.int32())]), False),  # no id
    (struct(("a", listed("string"))), pa.struct([("a", pa.list_(pa.binary()))]), False),
    ("int32", pa.struct([("a", pa.int32())]), False),
]


def fits(stored: pa.DataType, wanted) -> bool:
    columns = (Column(1, "other", "int8"), Column(2, "x", wanted))
    body = io.BytesIO()
    pq.write_table(with_ids(pa.table({"x": pa.nulls(1, stored)}), Schema(1, columns)), body)
    file = pq.ParquetFile(body)
    try:
        match_columns(file.schema, file.schema_arrow, columns)
    except DataLoss as error:
        return re.search("column 'x' of the object is .* without loss", error.message) is None
    return True


@pytest.mark.hazard("W3")
@pytest.mark.parametrize("wanted", PERMITTED)
def test_the_pairs_of_the_format_are_read_and_no_others(wanted):
    assert {name for name, stored in STORED.items() if fits(stored, wanted)} == PERMITTED[wanted]


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(("wanted", "stored", "expected"), NESTED, ids=str)
def test_nested_columns_are_read_by_the_same_pairs(wanted, stored, expected):
    assert fits(stored, wanted) == expected


@pytest.mark.hazard("W3")
def test_other_physical_types_of_decimals_and_int96_are_told_apart():
    body = io.BytesIO()
    d, t = Column(1, "d", "decimal(9,2)"), Column(2, "t", "timestamp_ntz")
    rows = pa.table({"d": pa.nulls(1, pa.decimal128(9, 2)), "t": pa.nulls(1, pa.timestamp("us"))})
    pq.write_table(
        with_ids(rows, Schema(1, (d, t))),
        body,
        store_decimal_as_integer=True,
        use_deprecated_int96_timestamps=True,
    )
    file = pq.ParquetFile(body)
    assert file.schema.column(0).physical_type == "INT32"
    assert match_columns(file.schema, file.schema_arrow, [d]) == {"d": 0}
    with pytest.raises(DataLoss, match="INT96"):
        match_columns(file.schema, file.schema_arrow, [t])


LOSSY = {
    "day": pa.array([86_400_000_001] * 2, pa.timestamp("us")),
    "small": pa.array([0.1] * 2, pa.float64()),
}


@pytest.mark.hazard("W3")
@pytest.mark.parametrize("column", LOSSY)
@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
def test_a_segment_that_would_be_read_with_loss_is_data_loss(options, column):
    table = table_of(**options)
    (upsert if options else append)(table, rows_of([7, 8, 9]))
    before = table.session.head().version
    foreign(table, rows_of(**{column: LOSSY[column]}))
    for read in (
        lambda: scan(table).to_table(),
        lambda: scan(table, ["id"], f"{column} is not null").to_table(),
        lambda: scan(table, where=f"{column} is null").count(),
        lambda: changes(table, before).to_table(),
        # The same whichever columns are asked for.
        lambda: scan(table, ["id"]).to_table(),
    ):
        with pytest.raises(DataLoss, match=f"column '{column}' of the object is .* without loss"):
            read()
    done = compaction.run(table, policy=compaction.Policy(target_bytes=2**20))
    assert {outcome.status for outcome in done.outcomes} == {"failed"}
    assert len(table.refresh().segments()) == 2
    assert scan(table, version=before).count() == 3


@pytest.mark.hazard("W3")
def test_fsck_of_keys_goes_by_the_same_pairs():
    table = table_of(**KEYED)
    foreign(table, rows_of(seen=pa.array([0.5, 1.5], pa.float64())))
    found = fsck(table, keys=True)
    assert any("column 'seen' of the object is DOUBLE" in f.message for f in found.findings)


@pytest.mark.hazard("W3")
def test_permitted_pairs_give_the_values():
    table = table_of()
    at = pa.array([1000, 2000], pa.timestamp("ms", UTC))
    foreign(table, rows_of(pa.array([1, 2], pa.int32()), at=at, seen=pa.array([1, 2], pa.uint8())))
    found = scan(table).to_table()
    assert found.schema.types == COLUMNS.types
    assert found.column("at").cast(pa.int64()).to_pylist() == [1_000_000, 2_000_000]
    assert found.column("seen").to_pylist() == [1, 2]


@pytest.mark.hazard("W3")
def test_what_permitted_pairs_cannot_hold_is_data_loss():
    table = table_of()
    foreign(table, rows_of(at=pa.array([2**62, 0], pa.timestamp("ms", UTC))))
    with pytest.raises(DataLoss):
        scan(table).to_table()
