"""Writers that append continuously and one that compacts continuously, as threads or processes.

Each opens its own handle, waits for the others at `start`, and runs until `over` returns True;
`over` is called with the number of appends or compactions.
"""

import time
from dataclasses import dataclass, field

import pyarrow as pa
from bench.tries import TryCounter

from eventlog import Table
from eventlog.compaction import run
from eventlog.store.location import open_store
from eventlog.writers import append

DAYS = 10
SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("id", pa.int64())])
_DAY_US = 86_400_000_000
_IDS = 10**9  # of each writer


@dataclass
class Compactions:
    """The results of all passes: the status of every task, and how often each was tried."""

    statuses: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)


class Seconds:
    """True once so many seconds have passed since the first call, in each process."""

    def __init__(self, seconds):
        self._seconds, self._ends = seconds, None

    def __call__(self, done):
        if self._ends is None:
            self._ends = time.monotonic() + self._seconds
        return time.monotonic() >= self._ends


def ids_of(writer, blocks, rows):
    """The ids of a writer's first `blocks` blocks of `rows` rows each."""
    return range(writer * _IDS, writer * _IDS + blocks * rows)


def work(number, start, writers, over, uri, options, rows):  # noqa: PLR0917
    """Do the work of one of `writers` + 1 processes for `racers.run`: the last one compacts."""
    if number == writers:
        return compact_continuously(start, over, uri, options)
    return append_continuously(number, start, over, uri, options, rows)


def append_continuously(writer, start, over, uri, options, rows):  # noqa: PLR0917
    """Append blocks of rows, each of one day, the days in turn; return the number of blocks."""
    table = Table.open(uri, options)
    start.wait(240)
    blocks = 0
    while not over(blocks):
        first = writer * _IDS + blocks * rows
        day = (writer + blocks) % DAYS
        at = [day * _DAY_US + n for n in range(rows)]
        append(table, pa.table([at, range(first, first + rows)], schema=SCHEMA))
        blocks += 1
    return blocks


def compact_continuously(start, over, uri, options):
    """Plan and perform everything repeatedly; return the outcome of every task."""
    counter = TryCounter(open_store(uri, options))
    table = Table.open(uri, store=counter)
    results = Compactions()
    start.wait(240)
    while not over(len(results.statuses)):
        for one in run(table).outcomes:
            results.statuses.append(one.status)
            if one.error:
                results.errors.append(one.error)
    results.tries = counter.tries("compact")
    return results
