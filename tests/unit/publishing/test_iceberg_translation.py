"""The pure translators of Iceberg: types, bounds, partitions, manifests, metadata."""

import datetime as dt
import json
import math
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.transforms import parse_transform
from pyroaring import BitMap64
from support.builders import HASH, replaced
from support.iceberg_tables import EVERY_TYPE

from eventlog.errors import Corrupt, InvalidInput
from eventlog.model import stats
from eventlog.model.actions import Add, Drop, Replace
from eventlog.model.chunks import chunk_of
from eventlog.model.entries import Column, ColumnStats, Schema
from eventlog.model.records import CommitChanges, Meta, Pin, Transaction
from eventlog.model.schema import from_arrow
from eventlog.publishing.iceberg.translation import avro_files, position_deletes, table_metadata
from eventlog.publishing.iceberg.translation.file_bounds import bound_bytes, file_metrics
from eventlog.publishing.iceberg.translation.iceberg_schema import (
    last_column_id,
    partition_specs,
    partition_value,
    schema_problem,
    spec_of,
    to_iceberg,
    widened_times,
)

NOON = dt.datetime(2013, 1, 7, 12, tzinfo=dt.UTC)


def column(kind, **options):
    return Column(1, "c", kind, **options)


def schema_of(*columns, **options):
    return Schema(1, columns, **options)


# Bounds


@pytest.mark.parametrize(
    ("kind", "arrow", "theirs", "value"),
    [
        ("bool", pa.bool_(), iceberg.BooleanType(), True),
        ("int8", pa.int8(), iceberg.IntegerType(), -128),
        ("int16", pa.int16(), iceberg.IntegerType(), 300),
        ("int32", pa.int32(), iceberg.IntegerType(), -(2**31)),
        ("int64", pa.int64(), iceberg.LongType(), 2**63 - 1),
        ("float32", pa.float32(), iceberg.FloatType(), -1.5),
        ("float64", pa.float64(), iceberg.DoubleType(), -7.25),
        ("float64", pa.float64(), iceberg.DoubleType(), math.inf),
        ("float64", pa.float64(), iceberg.DoubleType(), -math.inf),
        ("string", pa.string(), iceberg.StringType(), "größe"),
        ("date", pa.date32(), iceberg.DateType(), dt.date(1969, 12, 31)),
        ("decimal(9,2)", pa.decimal128(9, 2), iceberg.DecimalType(9, 2), Decimal("-1.28")),
        ("decimal(9,2)", pa.decimal128(9, 2), iceberg.DecimalType(9, 2), Decimal("1.28")),
        ("decimal(18,0)", pa.decimal128(18, 0), iceberg.DecimalType(18, 0), Decimal(-(10**17))),
    ],
)
def test_bounds_are_those_that_pyiceberg_writes(kind, arrow, theirs, value):
    bound = stats.encode(pa.scalar(value, arrow), kind)
    given = (value - dt.date(1970, 1, 1)).days if kind == "date" else value
    for lower in (True, False):
        assert bound_bytes(kind, bound, lower=lower) == to_bytes(theirs, given)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_bounds_of_times_are_microseconds(kind):
    assert from_bytes(iceberg.TimestampType(), bound_bytes(kind, -1, lower=True)) == -1


@pytest.mark.parametrize(("kind", "theirs"), [("float32", iceberg.FloatType()),
                                              ("float64", iceberg.DoubleType())])  # fmt: skip
def test_a_lower_bound_of_zero_is_negative(kind, theirs):
    # Iceberg orders -0.0 before 0.0; our bound 0 stands for both.
    low, high = (from_bytes(theirs, bound_bytes(kind, 0, lower=at)) for at in (True, False))
    assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)


@pytest.mark.parametrize(
    ("kind", "bound"),
    [("int32", 2**31), ("string", 5), ("int64", "text"), ("binary", 3), ("string", "\ud800"),
     ("int64", None)],
)  # fmt: skip
def test_bounds_that_a_column_cannot_have_are_left_out(kind, bound):
    assert bound_bytes(kind, bound, lower=True) is None


def test_a_widened_column_has_bounds_of_its_new_type():
    old = [ColumnStats(1, -5, 7, 0), ColumnStats(2, 0, 86_400_000_000, 1)]
    found = file_metrics(old, 9, {1: "int64", 2: "timestamp_ntz"})
    assert [len(pair["value"]) for pair in found.lower] == [8, 8]
    assert from_bytes(iceberg.TimestampType(), found.upper[1]["value"]) == 86_400_000_000


