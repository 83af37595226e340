"""Write the golden tables `deletes`, `grouped` and `summed`: rows at the edges of a merge's rules.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_edges.py

Each key of them has few rows, of which one condition of FORMAT.md 5.5 to 5.7 decides what is seen.
"""

import sys

import pyarrow as pa
from golden import make
from golden.make_keyed import START, merged, store, table_of

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.keyed.rule import OP
from eventlog.model.entries import Slice
from eventlog.writers import delete, upsert

NAMES = ("deletes", "grouped", "summed")
KEY = [("id", pa.int64()), pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False)]
ORDERED = pa.schema([*KEY, ("o", pa.int64()), ("name", pa.string())])
GROUPED = pa.schema([*ORDERED, ("seen", pa.int64()), ("birds", pa.int64())])
SUMMED = pa.schema([*KEY, ("total", pa.int64()), ("least", pa.float64())])


def written(t: Table, schema: pa.Schema, *rows: dict[str, object]) -> None:
    """Upsert rows in one commit."""
    upsert(t, table_of([{"at": START} | row for row in rows], schema))


def make_deletes(clock: ManualClock) -> None:
    """Rule `last` with an order column: deletes with an order value, and without."""
    options = {"key": "id", "buckets": 1, "order_by": "o"}
    t = make.open_at("deletes", ORDERED, clock, **options)
    put = lambda *rows: written(t, ORDERED, *rows)
    gone, row = {OP: "d"}, {OP: "u", "name": "old"}
    put(*(row | {"id": n, "o": 5} for n in range(1, 6)))
    # 1: a barrier takes the tombstone away; 2: without one it hides what is older.
    put(*(gone | {"id": n, "o": 9} for n in (1, 2)), *(gone | {"id": n, "o": 5} for n in (3, 4)))
    delete(t, keys=pa.table({"id": pa.array([1, 5])}))
    # 3: of one order value the later row counts, and so does 4's tombstone.
    put(*({OP: "u", "name": "new", "id": n, "o": o} for n, o in ((1, 3), (2, 3), (3, 5), (5, 1))))
    put({OP: "u", "name": "once", "id": 6, "o": 5}, gone | {"id": 7, "o": 5})
    put(gone | {"id": 6, "o": 5}, {OP: "u", "name": "after", "id": 7, "o": 5})


def make_grouped(clock: ManualClock) -> None:
    """Rule `partial` with a group: a delete is a barrier, though it has an order value."""
    properties = {"merge": "partial", "merge.group.seen": "birds"}
    options = {"key": "id", "buckets": 1, "order_by": "o", "properties": properties}
    t = make.open_at("grouped", GROUPED, clock, **options)
    put = lambda *rows: written(t, GROUPED, *rows)
    old = {OP: "u", "o": 5, "name": "old", "seen": 5, "birds": 5}
    put(*(old | {"id": n} for n in (1, 2, 3)))
    # The writers of the package refuse it.
    deletes = table_of([{OP: "d", "id": n, "at": START, "o": 9} for n in (1, 2)], GROUPED)
    add = store(t, deletes, "all", Slice("log", 0, 0, None, None, 0))
    t.commit(t.transaction("upsert", [add]))
    put({OP: "u", "id": 1, "o": 3, "name": "new", "seen": 1, "birds": 1})


def make_summed(clock: ManualClock) -> None:
    """Rule `aggregate`: zeros of both signs; a log of which one bucket alone was merged."""
    properties = {"merge": "aggregate", "merge.total": "sum", "merge.least": "min"}
    properties["merge.at"] = "max"
    t = make.open_at("summed", SUMMED, clock, key="id", buckets=4, properties=properties)
    put = lambda *rows: written(t, SUMMED, *rows)
    put(*({"id": n, "total": n, "least": (0.0, -0.0)[n % 2]} for n in range(8)))
    put(*({"id": n, "total": n, "least": (-0.0, 0.0)[n % 2]} for n in range(12)))
    merged(t, "all", (0, 1), (1, 1))  # its span is that of the log in the other buckets
    merged(t, "all", (1, 2), (1, 2))
    put({"id": 20, "total": 1, "least": -0.0})


def main() -> int:
    """Write the tables."""
    with make.writing(*NAMES):
        make_deletes(ManualClock(make.START_MS, seed=2024))
        make_grouped(ManualClock(make.START_MS, seed=2025))
        make_summed(ManualClock(make.START_MS, seed=2026))
    return 0


if __name__ == "__main__":
    sys.exit(main())
