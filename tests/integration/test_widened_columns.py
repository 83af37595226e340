"""Columns with wider types: older bounds, keys, orders and time columns hold in the new type."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from support.builders import create

from eventlog import compaction, errors
from eventlog.fsck.check import fsck
from eventlog.log.snapshot import plan_scan
from eventlog.model.columns import defaults
from eventlog.model.entries import Column
from eventlog.readers import count, scan
from eventlog.writers import append, delete, overwrite, update, upsert

NTZ = pa.timestamp("us")
NOON = dt.datetime(2013, 1, 7, 12)
DAYS = pa.schema(
    [pa.field("day", pa.date32(), nullable=False), ("n", pa.int64()), ("d", pa.date32())]
)
WIDER = [
    (pa.int8(), pa.int64(), 5, 2**40),
    (pa.int16(), pa.int32(), -5, 2**20),
    (pa.decimal128(5, 2), pa.decimal128(30, 2), Decimal("-1.25"), Decimal(10**20)),
    (pa.date32(), NTZ, dt.date(2013, 1, 7), NOON),
]


def days(*numbers):
    """Rows of days of January 2013."""
    dates = [dt.date(2013, 1, n) for n in numbers]
    return pa.table([dates, [*numbers], dates], schema=DAYS)


def widened(**options):
    """A table of two segments of dates, and one of times."""
    table = create(schema=DAYS, time_column="day", **options)
    append(table, days(7, 8))
    append(table, days(20))
    table.widen_column("d", NTZ)
    table.widen_column("day", NTZ)
    late = pa.table([[NOON], [70], [NOON]], schema=table.session.head().schema)
    append(table, late)
    return table


NUMBERS = [
    ("d = '2013-01-07'", {7}),
    ("d = '2013-01-07T12:00:00'", {70}),
    ("d > '2013-01-07'", {8, 20, 70}),
    ("d >= '2013-01-07T12:00:00.000001'", {8, 20}),
    ("d < '2013-01-08'", {7, 70}),
    ("d <> '2013-01-20'", {7, 8, 70}),
    ("d in ('2013-01-08', '2013-01-20', '2013-02-01')", {8, 20}),
    ("not (d > '2013-01-08')", {7, 8, 70}),
    ("cast(d as date) = '2013-01-07'", {7, 70}),
    ("day < '2013-01-07T00:00:00.000001'", {7}),
    ("day >= '2013-01-07T12:00:00' and day < '2013-01-09'", {8, 70}),
]


@pytest.mark.parametrize("granularity", ["day", "month", "all"])
def test_bounds_of_dates_are_those_of_times(granularity):
    table = widened(granularity=granularity)
    for where, numbers in NUMBERS:
        found = scan(table, where=where).to_table()
        assert {*found.column("n").to_pylist()} == numbers, where
        assert count(table, where) == len(numbers), where
    assert found.schema.field("d").type == found.schema.field("day").type == NTZ
    table.write_keyframe()
    assert count(table, "d = '2013-01-20'") == 1
    assert fsck(table, checksums=True).findings == ()
    compaction.run(table, policy=compaction.Policy(target_bytes=2**20))
    assert {where: count(table, where) for where, _ in NUMBERS} == {
        where: len(numbers) for where, numbers in NUMBERS
    }
    assert fsck(table, checksums=True).findings == ()
    assert scan(table, version=2).to_table().schema == DAYS


def test_segments_of_dates_are_pruned_and_dropped_by_their_bounds():
    table = widened(granularity="all")
    planned = lambda where: len(plan_scan(table.session.head(), where=where).segments())
    assert planned("d = '2013-01-20'") == 1
    assert planned("d > '2013-01-08T00:00:00.000001'") == 1
    assert planned("d > '2013-01-21'") == 0
    change = delete(table, where="d >= '2013-01-09' and d <= '2013-01-20'")
    assert (change.dropped, change.changed) == (1, 0)  # the bounds decide
    change = delete(table, where="d >= '2013-01-07T12:00:00'")
    assert change.deleted == 2
    update(table, {"d": "'2013-03-01T01:00:00'"}, "n = 7")
    assert scan(table, ["d"]).to_table().to_pylist() == [{"d": dt.datetime(2013, 3, 1, 1)}]


def test_an_overwrite_of_days_replaces_dates_and_times():
    table = widened(granularity="day")
    overwrite(table, days(7), start="2013-01-07", end="2013-01-08")
    assert sorted(scan(table, ["n"]).to_table().column("n").to_pylist()) == [7, 8, 20]


def test_dates_are_appended_to_a_column_of_times():
    table = widened(granularity="day")
    append(table, days(9))
    assert count(table, "d = '2013-01-09'") == 1


def test_a_writer_that_evolves_the_table_widens_its_dates():
    table = create(schema=DAYS, time_column="day", granularity="day")
    append(table, days(7))
    times = pa.table([days(7).column("day"), [1], [NOON]], ["day", "n", "d"])
    append(
        table, times.cast(pa.schema([DAYS.field("day"), DAYS.field("n"), ("d", NTZ)])), evolve=True
    )
    assert table.session.head().schema.field("d").type == NTZ


def test_a_default_of_a_date_is_its_midnight_after_a_widening():
    table = widened(granularity="day")
    table.add_columns([pa.field("e", pa.date32())], {"e": dt.date(1969, 12, 30)})
    assert scan(table, ["e"], where="n = 7").to_table()["e"][0].as_py() == dt.date(1969, 12, 30)
    table.widen_column("e", NTZ)
    midnight = dt.datetime(1969, 12, 30)
    assert {*scan(table, ["e"]).to_table()["e"].to_pylist()} == {midnight}
    assert defaults.default_problem("date", 1)
    column = Column(1, "e", "date")
    assert defaults.encode_default(column, dt.date(1969, 12, 31)) == -86_400_000_000


@pytest.mark.parametrize(("narrow", "wide", "first", "second"), WIDER)
@pytest.mark.parametrize("role", ["order", "value"])
def test_keyed_tables_order_and_prune_by_widened_columns(role, narrow, wide, first, second):
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("k", pa.int8()), ("x", narrow), ("v", pa.string())]
    )
    order = {"order_by": "x"} if role == "order" else {}
    table = create(schema=schema, key="k", granularity="all", buckets=4, **order)
    rows = lambda x, v: pa.table(
        [[0] * 9, range(9), [x] * 9, [v] * 9], schema=table.session.head().schema
    )
    upsert(table, rows(first, "old"))
    table.widen_column("x", wide)
    upsert(table, rows(second, "new"))
    upsert(table, pa.table([[0] * 9, range(9), [first] * 9, ["late"] * 9], schema=schema))
    right = "new" if role == "order" else "late"
    check = lambda: {*scan(table, ["v"]).to_table()["v"].to_pylist()} == {right}
    assert check()
    compaction.run(table, policy=compaction.Policy(target_bytes=2**20))
    assert check()
    assert fsck(table, keys=True, checksums=True).findings == ()


@pytest.mark.parametrize(("narrow", "wide", "first", "second"), WIDER[:3])
def test_keys_of_wider_numbers_stay_in_their_buckets(narrow, wide, first, second):
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", narrow), ("v", pa.string())])
    table = create(schema=schema, key="k", granularity="all", buckets=16)
    keys = [first + n for n in range(20)]
    upsert(table, pa.table([[0] * 20, keys, ["old"] * 20], schema=schema))
    table.widen_column("k", wide)
    upsert(
        table,
        pa.table([[0] * 21, [*keys, second], ["new"] * 21], schema=table.session.head().schema),
    )
    for _ in range(2):
        assert scan(table).to_table()["v"].to_pylist() == ["new"] * 21
        assert count(table, f"k = {first}") == 1
        compaction.run(table, policy=compaction.Policy(target_bytes=2**20))
    table.set_buckets(32)
    assert scan(table).count() == 21
    assert fsck(table, keys=True, checksums=True).findings == ()


def test_a_date_in_the_key_stays_a_date():
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.date32()), ("v", pa.date32())])
    table = create(schema=schema, key="k", granularity="all", buckets=16)
    with pytest.raises(errors.InvalidInput, match="'k' must stay a date: it is in the key"):
        table.widen_column("k", NTZ)
    table.widen_column("v", NTZ)
    assert table.session.head().schema.field("v").type == NTZ
