"""What a follower costs after one day of new data, in tables of very different size.

Beside it what a tool costs that lists both sides and copies what is new, as `aws s3 sync` does; it
gives no table until it is done, and none if it meets a vacuum.
"""

import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import synthetic

from eventlog import Table
from eventlog.format.frames.entry_columns import to_segments
from eventlog.format.keys import key_of
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append

HOURS = 24
ROWS = 4_000


def run(bench):
    base = None
    for segments in (1_000, bench.size(100_000, 5_000), bench.size(1_000_000, 10_000)):
        if segments > 100_000 and bench.left_s < 60:
            bench.stopped(f"follow of {segments:,} segments", 0, 1)
            return
        source, target = before_the_day(segments, bench.limit_s * 0.8)
        a_day(source)
        other = MemoryStore()
        for row in target.list(""):
            other.put_if_absent(row.key, target.get(row.key))
        theirs, mine = CountingStore(source.store), CountingStore(target)
        started, cpu = time.perf_counter(), time.process_time()
        done = follow(Table(theirs), Table(mine))
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        assert done.versions == HOURS
        ours = theirs.counts.total + mine.counts.total
        copied = mine.counts.bytes_written
        listed, size = synced(source.store, other)
        base = base or (ours, copied)
        bench.emit(
            f"follow one new day ({HOURS} commits), {segments:,} segments: requests",
            {"eventlog": ours, "reference": listed},
            goal=f"as with 1,000 segments ({base[0]}) + 20",
            met=ours <= base[0] + 20,
            note=f"source {_kinds(theirs)}; copy {_kinds(mine)}; {seconds:.2f} s, {cpu_s:.2f} s "
            "CPU, no latency. Reference: list both sides, copy what is new",
        )
        bench.emit(
            f"follow one new day, {segments:,} segments: bytes written",
            {"eventlog": copied, "reference": size},
            unit="B",
            goal="those of the new objects",
            met=copied <= size * 1.05,
            note=f"with 1,000 segments: {base[1]:,}",
        )


def before_the_day(segments, most_s):
    """Return a table, and the store of a copy that is up to date."""
    store = MemoryStore()
    table, _, files = synthetic.build_eventlog(
        store.uri, segments, time.monotonic() + most_s, store=store
    )
    assert files == segments, f"{files:,} of {segments:,} segments were built in {most_s:.0f} s"
    for segment in to_segments(table.session.head().entries()):
        store.put_if_absent(key_of(segment), b"")  # a listing of everything meets them all
    table.write_keyframe()
    target = MemoryStore()
    for row in store.list(""):
        target.put_if_absent(row.key, store.get(row.key))
    table = Table.open(store.uri, store=store)
    table.session.head()
    return table, target


def a_day(table):
    """Append the rows of a day, hour by hour."""
    first = datetime.combine(synthetic.FIRST_DAY, datetime.min.time(), UTC)
    start = first + timedelta(days=synthetic.DAYS)
    schema = table.session.head().schema
    for hour in range(HOURS):
        times = [start + timedelta(hours=hour, milliseconds=n) for n in range(ROWS)]
        numbers = list(range(hour * ROWS, hour * ROWS + ROWS))
        columns = {field.name: pa.array(numbers, pa.int64()) for field in schema}
        columns = {name: array.cast(schema.field(name).type) for name, array in columns.items()
                   if schema.field(name).name != schema[0].name}  # fmt: skip
        columns[schema[0].name] = pa.array(times, schema[0].type)
        append(table, pa.table({name: columns[name] for name in schema.names}, schema=schema))


def synced(source, target):
    """Copy what is new by listing both sides; return requests and bytes written."""
    theirs, mine = CountingStore(source), CountingStore(target)
    there = {row.key: row.size for row in mine.list("")}
    for row in theirs.list(""):
        if there.get(row.key) != row.size:
            mine.put_if_absent(row.key, theirs.get(row.key))
    return theirs.counts.total + mine.counts.total, mine.counts.bytes_written


def _kinds(store):
    counts = store.counts
    return f"{counts.get} GET, {counts.list} LIST, {counts.put} PUT"
