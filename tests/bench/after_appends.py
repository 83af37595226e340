"""Reading a table of a thousand small appends whose rows stand in commits, in memory.

What a scan costs depends on how many commits lie above the last key frame: it is measured at
places from one key frame to the next, in each by a process that has read nothing.
"""

import gc
import statistics
import time

import pyarrow as pa
from peers import TIME, small_rows

from eventlog import Table
from eventlog.compaction import Policy
from eventlog.compaction import run as compact
from eventlog.inline import inline_objects
from eventlog.readers import changes, scan
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

KEY_FRAME = 64  # commits
ROWS = 100
ROUNDS, TIMED = 5, 8  # scans are timed at every eighth place


def run(bench):
    count, places = bench.size(1000, 70), bench.size(KEY_FRAME, 4)
    store, one = _table("16384"), _table("0")
    table = Table(store)
    for number in range(count):
        table.append(small_rows(ROWS, ROWS * number))
    Table(one).append(pa.concat_tables(small_rows(ROWS, ROWS * n) for n in range(count)))
    for _ in range(ROUNDS):  # what a process does once: imports, threads, memory of Arrow
        _scan(store), _scan(one)
    requests, times = [], []
    work = f"scan after {count:,} appends of {ROWS} rows"
    for place in range(places):
        with store.measure() as counts:
            _scan(store)
        requests.append(counts.get + counts.list + counts.head)
        if place % TIMED == 0:
            both = [(_scan(store), _scan(one)) for _ in range(ROUNDS)]
            times.append([statistics.median(some) for some in zip(*both, strict=True)])
        if bench.left_s < bench.limit_s / 8:
            bench.stopped(work, len(requests), places)
            break
        table.append(small_rows(ROWS, ROWS * count))
        count += 1
    mean, most = statistics.mean(requests), max(requests)
    bench.emit(f"{work}: mean", {"eventlog": mean}, "requests", goal="<= 40", met=mean <= 40)
    bench.emit(f"{work}: greatest", {"eventlog": most}, "requests", goal="<= 80", met=most <= 80)
    ours, theirs = (sum(some) for some in zip(*times, strict=True))
    bench.emit(
        f"{work}: CPU, as a multiple of a scan of one segment of these rows",
        {"eventlog": round(ours / theirs, 2), "reference": 1},
        goal="<= 3",
        met=ours / theirs <= 3,
        note=f"{1000 * ours / len(times):.0f} ms on average, one segment "
        f"{1000 * theirs / len(times):.0f} ms",
    )
    _others(bench, store, count)


def _others(bench, store, count):
    """Changes and a compaction of all that was appended."""
    actions = {
        "changes": lambda t: changes(t, 0, count).to_table(),
        "compaction": lambda t: compact(t, policy=Policy(min_gain=0)),
    }
    for name, action in actions.items():
        inline_objects.forget_objects()
        reader = Table(store)
        with store.measure() as counts:
            action(reader)
        found = counts.get + counts.list + counts.head + counts.put
        bench.emit(f"{name} of {count:,} appends of {ROWS} rows", {"eventlog": found}, "requests")


def _table(inline_bytes):
    """A new table with these inline bytes, as a store that counts."""
    store = CountingStore(MemoryStore())
    properties = {"inline_bytes": inline_bytes, "keyframe_commits": f"{KEY_FRAME}"}
    columns = small_rows().schema
    Table.create("", columns, time_column=TIME, properties=properties, store=store)
    return store


def _scan(store):
    """Scan by a handle, in a process, that has read nothing; return the seconds of CPU."""
    inline_objects.forget_objects()
    table = Table(store)
    gc.collect()
    began = time.process_time()
    scan(table).to_table()
    return time.process_time() - began