def test_metrics_are_counts_of_the_object_and_leave_out_dropped_columns():
    given = [ColumnStats(1, 0, 0, 2), ColumnStats(2, None, None, 1), ColumnStats(3, 1, 1, 0)]
    found = file_metrics(given, 5, {1: "float64", 2: "float64"})
    assert found.values == [{"key": 1, "value": 5}, {"key": 2, "value": 5}]
    assert found.nulls == [{"key": 1, "value": 2}, {"key": 2, "value": 1}]
    assert found.nans == [{"key": 1, "value": 0}]  # column 2 may have some
    assert [pair["key"] for pair in found.lower] == [1]


# Schemas


def test_every_type_has_its_iceberg_type_and_all_ids():
    stored = from_arrow(EVERY_TYPE)
    shown = to_iceberg(stored, 2)
    assert schema_problem(stored, 2) is None
    kinds = {f["name"]: f["type"] for f in shown["fields"]}
    assert [kinds[n] for n in ("i8", "i16", "i32", "i64")] == ["int", "int", "int", "long"]
    assert (kinds["at"], kinds["wall"], kinds["small"]) == (
        "timestamptz", "timestamp", "decimal(9, 2)"
    )  # fmt: skip
    assert [f["required"] for f in shown["fields"][:3]] == [True, True, False]
    assert kinds["items"] == {
        "type": "list", "element-id": 19, "element": "int", "element-required": False
    }  # fmt: skip
    assert kinds["pairs"]["key-id"] == 20
    assert [f["id"] for f in kinds["inner"]["fields"]] == [22, 23]
    assert last_column_id(stored) == 25
    assert last_column_id(replaced(stored, retired=(99,))) == 99


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            [Column(1, "a", {"struct": [{"id": 3, "name": "b", "type": "int8"}]}),
             Column(2, "a.b", "int8")],
            "'a.b' is the full name of two",
        ),
        ([Column(1, "_pos", "int8")], "reserves the name '_pos'"),
        (
            [Column(1, "m", {"list": {"id": 2, "type": {"map": [
                {"id": 3, "type": {"list": {"id": 4, "type": "int8"}}},
                {"id": 5, "type": "int8"}]}}})],
            "'m' has a map whose keys are lists",
        ),
        ([column("int8", initial=1)], "publish with format version 3"),
    ],
)  # fmt: skip
def test_schemas_that_cannot_be_said_are_refused_by_name(columns, message):
    assert message in schema_problem(schema_of(*columns), 2)


@pytest.mark.parametrize(
    ("kind", "encoded", "shown"),
    [
        ("bool", True, True),
        ("int64", 5, 5),
        ("float64", -1, -0.0),
        ("string", "x", "x"),
        ("binary", "00ff", "00ff"),
        ("date", -86_400_000_000, "1969-12-31"),
        ("timestamp", 1, "1970-01-01T00:00:00.000001+00:00"),
        ("timestamp_ntz", -1, "1969-12-31T23:59:59.999999"),
        ("decimal(9,2)", "-128", "-1.28"),
    ],
)
def test_defaults_are_said_in_format_3(kind, encoded, shown):
    schema = schema_of(column(kind, initial=encoded, write=encoded))
    assert schema_problem(schema, 3) is None
    (field,) = to_iceberg(schema, 3)["fields"]
    assert repr((field["initial-default"], field["write-default"])) == repr((shown, shown))
    assert "initial-default" not in to_iceberg(schema, 2)["fields"][0]


@pytest.mark.parametrize(
    ("kind", "encoded"),
    [("float64", 0x7FF0 << 48), ("timestamp", 2**62), ("timestamp_ntz", -(2**62))],
)
def test_defaults_without_a_form_are_refused(kind, encoded):
    assert "no form for a default" in schema_problem(schema_of(column(kind, write=encoded)), 3)


def test_dates_that_became_timestamps_are_found_inside_of_structs():
    def inner(kind):
        return schema_of(column({"struct": [{"id": 2, "name": "d", "type": kind}]}))

    assert widened_times(inner("date"), inner("timestamp_ntz")) == "c"
    assert widened_times(inner("date"), inner("date")) is None
    assert widened_times(inner("timestamp_ntz"), inner("timestamp_ntz")) is None


# Partitions


@pytest.mark.parametrize("granularity", ["hour", "day", "month", "year"])
@pytest.mark.parametrize("time_ms", [-62_135_596_800_000, -1, 0, 1_357_560_000_123,
                                     253_402_300_799_999])  # fmt: skip
def test_partition_values_are_those_of_icebergs_transforms(granularity, time_ms):
    chunk = chunk_of(time_ms, granularity)
    transform = parse_transform(granularity).transform(iceberg.TimestamptzType())
    for inside in (chunk.start, chunk.end - 1):
        value = partition_value(chunk, spec_of(granularity, "timestamp"))
        assert value == transform(inside * 1000)


