"""What a vacuum costs after one day of new data, in tables of very different size."""

import time
from datetime import timedelta

import synthetic

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format.frames.entry_columns import to_segments
from eventlog.format.keys import key_of
from eventlog.state.delta import drop_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore

HOUR_MS = 3_600_000
NEWS = 200  # commits of the day, a tenth of them replacements of what came before
BUILD_S = 240  # at most, for the largest table
A_DAY = {"retention": timedelta(hours=24), "staging": timedelta(hours=24), "dry_run": False}


def run(bench):
    base = None
    for segments in (1_000, bench.size(100_000, 5_000), bench.size(1_000_000, 10_000)):
        if segments > 100_000 and bench.left_s < 60:
            bench.stopped(f"vacuum of {segments:,} segments", 0, 1)
            return
        counts, seconds, cpu_s, report = after_a_day(segments)
        requests = counts.get + counts.put + counts.list + counts.delete
        base = base or requests
        kinds = f"{counts.get} GET, {counts.list} LIST, {counts.put} PUT, {counts.delete} DELETE"
        gone = sum(sums.objects for sums in report.gone.values())
        bench.emit(
            f"vacuum after {NEWS} new commits, {segments:,} segments: requests",
            {"eventlog": requests},
            goal=f"as with 1,000 segments ({base}) + 10",
            met=requests <= base + 10,
            note=f"{kinds}; {gone} deleted; {seconds:.2f} s, {cpu_s:.2f} s CPU, no latency",
        )


def after_a_day(segments):
    """Vacuum a table that was vacuumed a day ago; return requests, seconds, CPU, the report."""
    store, clock = MemoryStore(), ManualClock(1_700_000_000_000, seed=7)
    ends = time.monotonic() + BUILD_S
    built, _, files = synthetic.build_eventlog(store.uri, segments, ends, store=store)
    assert files == segments, f"{files:,} of {segments:,} segments were built in {BUILD_S} s"
    for segment in to_segments(built.session.head().entries()):
        store.put_if_absent(key_of(segment), b"")  # a listing of everything would meet them all
    clock = ManualClock(built.session.head().header.time + HOUR_MS, seed=7)
    table = Table.open(store.uri, store=store, clock=clock)
    clock.advance(30 * HOUR_MS)
    synthetic.append_one(table, segments, synthetic.DAYS - 1)
    vacuum(table, **A_DAY)
    for number in range(segments + 1, segments + NEWS + 1):
        if number % 10:
            synthetic.append_one(table, number, synthetic.DAYS - 1)
        else:
            _replace_newest(table, number)
    clock.advance(30 * HOUR_MS)
    synthetic.append_one(table, segments + NEWS + 1, synthetic.DAYS - 1)
    clock.advance(30 * HOUR_MS)
    counting = CountingStore(store)
    started, cpu = time.perf_counter(), time.process_time()
    report = vacuum(Table.open(store.uri, store=counting, clock=clock), **A_DAY)
    took = time.perf_counter() - started, time.process_time() - cpu
    return counting.counts, *took, report


def _replace_newest(table, number):
    head = table.session.head()
    newest = list(head.delta.adds.values())
    day = synthetic.DAYS - 1
    add = synthetic.add_of(number, day, head.version, head.stored_schema.id)
    drops = [drop_of(segment) for segment in newest[-3:]]
    table.commit(table.transaction("replace", [*drops, add]))
