"""Write the golden table `returned`: it followed its copy, and the horizon passed a branch of it.

    .venv/bin/python tests/golden/make_returned.py

Like the other tables it is written once a format.
"""

import sys
from datetime import timedelta
from importlib import import_module
from unittest.mock import patch

from golden import make
from golden.make_branched import DAYS, rows

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

VACUUM = import_module("eventlog.compaction.vacuum")  # its package has a function of that name

NAME = "returned"
NOTHING = timedelta(0)


def make_returned(clock: ManualClock) -> None:
    """The copy drops what the branch reads, and its pin; then the table takes over again."""
    t = make.open_at(NAME, make.PLAIN, clock, properties={"keyframe_commits": "3"})
    append(t, rows(0, 1))
    append(t, rows(2, 3))
    append(t.branch("audit"), rows(10))
    copy = Table(MemoryStore("memory://copy of returned"), clock)
    follow(t, copy, clock=clock)
    copy.break_pin("branch:audit")
    overwrite(copy, rows(4, 5), **DAYS)
    append(copy, rows(6))
    clock.advance(30 * 86_400_000)
    with patch.object(VACUUM, "place_of", lambda _: "copy"):
        vacuum(copy, dry_run=False, retention=NOTHING, staging=NOTHING)
    follow(copy, t, clock=clock)
    t.refresh()
    overwrite(t, rows(7, 8), **DAYS)
    clock.advance(30 * 86_400_000)
    with patch.object(VACUUM, "place_of", lambda _: "golden"):
        vacuum(t, dry_run=False, retention=NOTHING, staging=NOTHING)
    append(Table.open("", store=t.store, branch="audit", clock=clock), rows(11))


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_returned(ManualClock(make.START_MS, seed=2027))
    return 0


if __name__ == "__main__":
    sys.exit(main())