def test_partition_fields_have_no_name_of_a_column():
    schema = schema_of(Column(1, "at", "date"), Column(2, "AT_day", "int8"))
    specs = partition_specs(schema, 1)
    assert [s["spec-id"] for s in specs] == [0, 2, 3, 4]  # a date has no hours
    assert specs[1]["fields"][0]["name"] == "at_day_"
    assert spec_of("hour", "date") == spec_of("all", "timestamp") == 0


# Files


def test_avro_files_are_the_same_bytes_and_are_compared_by_what_they_say():
    schema, spec = {"schema-id": 1, "fields": []}, {"spec-id": 0, "fields": []}
    facts = {"content": avro_files.DATA, "format_version": 2, "schema": schema, "spec": spec}
    one, again, other = (
        avro_files.manifest_bytes([], **{**facts, "content": content})
        for content in (avro_files.DATA, avro_files.DATA, avro_files.DELETES)
    )
    assert one == again
    reader = fastavro.reader(BytesIO(one))
    packed = BytesIO()
    meta = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
    fastavro.writer(packed, reader.writer_schema, [], metadata=meta, sync_marker=b"x" * 16)
    assert packed.getvalue() != one
    assert avro_files.same_avro(packed.getvalue(), packed.getvalue())
    assert not avro_files.same_avro(other, one)
    assert not avro_files.same_avro(b"no avro", one)
    with pytest.raises(Corrupt, match="does not decode"):
        avro_files.avro_records(one[:40], avro_files.EntryRecord)


@pytest.mark.parametrize("name", ["day", "größe", "0x", "a b"])
def test_partition_fields_have_names_that_avro_permits(name):
    shown = avro_files.avro_name(name)
    assert shown.isascii()
    assert shown.isidentifier()
    assert (shown == name) == (name == "day")


def test_positions_are_compared_by_row():
    some = position_deletes.positions_parquet("file:///t/a.parquet", BitMap64([1, 5]))
    same = position_deletes.positions_parquet("file:///t/a.parquet", BitMap64([1, 5]))
    other = position_deletes.positions_parquet("file:///t/a.parquet", BitMap64([1, 6]))
    assert position_deletes.same_positions(some, same)
    assert not position_deletes.same_positions(some, other)
    assert not position_deletes.same_positions(b"none", some)


def test_a_puffin_file_has_one_vector_with_its_checksum():
    body, length = position_deletes.vector_puffin("file:///t/a.parquet", BitMap64([3, 2**33]))
    size = int.from_bytes(body[-12:-8], "little")
    (blob,) = json.loads(body[-12 - size : -12])["blobs"]
    assert (blob["offset"], blob["length"]) == (position_deletes.PUFFIN_OFFSET, length)
    assert blob["properties"] == {
        "referenced-data-file": "file:///t/a.parquet", "cardinality": "2"
    }  # fmt: skip
    vector = body[4 : 4 + length]
    assert BitMap64.deserialize(vector[8:-4]) == BitMap64([3, 2**33])


# Metadata


def test_version_zero_has_the_id_of_no_version():
    assert [table_metadata.snapshot_id(v) for v in (0, 1, 999_999_999_999)] == [
        10**12, 1, 999_999_999_999
    ]  # fmt: skip


def test_the_newest_and_the_tagged_versions_are_listed():
    pins = {"report": Pin(20, "me", 21, 0), "branch:audit": Pin(3, "me", 21, 0)}
    meta = Meta(pins=pins, horizon=10)
    assert table_metadata.listed_versions(meta, 100) == [20, *range(51, 101)]
    assert table_metadata.listed_versions(meta, 30) == [*range(10, 31)]
    assert table_metadata.listed_versions(meta, 30, held=25) == [*range(25, 31)]
    assert table_metadata.tags_of(meta) == {"report": 20}


def test_only_rewrites_are_replacements():
    def word(actions, adds=1, drops=1, vectors=0):
        changes = CommitChanges("compact", "w", 1, adds, drops, 0, 0, vectors or 0)
        given = Transaction("a" * 32, "compact", "w", 0, actions=tuple(actions))
        return table_metadata.operation_of(changes, [given])

    add, drop = Add("a" * 32, "all", 0, 1, 1, HASH, 1), Drop("b" * 32, "all", HASH)
    assert word([add], drops=0) == "append"
    assert word([drop], adds=0) == "delete"
    assert word([drop, add, Replace(1, 0)]) == "replace"
    assert word([drop, add, Replace(1, 3)]) == "overwrite"
    assert word([drop, add]) == "overwrite"


def test_fastavro_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(InvalidInput, match=r"eventlog-tables\[publish\]"):
        avro_files.manifest_list_bytes([], 2)
