"""A table after a vacuum that was held back by a pin."""

from datetime import timedelta

from support.builders import create, events

from eventlog.compaction import vacuum
from eventlog.writers import append, overwrite

DAY = {"start": "1970-01-01", "end": "1970-01-02"}
NOW = {"retention": timedelta(0), "staging": timedelta(0)}


def pinned_and_vacuumed():
    """Version 1 is pinned; the segments that version 2 dropped wait for the next vacuum."""
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    table.pin("keep", 1)
    table.clock.advance(10**9)
    append(table, events(1, first=2, day=3))
    vacuum(table, dry_run=False, **NOW)
    assert table.refresh().meta.swept.pending is not None
    return table
