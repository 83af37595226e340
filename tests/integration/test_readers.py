"""Scans of real tables: exact rows of one version, checked segments, temporary failures."""

import importlib
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support import own_threads
from support.builders import SCHEMA, commit, create, events, reopen, replace_object
from support.field_ids import with_ids

from eventlog import limits, readers
from eventlog.errors import DataLoss, InvalidInput, Unavailable, VersionNotFound
from eventlog.format import codec, keys
from eventlog.model.actions import Add
from eventlog.model.schema import from_arrow
from eventlog.query import predicate
from eventlog.segments import fragments
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.table.table import Table
from eventlog.writers import append, overwrite


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def table(store):
    """Versions 1 and 2: 60 rows over 6 days, then 30 over 3."""
    found = create(store)
    append(found, events(60, days=6))
    append(found, events(30, first=100, days=3))
    return found


def everything():
    return pa.concat_tables([events(60, days=6), events(30, first=100, days=3)])


def as_rows(rows):
    return sorted(rows.to_pylist(), key=lambda row: row["name"])


def object_keys(store):
    return sorted(o.key for o in store.list("data/"))


def staged(table, body, rows, chunk="1970-01-01"):
    """An add of a segment whose object is `body`."""
    added = Add(table.clock.random_id(), chunk, 0, rows, len(body), codec.sha256(body), 1)
    assert table.store.put_if_absent(keys.segment_key(0, chunk, added.id), body)
    return added


def parquet(rows, **options):
    sink = BytesIO()
    pq.write_table(with_ids(rows, from_arrow(SCHEMA)), sink, **options)
    return sink.getvalue()


# ------------------------------------------------------------------------------------------ rows


def test_scan_returns_every_row(table):
    found = readers.scan(table).to_table()
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert as_rows(found) == as_rows(everything())


def test_rows_come_in_order_of_chunk_and_version(table):
    found = readers.scan(table).to_table()
    days = found.column("at").cast(pa.date32()).to_pylist()
    assert days == sorted(days)
    first = [
        name for name, day in zip(found["name"].to_pylist(), days, strict=True) if not day.day - 1
    ]
    assert first == [f"row {n}" for n in range(0, 60, 6)] + [f"row {n}" for n in range(102, 130, 3)]


@pytest.mark.parametrize(
    "where",
    [
        "value > 10 AND name LIKE 'row 1%'",
        "at >= '1970-01-02' AND at < '1970-01-04'",
        (pc.field("value") > 10) & (pc.field("name") < "row 4"),
        "length(name) = 5",
        "value < 0",
    ],
)
def test_filtered_rows_and_counts(table, where):
    asked = predicate.parse_predicate(where, table.session.head().stored_schema)
    expected = everything().filter(asked.to_arrow())
    assert as_rows(readers.scan(table, where=where).to_table()) == as_rows(expected)
    assert readers.count(table, where) == expected.num_rows
    narrow = readers.scan(table, ["name"], where).to_table()
    assert sorted(narrow["name"].to_pylist()) == sorted(expected["name"].to_pylist())


def test_columns_keep_their_order_and_may_be_none(table):
    assert readers.scan(table, ["value", "at"]).to_table().schema.names == ["value", "at"]
    assert readers.scan(table, []).to_table().num_rows == 90
    assert readers.scan(table, [], "value >= 50").to_table().num_rows == 30


def test_an_empty_table_reads_as_no_rows():
    found = readers.scan(create())
    assert found.to_table().schema == SCHEMA
    assert (found.to_table().num_rows, found.count(), list(found.to_batches())) == (0, 0, [])


def test_batches_are_bounded_and_have_the_schema(table):
    found = readers.scan(table, ["name"], batch_rows=4)
    batches = list(found.to_batches())
    assert max(batch.num_rows for batch in batches) == 4
    assert sum(batch.num_rows for batch in batches) == 90
    assert {batch.schema for batch in batches} == {found.schema}


