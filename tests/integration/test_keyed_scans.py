"""Scans of slices with logs: which rows of bases are shown, and what is read to know."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
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
    chance, number = random.Random(2), 200_000
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
    upsert(table, many(300_000))
    compacted(table)
    bucket = min(segment.bytes for segment in table.snapshot().segments())
    assert bucket > 3 * 2**19
    table.refresh()
    with store.measure() as counts:
        (found,) = scan(table, where="id = 123456").to_table().to_pylist()
    assert (found["id"], found["w"]) == (123456, str(found["v"]))
    assert counts.bytes_read < bucket / 3
    assert counts.get <= 3  # of the log, the end of the object, and a row group
