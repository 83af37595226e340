"""What merging takes of memory follows from its settings, not from how much there is to merge."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eventlog import Table
from eventlog.compaction import Policy, run
from eventlog.readers import scan
from eventlog.writers import upsert

pytestmark = pytest.mark.long
MIB = 2**20
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        *[(f"x{n}", pa.int64()) for n in range(4)],
    ]
)
POOLS = []  # what Arrow still holds from a pool must not outlive it
ROWS = 250_000  # of one upsert: every fourth of a million keys, others each time


def rows(number):
    ids = pc.add(pc.multiply(pa.array(range(ROWS), pa.int64()), 4), number % 4)
    values = [pc.multiply(ids, 1 + number + n) for n in range(4)]
    at = pa.repeat(pa.scalar(number, pa.timestamp("us", "UTC")), ROWS)
    return pa.table([ids, at, pc.cast(ids, pa.string()), *values], schema=SCHEMA)


def filled(folder, upserts):
    """A table of one bucket, in which nothing was merged."""
    options = {"time_column": "at", "key": "id", "order_by": "at", "buckets": 1}
    table = Table.create(folder / str(upserts), SCHEMA, **options)
    for number in range(upserts):
        upsert(table, rows(number))
    return table


def peak_of(work):
    """The most bytes that Arrow held at once during some work."""
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        work()
        return pool.max_memory()
    finally:
        pa.set_memory_pool(usual)


@pytest.fixture
def tables(tmp_path):
    """One with 4 and one with 8 upserts: 58 MB and 116 MB."""
    assert rows(0).nbytes * 8 > 110 * 10**6
    return filled(tmp_path, 4), filled(tmp_path, 8)


def test_merging_on_read_holds_no_more_of_twice_the_rows(tables):
    def read(table):
        query = scan(table)
        query = replace(query, reading=replace(query.reading, ahead_bytes=2 * MIB))
        assert sum(batch.num_rows for batch in query.to_batches()) == 4 * ROWS

    some, more = (peak_of(lambda t=t: read(t)) for t in tables)
    assert more < 1.25 * some
    assert more < 45 * 10**6


def test_compaction_of_slices_holds_no_more_than_its_setting(tables):
    def compact(table):
        outcomes = run(table, policy=Policy(memory_bytes=64 * MIB)).outcomes
        assert [outcome.status for outcome in outcomes] == ["done"]

    some, more = (peak_of(lambda t=t: compact(t)) for t in tables)
    assert more < 1.25 * some
    assert more < 64 * MIB
    assert scan(tables[1]).count() == 4 * ROWS
