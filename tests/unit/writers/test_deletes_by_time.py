"""Deletes in small time chunks that are ordered by the event time, which every delete then has."""

import datetime as dt

import pyarrow as pa
import pytest

from eventlog import Table
from eventlog.compaction import run
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import FaultyStore
from eventlog.writers import delete, upsert

# The time of a key never changes here.
pytestmark = pytest.mark.filterwarnings("ignore:a key is unique in its day")

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])


def rows(*given):
    made = [{"id": i, "at": dt.datetime(2024, 1, 1, h, tzinfo=dt.UTC), "v": v} for i, h, v in given]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def table_of(merge):
    table = Table.create(
        "", SCHEMA, time_column="at", granularity="day", key="id", order_by="at", buckets=1,
        store=MemoryStore(), properties={"merge": merge},
    )  # fmt: skip
    upsert(table, rows((1, 5, "a"), (2, 5, "b")))
    return table


def held(table):
    return sorted(row["v"] for row in scan(table).to_table().to_pylist())


@pytest.mark.parametrize("by", ["where", "keys"])
@pytest.mark.parametrize(("merge", "older"), [("last", False), ("partial", False), ("first", True)])
def test_a_delete_has_the_place_of_its_time_where_deletes_are_ordered(merge, older, by):
    table = table_of(merge)
    if by == "where":
        delete(table, where="v = 'a'")
    else:
        delete(table, keys=rows((1, 5, "")).select(["id", "at"]))
    assert held(table) == ["b"]
    upsert(table, rows((1, 4, "older")))  # committed later
    wanted = ["b", "older"] if older else ["b"]
    assert held(table) == wanted
    run(table)
    assert held(table) == wanted
    upsert(table, rows((2, 6, "c"), (1, 6, "newer")))
    assert "newer" in held(table) or merge == "first"


@pytest.mark.parametrize(("merge", "left"), [("last", ["b", "newer"]), ("first", ["b"])])
def test_what_is_committed_while_a_predicate_is_looked_up_goes_only_where_it_is_older(merge, left):
    table = table_of(merge)
    gate = FaultyStore(table.store, [])
    late, put = Table.open(table.uri, store=gate), gate.put_if_absent

    def meanwhile(key, body):
        gate.put_if_absent = put
        upsert(table, rows((1, 4, "older"), (1, 6, "newer")))
        return put(key, body)

    gate.put_if_absent = meanwhile
    delete(late, where="v = 'a'")
    assert table.refresh().version == 3
    assert held(table) == left
