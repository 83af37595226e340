"""What vacuum deletes and records where the log is short, idle, or pinned."""

import pytest
from support.builders import (
    commit,
    create,
    events,
    reopen,
    row_names,
)
from support.vacuumed import DAY, NOW, pinned_and_vacuumed

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.model.records import Sweep, Swept
from eventlog.writers import append, overwrite


def test_nothing_is_deleted_by_a_log_that_lost_its_end():
    table = create(properties={"keyframe_commits": "1"})
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    table.store.delete([keys.commit_key(2)])
    table.clock.advance(10**9)
    with pytest.raises(errors.Corrupt, match="commits were removed"):
        vacuum(reopen(table.store), dry_run=False, **NOW)
    assert len(list(table.store.list("data/"))) == 2


def test_vacuums_of_an_idle_table_come_to_rest():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    for _ in range(3):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    rest = table.refresh().version
    for _ in range(5):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    assert table.refresh().version == rest
    assert row_names(table) == ["row 1"]


def test_a_record_that_lacks_what_a_pin_holds_is_found():
    table = pinned_and_vacuumed()
    head = table.head()
    commit(table, Swept(Sweep(head.meta.fence, head.meta.horizon, head.version)))
    report = fsck(Table(table.store))
    assert not report.ok
    assert "record lacks this segment" in report.findings[0].message