def test_wrong_arguments_are_refused(table):
    for arguments in [{"columns": ["x"]}, {"where": "x = 1"}, {"where": 7}, {"batch_rows": 0}]:
        with pytest.raises(InvalidInput):
            readers.scan(table, **arguments)
    with pytest.raises(VersionNotFound):
        readers.scan(table, version=99)


# -------------------------------------------------------------------------------------- versions


@pytest.mark.hazard("R2")
def test_a_scan_is_pinned_to_its_version(table):
    pinned = readers.scan(table)
    overwrite(table, events(5), start="1970-01-01", end="1970-01-02")
    assert pinned.version == 2
    assert as_rows(pinned.to_table()) == as_rows(everything())
    assert pinned.count() == 90
    assert readers.count(table) == 90 - 20 + 5
    assert as_rows(readers.scan(table, version=1).to_table()) == as_rows(events(60, days=6))
    assert readers.count(table, version=0) == 0


def test_a_timestamp_names_a_version(table):
    at = table.snapshot(1).timestamp
    assert readers.scan(table, timestamp=at).version == 1


def test_columns_added_later_read_as_null(table):
    table.add_columns(SCHEMA.append(pa.field("extra", pa.decimal128(9, 2))))
    rows = events(1, first=200).append_column(
        "extra", pa.array([Decimal("1.50")], pa.decimal128(9, 2))
    )
    append(table, rows)
    found = readers.scan(table).to_table()
    assert found.schema.names == [*SCHEMA.names, "extra"]
    assert found.column("extra").null_count == 90
    assert readers.count(table, "extra = 1.5") == 1
    assert readers.count(table, "extra IS NULL") == 90
    assert readers.scan(table, version=2).schema == SCHEMA


