"""Write the golden table `advanced`: units of work that a transaction does at once.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_advanced.py

Void transactions of which each breaks one condition of FORMAT.md R10.8 alone stand in version 3.
"""

import sys

from golden import make, make_whole
from golden.make_rules import good

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.model.actions import Action, Advance
from eventlog.model.records import App, Transaction

NAME = "advanced"


def adding(t: Table, first: int, *actions: Action, **fields: object) -> Transaction:
    """Return an append that takes effect."""
    rows = make_whole.staged(t, make_whole.rows(first, 2))
    return good(t, *actions, *rows, operation="append", **fields)


def make_advanced(clock: ManualClock) -> None:
    """Two apps, what is void of them, the field `app`, and a restore."""
    t = make.open_at(NAME, make_whole.SCHEMA, clock)
    void = lambda *actions, **fields: make_whole.void(t, "R10.8", actions, **fields)
    make_whole.put(t, [adding(t, 0, Advance("one", None, 0))])
    make_whole.put(t, [adding(t, 2, Advance("one", 0, 7), Advance("two", None, 3))])
    make_whole.put(
        t,
        [
            void(Advance("one", 6, 9)),
            void(Advance("one", 8, 9)),
            void(Advance("one", None, 9)),
            void(Advance("one", 7, 7)),
            void(Advance("one", 7, 6)),
            void(Advance("three", 0, 1)),
            void(Advance("two", 3, 4), Advance("two", 3, 5)),
            adding(t, 4, Advance("two", 3, 4), Advance("two", 4, 5)),
            void(Advance("two", 3, 6)),  # the transaction before took it further
            adding(t, 6, app=App("one", 8)),
            void(Advance("one", 8, 9), app=App("one", 9)),
            adding(t, 8, Advance("one", 9, 10), app=App("one", 9)),
        ],
    )
    t.restore(2, forget_units=True)
    make_whole.put(t, [adding(t, 10, Advance("one", 7, 9))])
    t.write_keyframe()
    marks = {"one": 9, "two": 3}
    assert {name: mark.seq for name, mark in t.session.head().meta.apps.items()} == marks


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_advanced(ManualClock(make.START_MS, seed=2041))
    return 0


if __name__ == "__main__":
    sys.exit(main())
