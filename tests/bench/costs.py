"""What docs/cost.md counts: the requests of each operation, beside deltalake and pyiceberg.

    PYTHONPATH=.:tests python -P tests/bench/costs.py    # `make bench-costs`; writes the page

Every request to the S3 server of this process is counted, by the kinds that S3 bills: PUT, POST,
COPY and LIST, and GET and HEAD. DELETE is free. Those of pyiceberg's catalog, which is SQLite here,
are not counted. The dollars of the page follow from these counts (`costing`).
"""

import os
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench.costing import OPERATIONS, PAGE, SYSTEMS, Requests, written
from bench.peers import SMALL, TIME, present

from eventlog import Table
from eventlog.compaction import Policy
from eventlog.compaction import run as compact
from eventlog.readers import scan
from eventlog.store.testing.local_server import LocalServer
from eventlog.writers import upsert

BUCKET = "costs"
START = datetime(2013, 1, 1, tzinfo=UTC)
DAYS = 30
HANDLES = 10
KEYS = 10_000
LARGE = 2_000_000  # rows of four columns: 64 MB


@dataclass
class Place:
    """Where a system is measured, and how often each operation is repeated."""

    server: LocalServer
    name: str  # of the system
    rounds: int

    def __post_init__(self):
        self.options = self.server.storage_options()
        self.count = 0

    def table(self, schema=SMALL):
        """Return a handle to a new table of the system."""
        self.count += 1
        root = f"s3://{BUCKET}/{self.name}-{self.count}"
        system = present(self.name)[self.name](root, self.options)
        system.create(schema)
        return system

    def mean(self, actions):
        """Return the mean requests of actions."""
        actions = list(actions)
        with self.server.measure() as counts:
            for action in actions:
                action()
        writes = (counts.put + counts.post + counts.list) / len(actions)
        return Requests(round(writes, 2), round((counts.get + counts.head) / len(actions), 2))


def rows_of(count, day=0, first=0):
    """Rows of one day, in the order of their times."""
    start = int((START + timedelta(days=day)).timestamp() * 1e6)
    ids = np.arange(first, first + count)
    steps = np.arange(count) * (86_400_000_000 // count)
    times = pa.array(start + steps).cast(SMALL.field(TIME).type)
    values = np.random.default_rng(first).random(count)
    return pa.table([times, ids, values, pa.array(ids).cast(pa.string())], schema=SMALL)


def append(place):
    """Appends of 100 rows by one warm handle, and what they write now and then."""
    table = place.table()
    return place.mean(
        (lambda n=n: table.append(rows_of(100, first=n * 100))) for n in range(place.rounds)
    )


def append_in_turn(place, refresh=lambda system: None):
    """The same by ten handles in turn: each finds the appends of the others."""
    table = place.table()
    handles = [table]
    for _ in range(HANDLES - 1):
        other = type(table)(table.root, place.options)
        other.attach()
        handles.append(other)

    def once(number):
        handle = handles[number % HANDLES]
        refresh(handle)
        handle.append(rows_of(100, first=number * 100))

    return place.mean((lambda n=n: once(n)) for n in range(place.rounds))


def append_after_refresh(place):
    """The same by handles that each look for the newest version first."""
    return append_in_turn(place, REFRESHES[place.name])


def append_large(place):
    """One append of 64 MB."""
    table = place.table()
    rows = rows_of(LARGE)
    return place.mean([lambda: table.append(rows)])


def query(place):
    """The rows of one day of thirty by a new handle; each day is one file."""
    table = place.table()
    for day in range(DAYS):
        table.append(rows_of(1000, day))
    start, end = (START + timedelta(days=n) for n in (11, 12))

    def once():
        assert READERS[place.name](table, start, end) == 1000

    return place.mean([once] * 5)


def upsert_keys(place):
    """Upserts of 100 of 10,000 keys by a warm handle."""
    change = UPSERTS[place.name](place)
    rounds = max(2, place.rounds // 4)
    step = KEYS // rounds
    return place.mean((lambda n=n: change(rows_of(100, first=n * step))) for n in range(rounds))


def compaction(place):
    """The compaction of a day of small files, divided by their number."""
    done = COMPACTIONS.get(place.name)
    if done is None:
        return None
    table = place.table()
    for n in range(place.rounds):
        table.append(rows_of(100, first=n * 100))
    whole = place.mean([lambda: done(table)])
    return Requests(*(round(n / place.rounds, 2) for n in (whole.writes, whole.reads)))


def _read_eventlog(table, start, end):
    where = f"{TIME} >= '{start.isoformat()}' AND {TIME} < '{end.isoformat()}'"
    return scan(table.root, where=where, storage_options=table.options).to_table().num_rows


def _read_delta(table, start, end):
    filters = [(TIME, ">=", start), (TIME, "<", end)]
    return table.open_head().to_pyarrow_table(filters=filters).num_rows


def _read_iceberg(table, start, end):
    text = f"{TIME} >= '{start.isoformat()}' and {TIME} < '{end.isoformat()}'"
    opened = table._catalog_of_process().load_table("n.t")
    return opened.scan(row_filter=text).to_arrow().num_rows


def _upsert_eventlog(place):
    root = f"s3://{BUCKET}/keyed"
    table = Table.create(
        root, SMALL, time_column=TIME, key="id", buckets=16, granularity="month",
        storage_options=place.options,
    )  # fmt: skip
    upsert(table, rows_of(KEYS))
    compact(table)
    return lambda rows: upsert(table, rows)


def _upsert_delta(place):
    table = place.table()
    table.append(rows_of(KEYS))

    def change(rows):
        merge = table.table.merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return change


def _upsert_iceberg(place):
    table = place.table()
    table.append(rows_of(KEYS))
    return lambda rows: table.table.upsert(rows, join_cols=["id"])


def _compact_eventlog(table):
    outcomes = compact(table.table, policy=Policy(min_gain=0)).outcomes
    assert [one.status for one in outcomes] == ["done"]


REFRESHES = {
    "eventlog": lambda system: system.table.refresh(),
    "deltalake": lambda system: system.table.update_incremental(),
    "pyiceberg": lambda system: system.table.refresh(),
}
READERS = {"eventlog": _read_eventlog, "deltalake": _read_delta, "pyiceberg": _read_iceberg}
UPSERTS = {"eventlog": _upsert_eventlog, "deltalake": _upsert_delta, "pyiceberg": _upsert_iceberg}
COMPACTIONS = {
    "eventlog": _compact_eventlog,
    "deltalake": lambda table: table.table.optimize.compact(),
}
MEASURES = dict(
    zip(
        OPERATIONS,
        (
            *(append, append_in_turn, append_after_refresh, append_large),
            *(query, upsert_keys, compaction),
        ),
        strict=True,
    )
)


def measured(name, rounds, wanted=OPERATIONS):
    """Return the requests of each operation of a system; None of one that it does not have."""
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        os.environ["BENCH_CATALOGS"] = folder
        server.create_bucket(BUCKET)
        place = Place(server, name, rounds)
        return {operation: MEASURES[operation](place) for operation in wanted}


def main():
    found = {}
    for name in SYSTEMS:
        found[name] = measured(name, 200)
        print(name, found[name], flush=True)
    page = Path(PAGE)
    page.write_text(written(page.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
