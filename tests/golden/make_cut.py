"""Write the golden table `cut`: a log that was cut twice, and cuts that are void.

    .venv/bin/python tests/golden/make_cut.py

Like the other tables it is written once a format (`make.py` says why).
"""

import datetime as dt
import sys

import pyarrow as pa
from golden import make
from golden.make_whole import put, void

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.model.actions import SetCut
from eventlog.writers import append, overwrite

NAME = "cut"
HOUR_MS = 3_600_000
DAY = {"start": "1970-01-01", "end": "1970-01-02"}
HOURS = {"retention": dt.timedelta(hours=2), "staging": dt.timedelta(hours=2)}


def rows(first: int, count: int, *, days: int = 1) -> pa.Table:
    """Rows over so many days of 1970."""
    at = [n % days * make.DAY_US + n for n in range(first, first + count)]
    return pa.table([at, range(first, first + count)], schema=make.PLAIN)


def go_on(t: Table, clock: ManualClock, commits: int) -> None:
    """Replace the rows of a day so many times, an hour each."""
    for number in range(commits):
        overwrite(t, rows(10 * number, 2), **DAY)
        clock.advance(HOUR_MS)


def voids(t: Table) -> list:
    """Return cuts that are void, of which each breaks one condition, and one that is accepted."""
    head, meta = t.session.head(), t.session.head().meta
    cut, horizon = meta.cut, meta.horizon
    seen = head.version
    return [
        void(t, "R22.1", [SetCut(cut.version, cut.version, seen)]),
        void(t, "R22.1", [SetCut(horizon + 1, cut.version, seen)]),
        void(t, "R22.1", [SetCut(horizon, cut.whole - 1, seen)]),
        void(t, "R22.1", [SetCut(horizon, horizon + 1, seen)]),
        void(t, "R22.1", [SetCut(horizon, cut.whole, horizon - 1)]),
        void(t, "R22.1", [SetCut(horizon, cut.whole, seen + 1)]),
        t.transaction("vacuum", [SetCut(horizon, cut.whole, seen)]),
    ]


def make_cut(clock: ManualClock) -> None:
    """A table whose log is cut, once below what its retention keeps, and once by hand."""
    properties = {"keyframe_commits": "4", "log_retention_hours": "6"}
    t = make.open_at(NAME, make.PLAIN, clock, properties=properties)
    append(t, rows(0, 12, days=6))
    go_on(t, clock, 11)
    vacuum(t, dry_run=False, log=True, **HOURS)
    append(t, rows(90, 3, days=3))
    go_on(t, clock, 3)
    vacuum(t, dry_run=False, **HOURS)
    t.write_keyframe()
    put(t, voids(t))
    append(t, rows(95, 2))


def main() -> int:
    """Write the table."""
    leaves = {"INLINE_SEGMENTS": 3, "LEAF_TARGET": 4, "LEAF_SMALL": 2, "LEAF_MAX": 10}
    with make.writing(NAME, **leaves):
        make_cut(ManualClock(make.START_MS, seed=2021))
    return 0


if __name__ == "__main__":
    sys.exit(main())
