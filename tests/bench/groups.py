"""1,000 small appends by an appender beside as many calls of append: requests, CPU, versions."""

import time
from datetime import UTC, datetime

from eventlog import Table
from eventlog.clock import SystemClock
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.local_server import LocalServer
from eventlog.writers import append

BUCKET = "bench"
SCHEMA = "at timestamp, page string, user bigint, took double"
ROWS = [
    {"at": datetime(2013, 1, 7, 5, n % 60, tzinfo=UTC), "page": f"/{n}", "user": n, "took": 0.5}
    for n in range(100)
]
ROUNDS = 3
SIZES = {"of 1 row": ROWS[:1], "of 100 rows": ROWS}


def run(bench):
    count = bench.size(1000, 20)
    _requests(bench, count)
    for size, rows in SIZES.items():
        _cpu(bench, size, rows, count)


def _table(store):
    return Table.create(store.uri, SCHEMA, time_column="at", store=store, clock=SystemClock())


def _one_by_one(table, rows, count):
    for _ in range(count):
        append(table, rows)


def _grouped(table, rows, count):
    """Appends as they come without a pause; groups of a tenth of them, as a second has some."""
    with table.appender(max_rows=len(rows) * count // 10, app_id="bench") as out:
        for number in range(count):
            out.append(rows, app_seq=number)


WAYS = {"eventlog": _grouped, "reference": _one_by_one}


def _requests(bench, count):
    found = {}
    with LocalServer() as server:
        server.create_bucket(BUCKET)
        for name, way in WAYS.items():
            store = open_store(f"s3://{BUCKET}/{name}", server.storage_options())
            table = _table(store)
            append(table, ROWS)
            with server.measure() as counts:
                way(table, ROWS[:1], count)
            found[name] = counts.total
    bench.emit(
        f"{count:,} appends of 1 row by an appender, S3",
        found,
        "requests",
        note="ten groups, with sequences; reference: as many calls of append",
    )


def _cpu(bench, size, rows, count):
    found = {}
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            table = _table(MemoryStore())
            append(table, rows)
            started = time.process_time()
            way(table, rows, count)
            found.setdefault(name, []).append(time.process_time() - started)
            assert table.count() == (count + 1) * len(rows)
    bench.emit(
        f"{count:,} appends {size} by an appender, in memory",
        {name: min(seconds) for name, seconds in found.items()},
        "CPU s",
        note=f"least of {ROUNDS}; dicts of four columns; reference: as many calls of append",
    )