def test_every_type_comes_back_as_it_was_written(store):
    schema = pa.schema(
        [
            pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
            ("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()),
            ("i64", pa.int64()), ("f32", pa.float32()), ("f64", pa.float64()), ("s", pa.string()),
            ("raw", pa.binary()), ("d", pa.date32()), ("n", pa.timestamp("us")),
            ("dec", pa.decimal128(20, 3)), ("l", pa.list_(pa.int32())),
            ("st", pa.struct([("x", pa.int8()), ("y", pa.string())])),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )  # fmt: skip
    found = create(store, schema=schema)
    full = [
        datetime(2013, 1, 7, 1, 2, 3, 4, tzinfo=UTC), True, -1, 2, 3, 2**40, 0.5, -0.25, "ä", b"\0",
        datetime(1969, 12, 31).date(), datetime(1900, 1, 1), Decimal("-1.125"), [1, None],
        {"x": 1, "y": None}, [("k", 1)],
    ]  # fmt: skip
    empty = [full[0], *[None] * 15]
    rows = pa.table([list(pair) for pair in zip(full, empty, strict=True)], schema=schema)
    append(found, rows)
    back = readers.scan(found).to_table()
    assert back.schema.equals(schema)
    assert back.to_pylist() == rows.to_pylist()


# ----------------------------------------------------------------------------------- other worlds


def test_pandas_polars_duckdb_and_capsules(table):
    found = readers.scan(table, where="value < 10")
    expected = sorted(found.to_table()["name"].to_pylist())
    frame = found.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["name"]) == expected
    polars = found.to_polars()
    assert isinstance(polars, pl.DataFrame)
    assert sorted(polars["name"]) == expected
    assert sorted(pl.DataFrame(found)["name"]) == expected
    assert sorted(pa.table(found)["name"].to_pylist()) == expected
    assert sorted(found.to_reader().read_all()["name"].to_pylist()) == expected
    with duckdb.connect() as connection:
        relation = found.to_duckdb(connection)
        for _ in range(2):  # a relation may be run again
            assert sorted(name for (name,) in relation.project("name").fetchall()) == expected
    assert found.to_duckdb().aggregate("count(*)").fetchall() == [(len(expected),)]


@pytest.mark.parametrize("module", ["pandas", "polars", "duckdb"])
def test_a_missing_package_is_named(table, monkeypatch, module):
    load = importlib.import_module

    def refuse(name):
        if name == module:
            raise ImportError(name)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(InvalidInput, match=f"pip install '.*{module}"):
        getattr(readers.scan(table), f"to_{module}")()


# --------------------------------------------------------------------------------------- requests


def test_requests_follow_the_question(table):
    counting = CountingStore(table.store)
    warm = Table.open(counting.uri, store=counting)
    warm.refresh()
    with counting.measure() as counts:
        assert readers.scan(warm, where="at < '1970-01-02'").to_table().num_rows == 20
    assert (counts.get, counts.list) == (1 + 2, 0)  # is there news; two segments
    with counting.measure() as counts:
        assert readers.count(warm) == 90
    assert counts.get == 1


@pytest.mark.parametrize("whole_bytes", [0, 2**20])
def test_reads_on_s3_are_few_and_checked(bucket, s3, monkeypatch, whole_bytes):
    monkeypatch.setattr(limits, "WHOLE_BYTES", whole_bytes)
    properties = {"inline_bytes": "0"}
    found = Table.create(f"s3://{bucket}/t", SCHEMA, time_column="at", properties=properties)
    append(found, events(60, days=6))
    with s3.measure() as requests:
        assert readers.scan(found).to_table().num_rows == 60
    each = 1 if whole_bytes else 2  # the tail, and what is read
    assert (requests.get, requests.head, requests.list) == (1 + 6 * each, 0, 0)
    assert readers.count(found, "value > 10") == 39
    key = object_keys(found.store)[0]
    body = found.store.get(key)
    for damage in (body[:-1], body + b"PAR1", b"x" + body, b""):
        found.store.delete([key])
        assert found.store.put_if_absent(key, damage)
        with pytest.raises(DataLoss):
            readers.scan(found).to_table()
    found.store.delete([key])
    with pytest.raises(DataLoss, match="missing"):
        readers.scan(found).to_table()


# ----------------------------------------------------------------------------------------- damage


@pytest.fixture(params=[0, 2**20])
def whole_bytes(request, monkeypatch):
    """Take every segment for a large one, then for a small one."""
    monkeypatch.setattr(limits, "WHOLE_BYTES", request.param)


@pytest.mark.hazard("R1", "W6")
@pytest.mark.parametrize(
    "consume", [lambda s: s.to_table(), lambda s: s.reading.count(s.plan.segments())]
)
@pytest.mark.parametrize("damage", ["missing", "longer", "doubled", "shorter", "footer", "empty"])
@pytest.mark.usefixtures("whole_bytes")
def test_damage_is_data_loss_and_named(table, store, damage, consume):
    key = object_keys(store)[3]
    body = store.get(key)
    damaged = {
        "longer": body + b"PAR1",
        "doubled": body + body[-8 - int.from_bytes(body[-8:-4], "little") :],
        "shorter": body[:-5], "empty": b"",
        "footer": body[:-300] + bytes(200) + body[-100:],
    }.get(damage)  # fmt: skip
    if damaged is None:
        store.delete([key])
    else:
        replace_object(store, key, damaged)
    with pytest.raises(DataLoss) as caught:
        consume(readers.scan(table))
    assert (caught.value.key, caught.value.version, caught.value.table) == (key, 2, store.uri)


@pytest.mark.hazard("W6")
def test_every_flipped_bit_of_a_small_segment_is_found(table, store):
    key = object_keys(store)[0]
    body = store.get(key)
    for at in range(0, len(body), 37):
        replace_object(store, key, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        with pytest.raises(DataLoss, match="not those that were committed"):
            readers.scan(table).to_table()


def test_other_rows_than_the_log_says_are_data_loss(table):
    commit(table, staged(table, parquet(events(3)), rows=4))
    with pytest.raises(DataLoss, match="has 3 rows, not 4"):
        readers.scan(table).to_table()


def test_an_object_that_is_no_parquet_is_data_loss(table):
    commit(table, staged(table, b"not parquet at all", rows=4))
    with pytest.raises(DataLoss, match="does not decode"):
        readers.scan(table).to_table()


def test_a_segment_without_a_required_column_is_data_loss(store):
    strict = pa.schema([SCHEMA.field("at").with_nullable(False), *list(SCHEMA)[1:]])
    found = create(store, schema=strict)
    commit(found, staged(found, parquet(events(3).select(["name"])), rows=3))
    with pytest.raises(DataLoss, match="lacks column 'at'"):
        readers.scan(found).to_table()


def test_a_predicate_that_overflows_is_the_callers_error(table):
    with pytest.raises(InvalidInput, match="predicate fails on the rows"):
        readers.scan(table, where="length(name) * 9223372036854775807 > 3").to_table()


# ----------------------------------------------------------------------------- temporary failures


class Flaky:
    """A store whose first `failures` reads of each segment fail, or give other bytes."""

    def __init__(self, inner, failures, error=None):
        self.inner, self.failures, self.error = inner, failures, error
        self.reads = Counter()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def get(self, key, *, start=0, length=None):
        body = self.inner.get(key, start=start, length=length)
        if not key.startswith("data/"):
            return body
        self.reads[key] += 1
        if self.reads[key] > self.failures:
            return body
        if self.error:
            raise self.error
        return bytes([body[0] ^ 1]) + body[1:]


@pytest.mark.parametrize("error", [None, Unavailable("busy")], ids=["damaged", "unavailable"])
@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.usefixtures("whole_bytes")
def test_temporary_failures_neither_lose_nor_double_rows(store, table, error, failures):
    flaky = Flaky(store, failures, error)
    found = readers.scan(reopen(flaky))
    assert as_rows(found.to_table()) == as_rows(everything())
    again = readers.scan(reopen(Flaky(store, failures, error)), where="value > 10")
    assert again.count() == sum(row["value"] > 10 for row in everything().to_pylist())
    assert min(flaky.reads[key] for key in object_keys(store)) > failures


@pytest.mark.usefixtures("whole_bytes")
def test_a_store_that_does_not_answer_is_unavailable(store, table):
    with pytest.raises(Unavailable, match="busy"):
        readers.scan(reopen(Flaky(store, 1000, Unavailable("busy")))).to_table()
    with pytest.raises(DataLoss, match="not those that were committed"):
        readers.scan(reopen(Flaky(store, 1000))).to_table()


def large(count):
    """Rows of one day in several row groups."""
    return events(count).sort_by("at")


def test_large_segments_are_read_in_pieces(table, monkeypatch):
    monkeypatch.setattr(fragments, "_PIECE_BYTES", 20_000)
    commit(table, staged(table, parquet(large(20_000), row_group_size=500), rows=20_000))
    found = readers.scan(table, where="value >= 0.5", version=3).to_table()
    assert found.num_rows == 20_000 + 90 - 2
    named = found.filter(pc.field("value") >= 1000).column("name").to_pylist()
    assert named == [f"row {n}" for n in range(2000, 20_000)]


def test_a_row_group_too_large_to_hold_is_decoded_bit_by_bit(store, table, monkeypatch):
    monkeypatch.setattr(fragments, "_PIECE_BYTES", 1000)
    body = parquet(large(30_000), compression=None, use_dictionary=False)
    commit(table, staged(table, body, rows=30_000))
    batches = list(readers.scan(reopen(store), ["name"], "value >= 65").to_batches())
    assert max(batch.nbytes for batch in batches) < 4000
    found = pa.Table.from_batches(batches)
    assert found.column("name").to_pylist() == [f"row {n}" for n in range(130, 30_000)]


def test_closing_a_stream_early_stops_reading(table):
    with own_threads.none_left():
        reader = readers.scan(table, batch_rows=1).to_batches()
        next(reader)
        reader.close()
