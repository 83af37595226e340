"""Write the golden table `copied`: a copy that began at a key frame, and lacks older versions.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_copied.py

Like the other tables it is written once a format. What it follows is in memory, and not kept.
"""

import sys
from datetime import timedelta

import pyarrow as pa
from golden import make

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.replication import follow
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

NAME = "copied"
DAYS = {"start": "1970-01-01", "end": "1970-01-03"}


def rows(*numbers: int) -> pa.Table:
    """Rows of two days of 1970."""
    at = [n % 2 * make.DAY_US + n for n in numbers]
    return pa.table([at, numbers], schema=make.PLAIN)


def make_copied(clock: ManualClock) -> None:
    """A copy that began late, fell behind the horizon of its source, and began again."""
    store = MemoryStore()
    options = {"time_column": "at", "granularity": "day", "store": store, "clock": clock}
    t = Table.create("", make.PLAIN, properties={"keyframe_commits": "3"}, **options)
    for number in range(4):
        append(t, rows(number))
    overwrite(t, rows(10, 11), **DAYS)
    copy = Table(LocalStore(make.TABLES / NAME, ManualClock(seed=1)), clock=clock)
    follow(t, copy, start="keyframe", clock=clock)
    for number in range(20, 23):
        append(t, rows(number))
    overwrite(t, rows(30, 31), **DAYS)
    append(t, rows(32))
    clock.advance(30 * 86_400_000)
    vacuum(t, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    append(t, rows(40))
    follow(t, copy, clock=clock)


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_copied(ManualClock(make.START_MS, seed=2028))
    return 0


if __name__ == "__main__":
    sys.exit(main())
