"""Scans of slices with logs: which rows of bases are shown, and what is read to know."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run
from eventlog.readers import count, scan
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import delete, upsert

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ALL = Policy(min_gain=0.0)
ORDERS = {
    "seq": lambda number: number,
    "at": lambda number: NOON + timedelta(minutes=number),
    "day": lambda number: (NOON + timedelta(days=number)).date(),
    "text": lambda number: "a text that is longer than a bound of statistics " + str(number),
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("seq", pa.int32()),
        ("day", pa.date32()),
        ("text", pa.string()),
        ("v", pa.int64()),
        ("w", pa.string()),
    ]
)


def table_of(store, order, **options):
    named = {"key": "id", "order_by": order, "buckets": 2, "granularity": "all"} | options
    clock = ManualClock(1_700_000_000_000, 1)
    return Table.create("memory://t", SCHEMA, time_column=None, store=store, clock=clock, **named)


def row(key, place, v, op="u"):
    """A row whose place among those of its key is a number, in all columns that may order it."""
    places = {name: of(place) for name, of in ORDERS.items()}
    return {"id": key, **places, "v": v, "w": f"w{v}", "_op": op}


def arrow(*rows):
    return pa.Table.from_pylist(list(rows), schema=SCHEMA.append(pa.field("_op", pa.string())))


def shown(table, columns=("id", "v")):
    return sorted(tuple(r.values()) for r in scan(table, columns).to_table().to_pylist())


def compacted(table):
    assert all(outcome.ok for outcome in run(table, policy=ALL).outcomes)
    return table


def many(number, orders=None):
    """Rows of ids from 0 on, with values that are not to be compressed."""
    chance = random.Random(1)
    values = [chance.randrange(2**40) for _ in range(number)]
    orders = [5] * number if orders is None else orders
    columns = {
        "id": pa.array(range(number), pa.int64()),
        "at": pa.repeat(pa.scalar(NOON, SCHEMA.field("at").type), number),
        "seq": pa.array(orders, pa.int32()),
        "day": pa.nulls(number, pa.date32()),
        "text": pa.nulls(number, pa.string()),
        "v": pa.array(values, pa.int64()),
        "w": pa.array(map(str, values), pa.string()),
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.parametrize("order", [*ORDERS, None])
def test_a_row_of_a_base_stays_where_it_is_newer_than_those_above(order):
    table = table_of(MemoryStore(), order)
    upsert(table, arrow(*[row(key, 5, key) for key in range(8)]))
    compacted(table)
    upsert(table, arrow(row(0, 4, 10), row(1, 5, 11), row(2, 6, 12), row(3, 4, None, "d")))
    by_commit = order is None
    wanted = {key: key for key in range(8)} | {1: 11, 2: 12}
    if by_commit:
        wanted[0] = 10
        del wanted[3]
    assert shown(table) == sorted(wanted.items())
    # From here on all rows above the bases are newer, in the order of the table.
    compacted(table)
    upsert(table, arrow(row(4, 6, 14), row(5, 7, None, "d"), row(9, 6, 19)))
    del wanted[5]
    wanted |= {4: 14, 9: 19}
    assert shown(table) == sorted(wanted.items())
    assert shown(table, ["v"]) == sorted((v,) for v in wanted.values())
    assert count(table) == len(wanted)


def test_a_delete_without_an_order_hides_newer_rows_of_a_base():
    table = table_of(MemoryStore(), "seq")
    upsert(table, arrow(row(1, 5, 1), row(2, 5, 2)))
    compacted(table)
    delete(table, keys=[{"id": 1}])
    assert shown(table) == [(2, 2)]
    upsert(table, arrow(row(1, 3, 11)))
    assert shown(table) == [(1, 11), (2, 2)]


def test_the_order_of_the_rows_of_bases_is_not_read_where_all_rows_above_are_newer():
    store = CountingStore(MemoryStore())
    table = table_of(store, "seq", buckets=1)
    chance, number = random.Random(2), 120_000
    orders = [chance.randrange(2**30) for _ in range(number)]
    upsert(table, many(number, orders))
    compacted(table)
    sizes = []
    for place in (max(orders), max(orders) - 1):
        upsert(table, arrow(*[{**row(key, 0, -key), "seq": place} for key in range(1, 4)]))
        with store.measure() as counts:
            found = scan(table, ["v"]).to_table().column("v").to_pylist()
        assert len(found) == number
        assert {-1, -2, -3} <= {*found}
        sizes.append(counts.bytes_read)
    assert sizes[0] < sizes[1] - number * 2  # of 30 bits each


def test_a_look_up_of_a_key_reads_a_small_part_of_its_bucket():
    store = CountingStore(MemoryStore())
    table = table_of(store, "seq", buckets=2)
    upsert(table, many(250_000))
    compacted(table)
    bucket = min(segment.bytes for segment in table.snapshot().segments())
    assert bucket > 3 * 2**19
    table.refresh()
    with store.measure() as counts:
        (found,) = scan(table, where="id = 123456").to_table().to_pylist()
    assert (found["id"], found["w"]) == (123456, str(found["v"]))
    assert counts.bytes_read < bucket / 3
    assert counts.get <= 3  # of the log, the end of the object, and a row group


def test_a_look_up_of_a_table_just_opened_takes_three_requests_before_its_bucket(monkeypatch):
    monkeypatch.setattr("eventlog.state.keyframe.INLINE_SEGMENTS", 8)
    store = MemoryStore()
    table = table_of(store, "seq", properties={"keyframe_commits": "1"})
    for place in range(9):
        upsert(table, arrow(*[row(key, place, place) for key in range(place, 124)]))
    assert table.snapshot().base.leaves
    compacted(table)
    counting = CountingStore(store)
    with counting.measure() as counts:
        (found,) = scan(Table(counting), where="id = 123").to_table().to_pylist()
    assert (found["id"], found["v"]) == (123, 8)
    assert (counts.list, counts.get) == (1, 3)  # the newest commit and its root; the bucket


def test_a_second_scan_reads_no_keys_and_returns_the_same_rows_in_the_same_order():
    store = CountingStore(MemoryStore())
    table, number = table_of(store, "seq", buckets=2), 160_000
    rows = many(number + 5000)
    upsert(table, rows.slice(0, number))
    compacted(table)
    expected = dict(enumerate(rows.column("v").slice(0, number).to_pylist()))
    chance = random.Random(3)
    for place in (6, 7):  # more rows than are merged at once
        ids = sorted(chance.sample(range(number + 5000), 70_000))
        values = pc.multiply(pa.array(ids, pa.int64()), -place)
        later = rows.take(ids).set_column(5, "v", values)
        upsert(table, later.set_column(2, "seq", pa.array([place] * len(ids), pa.int32())))
        expected |= dict(zip(ids, values.to_pylist(), strict=True))
    gone = chance.sample(range(number), 500)
    upsert(table, arrow(*[row(key, 8, None, "d") for key in gone]))
    for key in gone:
        del expected[key]
    query, found, sizes = scan(table, ["v", "seq"]), [], []
    for _ in range(2):
        with store.measure() as counts:
            found.append(query.to_table())
        sizes.append(counts.bytes_read)
    assert found[0].equals(found[1])
    assert sorted(found[0].column("v").to_pylist()) == sorted(expected.values())
    assert sizes[1] < sizes[0] - number // 4  # of two bits or more a key
    positive = scan(table, ["id"], where="v > 7 AND day IS NULL").to_table().column("id")
    assert {*positive.to_pylist()} == {key for key, value in expected.items() if value > 7}


@pytest.mark.parametrize("key", [["id"], ["id", "w"]])
def test_scans_of_some_columns_agree_with_a_dictionary_before_and_after_others(key):
    chance, table = random.Random(str(key)), table_of(MemoryStore(), None, key=key, buckets=4)
    expected = {}
    for step in range(12):
        rows = [row(chance.randrange(30), 0, chance.randrange(3)) for _ in range(8)]
        rows += [row(chance.randrange(30), 0, chance.randrange(3), "d") for _ in range(2)]
        rows = list({tuple(one[name] for name in key): one for one in rows}.values())
        upsert(table, arrow(*rows))
        for one in rows:
            name = tuple(one[column] for column in key)
            expected.pop(name, None)
            if one["_op"] == "u":
                expected[name] = one
        if step % 4 == 2:
            compacted(table)
        for columns in chance.sample([["v"], ["id"], ["w", "v"], ["day"], []], 4):
            found = scan(table, columns).to_table()
            assert found.num_rows == len(expected)
            wanted = [tuple(one[name] for name in columns) for one in expected.values()]
            shown_rows = [tuple(one.values()) for one in found.to_pylist()] or [()] * len(found)
            assert sorted(shown_rows) == sorted(wanted)


@pytest.mark.parametrize("first", [1, 2])
def test_tables_of_equal_segments_with_other_ids_know_their_own_rows(first):
    """A base and a log may have the same bytes, and so may segments of two tables."""
    found = []
    for seed in (first, first + 10):
        clock = ManualClock(1_700_000_000_000, seed)
        place = {"key": "id", "buckets": 1, "granularity": "all", "store": MemoryStore()}
        table = Table.create("memory://t", SCHEMA, time_column=None, clock=clock, **place)
        rows = [row(key, 0, key) for key in range(5)]
        upsert(table, arrow(*rows).drop_columns(["_op"]))
        if first == 1 or seed > 10:
            compacted(table)
        upsert(table, arrow(row(1, 0, 10), row(7, 0, 7)).drop_columns(["_op"]))
        found += [shown(table), shown(table), shown(table, ["v"])]
    wanted = [(0, 0), (1, 10), (2, 2), (3, 3), (4, 4), (7, 7)]
    assert found == [wanted, wanted, sorted((v,) for _, v in wanted)] * 2
