"""Write the golden table `branched`: a table, a branch of it, and a branch of that.

    .venv/bin/python tests/golden/make_branched.py

Like the other tables it is written once a format.
"""

import sys
from datetime import timedelta

import pyarrow as pa
from golden import make

from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.writers import append, overwrite

NAME = "branched"
DAYS = {"start": "1970-01-01", "end": "1970-01-03"}


def rows(*numbers: int) -> pa.Table:
    """Rows of two days of 1970."""
    at = [n % 2 * make.DAY_US + n for n in numbers]
    return pa.table([at, numbers], schema=make.PLAIN)


def make_branched(clock: ManualClock) -> None:
    """Both sides of a fork go on; the branch restores, and is forked itself."""
    t = make.open_at(NAME, make.PLAIN, clock, properties={"keyframe_commits": "3"})
    append(t, rows(0, 1))
    append(t, rows(2, 3))
    overwrite(t, rows(4), **DAYS)
    audit = t.branch("audit")  # forks at the pin's own commit
    append(t, rows(5))
    overwrite(audit, rows(10, 11), **DAYS)
    audit.restore(3)
    append(audit, rows(12))
    fix = audit.branch("fix", at=6)
    overwrite(t, rows(6, 7), **DAYS)
    append(fix, rows(20))
    overwrite(fix, rows(21), **DAYS)
    fix.write_keyframe()
    fix.restore(6)
    clock.advance(30 * 86_400_000)
    vacuum(t, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    append(t, rows(8))


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_branched(ManualClock(make.START_MS, seed=2026))
    return 0


if __name__ == "__main__":
    sys.exit(main())
