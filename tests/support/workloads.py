"""Writers that append without a pause and one that compacts all the while, as threads or processes.

Each opens a handle of its own, waits for the others at `start`, and goes on until `over` says so,
which is told how many appends there were, or compactions.
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
    """What all passes came to: the status of every task, and how often each was tried."""

    statuses: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)


class Seconds:
    """Over so many seconds after the first call. Each process counts its own."""

    def __init__(self, seconds):
        self._seconds, self._ends = seconds, None

    def __call__(self, done):
        if self._ends is None:
            self._ends = time.monotonic() + self._seconds
        return time.monotonic() >= self._ends


def ids_of(writer, blocks, rows):
    """The ids of a writer's first blocks of so many rows each."""
    return range(writer * _IDS, writer * _IDS + blocks * rows)


def work(number, start, writers, over, uri, options, rows):  # noqa: PLR0917
    """Do the work of one of `writers` + 1: the last one compacts (as `racers.run` wants it)."""
    if number == writers:
        return compact_all_the_time(start, over, uri, options)
    return append_all_the_time(number, start, over, uri, options, rows)


def append_all_the_time(writer, start, over, uri, options, rows):  # noqa: PLR0917
    """Append blocks of rows, each of one day, the days in turn; return how many it were."""
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


def compact_all_the_time(start, over, uri, options):
    """Plan and perform everything again and again; return what became of every task."""
    counter = TryCounter(open_store(uri, options))
    table = Table.open(uri, store=counter)
    found = Compactions()
    start.wait(240)
    while not over(len(found.statuses)):
        for one in run(table).outcomes:
            found.statuses.append(one.status)
            if one.error:
                found.errors.append(one.error)
    found.tries = counter.tries("compact")
    return found
