"""Scan plans: what is read, what is left out and why, what metadata alone can tell."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import calls_of
from support.planned_states import Planned, leaf_of, leaves_of

from eventlog.errors import InvalidInput
from eventlog.format.frames import entry_columns
from eventlog.model import stats
from eventlog.model.chunks import DAY_MS, TimeChunk, chunk_of
from eventlog.model.entries import ColumnStats, Segment
from eventlog.model.schema import from_arrow
from eventlog.query.pruning import encoded_times
from eventlog.state import scan

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
    ]
)
STORED = from_arrow(SCHEMA)
START_MS = 1_356_998_400_000  # 2013-01-01


def segment(number, day=0, stats=(), rows=10, version=1):
    chunk = chunk_of(START_MS + day * DAY_MS, "day").name
    return Segment(
        f"{number:032x}", chunk, 0, version, number, rows, 100, "0" * 64, 1, tuple(stats)
    )


def state_of(listed=(), schema=STORED):
    return Planned(leaves_of(listed), schema)


def ids(low, high, nulls=0):
    return ColumnStats(2, low, high, nulls)


def names(low, high, nulls=0):
    return ColumnStats(3, low, high, nulls)


def read(snapshot, where):
    return [int(s.id, 16) for s in snapshot.plan(where=where).segments()]


def test_without_a_question_everything_is_read():
    plan = state_of([segment(1), segment(2, day=3)]).plan()
    assert plan.version == 7
    assert plan.schema == SCHEMA
    assert plan.filter is None
    assert plan.count() == 20
    assert plan.pruning == scan.Pruning(2, 0, 0, 0, 2)


def test_an_empty_table_has_no_rows():
    plan = state_of().plan(where="id = 1 AND price > 3")
    assert plan.count() == 0
    assert plan.segments() == []
    assert plan.pruning == scan.Pruning(0, 0, 0, 0, 0)


def test_columns_keep_the_order_asked_for():
    assert state_of().plan(["name", "ts"]).schema.names == ["name", "ts"]
    assert state_of().plan([]).schema.names == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id", "nothing"], "unknown columns: 'nothing'; columns: ts, id, name, price"),
        (["ID"], "unknown columns: 'ID'"),
        (["id", "id"], "named twice"),
        ("id", "list of names"),
    ],
)
def test_wrong_columns_are_refused(columns, message):
    with pytest.raises(InvalidInput, match=message):
        state_of().plan(columns)


def test_a_time_range_reads_only_its_leaves():
    snapshot = state_of([segment(day, day=day) for day in range(30)])
    plan = snapshot.plan(where="ts >= '2013-01-07' AND ts < '2013-01-09'")
    assert [s.chunk for s in plan.segments()] == ["2013-01-07", "2013-01-08"]
    assert snapshot.leaves_read == 2
    assert plan.pruning == scan.Pruning(30, 28, 0, 0, 2)
    assert plan.filter is not None
    assert plan.count() is None  # no null count of ts is known


def test_an_arrow_expression_on_time_reads_only_its_leaves():
    snapshot = state_of([segment(day, day=day) for day in range(30)])
    noon = pa.scalar((START_MS + DAY_MS // 2) * 1000, pa.int64()).cast(SCHEMA.field("ts").type)
    assert [s.chunk for s in snapshot.plan(where=pc.field("ts") < noon).segments()] == [
        "2013-01-01"
    ]
    assert snapshot.leaves_read == 1


def test_where_the_filter_is_known_to_pass_metadata_counts():
    def ts(day):
        low = (START_MS + day * DAY_MS) * 1000
        return ColumnStats(1, low, low + 5, 0)

    snapshot = state_of(segment(day, day, [ts(day), ids(day, day)], rows=day) for day in range(9))
    plan = snapshot.plan(where="ts >= '2013-01-03' AND ts < '2013-01-05'")
    assert (plan.count(), plan.filter) == (2 + 3, None)
    assert snapshot.plan(where="id > 5 OR id = 0").count() == 6 + 7 + 8
    assert snapshot.plan(where="id IS NOT NULL").count() == sum(range(9))
    assert snapshot.plan(where="ts >= '2013-01-03 12:00'").count() is not None
    assert snapshot.plan(where="ts >= '2013-01-03 00:00:00.000003'").count() is None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 15", [1, 3]),
        ("id <> 5", [1, 2, 3]),
        ("NOT id = 5", [1, 2, 3]),
        ("id <> 30", [1, 3]),
        ("id < 10", [3]),
        ("id > 20", [2, 3]),
        ("id IS NULL", [3]),
        ("id IS NOT NULL", [1, 2, 3]),
        ("id IN (5, 6, 25)", [3]),
        ("id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 30)", [2, 3]),
        ("id NOT IN (30, 31)", [1, 3]),
        ("id = 15 AND id = 30", [3]),
        ("id = 5 OR id = 30", [2, 3]),
        ("id + 1 = 0", [1, 2, 3, 4]),
        ("FALSE", []),
        ("NULL", []),
        ("TRUE", [1, 2, 3, 4]),
    ],
)
def test_statistics_prune(where, expected):
    """Segment 3 has no bounds but may have nulls; 4 holds nothing but nulls."""
    snapshot = state_of(
        [
            segment(1, 0, [ids(10, 20)]),
            segment(2, 0, [ids(30, 30)]),
            segment(3, 0, [ids(None, None, nulls=2)]),
            segment(4, 0, [ids(None, None, nulls=10)]),
        ]
    )
    expected = [*expected, 4] if where == "id IS NULL" else expected
    assert read(snapshot, where) == expected


def test_statistics_that_are_missing_prune_nothing():
    snapshot = state_of([segment(1, 0), segment(2, 0, [ids(10, 20)])])
    assert read(snapshot, "id <> 15") == [1, 2]
    assert read(snapshot, "id = 3") == [1]
    assert read(snapshot, pc.field("id") == 3) == [1]
    assert read(snapshot, "id IS NULL") == [1]
    assert read(snapshot, "price > 3") == [1, 2]


def test_bounds_of_the_wrong_kind_prune_nothing():
    snapshot = state_of([segment(1, 0, [names(3, 5)]), segment(2, 1, [ids("a", "b")])])
    assert read(snapshot, "name = 'x'") == [1, 2]
    assert read(snapshot, "id = 7") == [1, 2]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [-2.5, -1.5, -0.0, 0.5]),
        (pa.float32(), [-2.5, -1.5, 0.0, 0.5]),
        (pa.decimal128(20, 3), [Decimal("-5.125"), Decimal("-0.001"), Decimal(0), Decimal(7)]),
        (pa.date32(), [date(1969, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2013, 1, 7)]),
        (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2013, 1, 7)]),
        (pa.int8(), [-128, -1, 0, 127]),
        (pa.bool_(), [False, True]),
        (pa.string(), ["", "a", "b" * 32, "\ud7ff", "\ue000"]),
    ],
)
def test_arrow_expressions_find_exactly_the_segment_of_a_value(kind, values):
    stored = from_arrow(pa.schema([SCHEMA.field("ts"), ("v", kind)]))
    scalars = [pa.scalar(value, kind) for value in values]
    columns = [c for c in stored.columns if c.name == "v"]
    listed = [
        segment(at, 0, stats.compute(pa.table({"v": pa.repeat(scalar, 10)}), columns))
        for at, scalar in enumerate(scalars)
    ]
    snapshot = state_of(listed, stored)
    for at, scalar in enumerate(scalars):
        assert read(snapshot, pc.field("v") == scalar) == [at]
        assert read(snapshot, pc.field("v") < scalar) == [*range(at)]
        assert read(snapshot, ~(pc.field("v") <= scalar)) == [*range(at + 1, len(scalars))]


def test_text_prefixes_prune():
    snapshot = state_of(
        [
            segment(1, 0, [names("a", "az")]),
            segment(2, 0, [names("b" * 32, "b" * 31 + "c")]),
            segment(3, 0, [names("\ud7ff", "\ue000")]),
        ]
    )
    assert read(snapshot, "name LIKE 'a%'") == [1]
    assert read(snapshot, "name NOT LIKE 'a%'") == [2, 3]
    assert read(snapshot, "name LIKE '" + "b" * 40 + "%'") == [2]
    assert read(snapshot, "name LIKE '\ud7ff%'") == [3]
    assert read(snapshot, "name LIKE 'b_x'") == [2]
    assert read(snapshot, "name >= 'b' AND name < 'c'") == [2]


def test_leaves_are_left_out_by_their_own_statistics():
    snapshot = state_of([segment(day, day, [ids(day, day)]) for day in range(30)])
    plan = snapshot.plan(where="id >= 28")
    assert snapshot.leaves_read == 2
    assert plan.pruning == scan.Pruning(30, 0, 28, 0, 2)


def test_chunks_restrict():
    snapshot = state_of([segment(day, day) for day in range(40)])
    asked = ["2013-01-03", TimeChunk(START_MS, START_MS + DAY_MS), "2013-02"]
    found = snapshot.plan(chunks=asked)
    assert [int(s.id, 16) for s in found.segments()] == [0, 2, *range(31, 40)]
    assert snapshot.leaves_read == 11
    assert found.count() == 110
    assert snapshot.plan(chunks="2013-01-07").count() == 10
    assert snapshot.plan(chunks=[]).count() == 0
    with pytest.raises(InvalidInput, match="not a time chunk"):
        snapshot.plan(chunks=["2013-01-32"])


def test_scan_order_is_time_then_commit():
    listed = [
        segment(1, day=1, version=2), segment(2, day=0, version=3), segment(3, day=0, version=2),
        segment(9, day=0, version=2),
    ]  # fmt: skip
    plan = state_of(listed).plan()
    assert [int(s.id, 16) for s in plan.in_scan_order()] == [3, 9, 2, 1]
    assert [int(s.id, 16) for s in plan.segments()] == [2, 3, 9, 1]


@given(st.integers(-800_000, 2_900_000), st.integers(0, DAY_MS - 1))
def test_days_of_a_date_table_are_bounded_by_their_chunk(day, offset):
    ms = min(max(day * DAY_MS + offset, -62_135_596_800_000), 253_402_300_799_999)
    column = from_arrow(pa.schema([("day", pa.date32())])).columns[0]
    midnight_us = ms // DAY_MS * DAY_MS * 1000
    assert encoded_times(pa.chunked_array([[ms]]), column).to_pylist() == [midnight_us]


@pytest.fixture(scope="module")
def million():
    """365 days of 2,740 segments, one leaf a day; the days differ by their times only."""
    low = START_MS * 1000
    listed = [
        segment(n, 0, [ColumnStats(1, low, low + 9, 0), ids(n, n + 50), names("a", "b", 1)])
        for n in range(2740)
    ]
    first, leaves = entry_columns.from_segments(listed), []
    for day in range(365):
        entries = first
        for name in ("chunk_start", "chunk_end", "min_1", "max_1"):
            by = day * DAY_MS * (1000 if name.endswith("_1") else 1)
            at = entries.column_names.index(name)
            entries = entries.set_column(at, name, pc.add(entries.column(name), by))
        if day == 6:  # the one that is read has its own hashes
            entries = entry_columns.from_segments(entry_columns.to_segments(entries))
        leaves.append(leaf_of(entries))
    return Planned(leaves, STORED)


_TS = SCHEMA.field("ts").type
_DAY_7, _DAY_8 = (
    pa.scalar((START_MS + day * DAY_MS) * 1000, pa.int64()).cast(_TS) for day in (6, 7)
)


@pytest.mark.verify
@pytest.mark.parametrize(
    "where",
    [
        "ts >= '2013-01-07' AND ts < '2013-01-08' AND id > 2000",
        (pc.field("ts") >= _DAY_7) & (pc.field("ts") < _DAY_8) & (pc.field("id") > 2000),
    ],
    ids=["sql", "arrow"],
)
def test_planning_one_day_of_a_million_segments_takes_few_steps(million, where):
    million.plan(where=where)  # imports
    cost = calls_of(lambda: million.plan(where=where))
    plan = million.plan(where=where)
    assert million.leaves_read == 1
    assert plan.pruning == scan.Pruning(1_000_100, 997_360, 0, 1951, 789)
    assert cost < 300_000  # most of it reads the expression; there is no call for each segment
